package host

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestWrites(t *testing.T) {
	h := machine(t, map[string]string{
		"proc/uptime":                       "1000.00 1.00\n",
		"proc/7/io":                         "rchar: 1\nwchar: 9\nread_bytes: 0\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n",
		"proc/7/stat":                       "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 10 0 50000 1 2\n",
		"proc/8/io":                         "write_bytes: 0\ncancelled_write_bytes: 4096\n",
		"proc/8/stat":                       "8 (x) S 1 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 10 0 0 1 2\n",
		"proc/9/io":                         "write_bytes: 1\n",
		"proc/9/stat":                       "9 (x) S\n",
		"sys/devices/mmc/block/mmcblk0/dev": "179:0\n",
		"sys/devices/mmc/block/mmcblk0/mmcblk0p2/dev":       "179:2\n",
		"sys/devices/mmc/block/mmcblk0/mmcblk0p2/partition": "2\n",
		"sys/block/mmcblk0/stat":                            "1 2 3 4 5 6 100 8 9 10 11\n",
		"sys/block/mmcblk0/device/life_time":                "0x01 0x03\n",
		"sys/block/mmcblk0/device/pre_eol_info":             "0x02\n",
		"sys/fs/cgroup/cgroup.controllers":                  "cpu io\n",
		"sys/fs/cgroup/x/kubepods/io.stat":                  "8:0 rbytes=1 wbytes=2\n179:0 rbytes=10 wbytes=4096 rios=1 wios=1 dbytes=7 dios=0\n",
	})
	if err := os.MkdirAll(h.cfg.Sys+"/dev/block", 0o755); err != nil {
		t.Fatal(err)
	}
	for number, at := range map[string]string{"179:0": "mmcblk0", "179:2": "mmcblk0/mmcblk0p2"} {
		if err := os.Symlink("../../devices/mmc/block/"+at, filepath.Join(h.cfg.Sys, "dev/block", number)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := h.ProcessWrites(7)
	if since := time.Since(c.Since); err != nil || c.Bytes != 4096 || since < 499*time.Second || since > 560*time.Second {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := h.ProcessWrites(8); err != nil || c.Bytes != 0 {
		t.Errorf("more was removed than written: %+v %v", c, err)
	}
	for _, pid := range []int{9, 10} {
		if c, err := h.ProcessWrites(pid); err == nil {
			t.Errorf("%d: %+v", pid, c)
		}
	}
	d, err := h.disk("179:2")
	if err != nil || d != (Disk{"mmcblk0", "179:0"}) {
		t.Fatalf("%+v %v", d, err)
	}
	if whole, err := h.disk("179:0"); err != nil || whole != d {
		t.Errorf("%+v %v", whole, err)
	}
	if _, err := h.disk("0:42"); !errors.Is(err, ErrNoDisk) {
		t.Error(err)
	}
	if c, err := h.DiskWrites(d); err != nil || c.Bytes != 51200 {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := h.GroupWrites("/x/kubepods", d); err != nil || c.Bytes != 4096 {
		t.Errorf("%+v %v", c, err)
	}
	if w := h.Wear(d); !reflect.DeepEqual(w, &Wear{UsedPercent: 30, Reserve: "low"}) {
		t.Errorf("%+v", w)
	}
	if w := h.Wear(Disk{Name: "sda"}); w != nil {
		t.Errorf("%+v", w)
	}
	if got := v1Writes("8:0 Write 1\n179:0 Read 5\n179:0 Write 77\n179:0 Total 82\nTotal 99\n", "179:0"); got != 77 {
		t.Error(got)
	}
}

func TestWear(t *testing.T) {
	for text, want := range map[[2]string]*Wear{
		{"0x0b 0x01", "0x01"}: {UsedPercent: 100, Exceeded: true, Reserve: "normal"},
		{"0x0a 0x01", "0x03"}: {UsedPercent: 100, Reserve: "urgent"},
		{"0x00 0x00", "0x00"}: nil, // not defined
		{"0x00 0x00", "0x01"}: {Reserve: "normal"},
		{"", ""}:              nil,
		{"0xff nonsense", ""}: nil,
	} {
		h := machine(t, map[string]string{"sys/block/m/device/life_time": text[0] + "\n", "sys/block/m/device/pre_eol_info": text[1] + "\n"})
		if got := h.Wear(Disk{Name: "m"}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// What this process writes to a real disk is counted, what it writes to memory is not.
func TestOwnWrites(t *testing.T) {
	h := New(Config{})
	before, err := h.ProcessWrites(os.Getpid())
	if err != nil {
		t.Skipf("the kernel does not count: %v", err)
	}
	if since := time.Since(before.Since); since < 0 || since > time.Hour {
		t.Errorf("began %s ago", since)
	}
	disk := t.TempDir()
	if _, err := h.DiskOf(disk); err != nil {
		t.Skipf("%s is %v", disk, err)
	}
	f, err := os.Create(filepath.Join(disk, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	after, err := h.ProcessWrites(os.Getpid())
	if err != nil || after.Of != before.Of || after.Bytes-before.Bytes < 1<<20 {
		t.Errorf("%+v, then %+v %v", before, after, err)
	}
}

// TestDiskAt: a device is its disk, and what is none has none. A cgroup that is not there is not.
func TestDiskAt(t *testing.T) {
	h := New(Config{})
	for _, path := range []string{"/dev/null", "/dev/none", "/etc"} {
		if d, err := DiskAt(h, path); !errors.Is(err, ErrNoDisk) {
			t.Errorf("%s: %+v %v", path, d, err)
		}
	}
	if list, _ := filepath.Glob("/dev/loop[0-9]"); len(list) > 0 {
		d, err := DiskAt(h, list[0])
		if err != nil || d.Name != filepath.Base(list[0]) || d.Number == "" {
			t.Errorf("%s: %+v %v", list[0], d, err)
		}
	}
	v2 := machine(t, map[string]string{"sys/fs/cgroup/kubepods/podx/io.stat": "8:0 wbytes=5\n", "sys/fs/cgroup/cgroup.controllers": "io\n"})
	if !CountsWrites(v2) || !HasGroup(v2, "kubepods/podx") || HasGroup(v2, "kubepods/pody") {
		t.Error("version 2 does not count, or takes one group for another")
	}
	if n, err := v2.GroupWrites("kubepods/podx", Disk{Number: "8:0"}); err != nil || n.Bytes != 5 {
		t.Errorf("%+v %v", n, err)
	}
	if v1 := machine(t, map[string]string{"sys/fs/cgroup/blkio/tasks": ""}); CountsWrites(v1) {
		t.Error("version 1 counts what goes through the cache")
	}
}
