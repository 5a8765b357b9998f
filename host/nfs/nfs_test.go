package nfs

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if code, ok := Child(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// TestKernelOptions: what people write of shares, and what the kernel is told, version by version.
func TestKernelOptions(t *testing.T) {
	server, own := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, c := range []struct {
		options  string // mount options as several, with a space between
		readOnly bool
		flags    uintptr
		want     string // for each version
		err      string
	}{
		{"", false, 0, "vers=4.2,addr=10.0.0.1,clientaddr=10.0.0.2 vers=4.1,addr=10.0.0.1,clientaddr=10.0.0.2 " +
			"vers=4.0,addr=10.0.0.1,clientaddr=10.0.0.2 vers=3,addr=10.0.0.1,nolock,mountproto=tcp", ""},
		{"nfsvers=4.1,hard noatime", true, unix.MS_RDONLY | unix.MS_NOATIME, "vers=4.1,addr=10.0.0.1,clientaddr=10.0.0.2,hard", ""},
		{"vers=4 minorversion=1", false, 0, "vers=4.1,addr=10.0.0.1,clientaddr=10.0.0.2", ""},
		{"vers=3,nolock,mountproto=udp", false, 0, "vers=3,addr=10.0.0.1,nolock,mountproto=udp", ""},
		{"vers=3,lock", false, 0, "", "rpc.statd"},
		{"vers=2", false, 0, "", "version \"2\""},
		{"vers=4.9", false, 0, "", "version \"4.9\""},
		{"addr=10.0.0.9", false, 0, "", `mount option "addr=10.0.0.9" is not known`},
		{"clientaddr=1.1.1.1", false, 0, "", "is not known"},
		{"context=x", false, 0, "", "is not known"},
		{"hard,,soft", false, 0, "", `mount option "" is not known`},
		{"_netdev,nofail,rw", false, 0, "vers=4.2,", ""},
	} {
		flags, versions, rest, err := kernelOptions(Share{Options: strings.Fields(c.options), ReadOnly: c.readOnly})
		if c.err != "" || err != nil {
			if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v", c.options, err)
			}
			continue
		}
		var all []string
		for _, v := range versions {
			all = append(all, data(v, server, own, rest))
		}
		if got := strings.Join(all, " "); flags != c.flags || !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: %#x %q", c.options, flags, got)
		}
	}
}

func TestNames(t *testing.T) {
	for want, s := range map[string]Share{"nas:/a": {Server: "nas", Path: "/a"}, "[fd00::1]:/a": {Server: "fd00::1", Path: "/a"},
		"[fd00::2]:/a": {Server: "[fd00::2]", Path: "/a"}, "10.0.0.1:/": {Server: "10.0.0.1", Path: "/"}} {
		if got := s.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	err := plainly(Share{Server: "nas", Path: "/a"}, unix.ENODEV)
	if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "mount nas:/a: the kernel of this board has no NFS") {
		t.Error(err)
	}
}

// TestChildren: what a child says comes back, bad options start none, and nothing is mounted is nothing to leave.
func TestChildren(t *testing.T) { // N-13.12
	var s Shares
	at := t.TempDir()
	err := s.Mount(t.Context(), Share{Server: "10.0.0.1", Path: "/a", Options: []string{"evil"}}, at)
	if err == nil || !strings.Contains(err.Error(), "evil") {
		t.Error(err)
	}
	if err := s.Mount(t.Context(), Share{Server: "no such name", Path: "/a"}, at); err == nil || !strings.Contains(err.Error(), "find the server") {
		t.Error(err)
	}
	if err := s.Look(t.Context(), at); err != nil {
		t.Error(err)
	}
	if err := s.Look(t.Context(), at+"/none"); err == nil {
		t.Error("looked at nothing")
	}
	if os.Getuid() == 0 {
		if err := s.Leave(t.Context(), at); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Look(ctx, at); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
