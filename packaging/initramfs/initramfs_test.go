package initramfs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestArchive: a directory comes before what is in it, in whatever order they were added, and the form is the kernel's.
func TestArchive(t *testing.T) {
	var a, b Archive
	a.Text("etc/b-c", 0o644, []byte("12345"))
	a.Link("init", "usr/bin/ledge")
	a.Console("dev/console")
	a.Text("etc/b/d", 0o600, nil)
	b.Console("dev/console")
	b.Text("etc/b/d", 0o600, nil)
	b.Link("init", "usr/bin/ledge")
	b.Directory("etc")
	b.Text("etc/b-c", 0o644, []byte("12345"))
	if !slices.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the order in which files are added shows")
	}
	var got []string
	for rest := a.Bytes(); len(rest) > 0; {
		field := func(i int) int {
			n, err := strconv.ParseInt(string(rest[6+8*i:14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		if string(rest[:6]) != "070701" {
			t.Fatalf("header %q", rest[:6])
		}
		size, name := field(6), string(rest[110:110+field(11)-1])
		data := (110 + field(11) + 3) &^ 3
		got = append(got, fmt.Sprintf("%s %o %d:%d %q", name, field(1), field(9), field(10), rest[data:data+size]))
		rest = rest[(data+size+3)&^3:]
	}
	want := []string{`dev 40755 0:0 ""`, `dev/console 20600 5:1 ""`, `etc 40755 0:0 ""`, `etc/b 40755 0:0 ""`, `etc/b-c 100644 0:0 "12345"`,
		`etc/b/d 100600 0:0 ""`, `init 120777 0:0 "usr/bin/ledge"`, `TRAILER!!! 0 0:0 ""`}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestInOrder(t *testing.T) {
	var m Modules
	m.parse("kernel/lib/libcrc32c.ko:\nkernel/net/nf_tables.ko: kernel/net/nfnetlink.ko kernel/lib/libcrc32c.ko\nkernel/net/nfnetlink.ko:\n" +
		"kernel/drivers/mmc/host/sdhci.ko: kernel/drivers/mmc/core/mmc_core.ko\nkernel/drivers/mmc/core/mmc_core.ko:\n" +
		"kernel/drivers/mmc/host/sdhci-iproc.ko: kernel/drivers/mmc/host/sdhci.ko kernel/drivers/mmc/core/mmc_core.ko\n")
	for names, want := range map[string]string{
		"":                                 "",
		"built_in":                         "",
		"nf_tables libcrc32c":              "libcrc32c nfnetlink nf_tables",
		"sdhci-iproc nfnetlink":            "mmc_core sdhci sdhci-iproc nfnetlink",
		"sdhci_iproc":                      "mmc_core sdhci sdhci-iproc",
		"kernel/drivers/mmc/":              "mmc_core sdhci sdhci-iproc",
		"kernel/net/nf_*":                  "libcrc32c nfnetlink nf_tables",
		"kernel/drivers/ kernel/lib/*.ko":  "mmc_core sdhci sdhci-iproc libcrc32c",
		"kernel/drivers/mmc nf_tables_not": "",
	} {
		var got []string
		for _, f := range m.InOrder(strings.Fields(names)) {
			got = append(got, strings.TrimSuffix(f[strings.LastIndex(f, "/")+1:], ".ko"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}
