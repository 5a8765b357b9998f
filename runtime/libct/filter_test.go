//go:build cgo && seccomp

package libct

import (
	"bytes"
	"os"
	"testing"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	libseccomp "github.com/seccomp/libseccomp-golang"
)

func export(t *testing.T, calls ...string) []byte {
	t.Helper()
	f, err := libseccomp.NewFilter(libseccomp.ActErrno.SetReturnCode(1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	for _, name := range calls {
		n, err := libseccomp.GetSyscallFromName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.AddRule(n, libseccomp.ActAllow); err != nil {
			t.Fatal(err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := f.ExportBPF(w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestLentFilter: whoever is lent a file puts the filter there, who is lent it next takes that one and no rules of its
// own; a file that is not a lent one, or none, changes nothing.
func TestLentFilter(t *testing.T) {
	var all filters
	lend := func(rules *configs.Seccomp) *os.File {
		var p libcontainer.Process
		if err := all.lend(&p, rules, true); err != nil {
			t.Fatal(err)
		}
		if len(p.ExtraFiles) != 1 {
			t.Fatalf("%d files for a process with a filter", len(p.ExtraFiles))
		}
		return p.ExtraFiles[0]
	}
	defer useFilter(-1)
	some := &configs.Seccomp{DefaultAction: configs.Errno, Syscalls: []*configs.Syscall{{Name: "read", Action: configs.Allow}}}
	others := &configs.Seccomp{DefaultAction: configs.Errno, Syscalls: []*configs.Syscall{{Name: "write", Action: configs.Allow}}}

	plain := export(t, "read", "mount")
	guest := func() int {
		var p libcontainer.Process
		if err := all.lend(&p, some, false); err != nil {
			t.Fatal(err)
		}
		return len(p.ExtraFiles)
	}
	unfinished := lend(some)
	if guest() != 0 {
		t.Error("a process among others may write a filter that all will have")
	}
	file := lend(some)
	if file == unfinished {
		t.Fatal("a file that another process may still write was lent")
	}
	useFilter(int(file.Fd()))
	if got := export(t, "read", "mount"); !bytes.Equal(got, plain) {
		t.Errorf("the filter is %d bytes with a file, %d without", len(got), len(plain))
	}
	if lend(some) != file || guest() != 1 {
		t.Error("a finished filter was not lent again")
	}
	if lend(others) == file {
		t.Error("other rules got the same filter")
	}
	if _, err := file.WriteAt([]byte{0}, 0); err == nil {
		t.Error("a finished filter can be changed")
	}
	useFilter(int(file.Fd()))
	if got := export(t); !bytes.Equal(got, plain) {
		t.Errorf("the lent filter was not taken: %d bytes, want %d", len(got), len(plain))
	}
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	useFilter(int(pipe.Fd()))
	if got := export(t, "read"); bytes.Equal(got, plain) || len(got) == 0 {
		t.Errorf("a pipe was taken for a lent file: %d bytes", len(got))
	}
	var none libcontainer.Process
	if err := all.lend(&none, nil, true); err != nil || len(none.ExtraFiles) > 0 {
		t.Errorf("%d files for a process without a filter, %v", len(none.ExtraFiles), err)
	}
}

// TestAlone: only what has process numbers of its own is out of the reach of other containers' programs.
func TestAlone(t *testing.T) {
	for want, ns := range map[bool][]configs.Namespaces{
		true:  {{{Type: configs.NEWNS}, {Type: configs.NEWPID}}},
		false: {nil, {{Type: configs.NEWNS}}, {{Type: configs.NEWPID, Path: "/proc/7/ns/pid"}}},
	} {
		for _, n := range ns {
			if got := alone(&configs.Config{Namespaces: n}); got != want {
				t.Errorf("%v: %v", n, got)
			}
		}
	}
}
