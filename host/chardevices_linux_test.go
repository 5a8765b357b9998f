package host

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCharDevices reads a made-up board: two nodes with numbers of this machine's, and a /sys that says what they are.
func TestCharDevices(t *testing.T) {
	dir := t.TempDir()
	c := CharDevices{Dev: filepath.Join(dir, "dev"), Sys: filepath.Join(dir, "sys"), Proc: filepath.Join(dir, "proc")}
	put, link, node := makers(t, dir)
	node("dev/ttyUSB1", 188, 1)
	node("dev/ttyS0", 4, 64)
	node("dev/ttyS1", 4, 65)
	node("dev/other", 10, 1)
	put("dev/file", "")
	link("dev/serial/by-id/usb-x", "../../ttyUSB1")
	link("dev/serial/by-id/out", "/etc/passwd")
	const usb = "sys/devices/usb1/1-1/1-1.2"
	put(usb+"/idVendor", "10c4\n")
	put(usb+"/idProduct", "ea60\n")
	put(usb+"/serial", "A/1 \n"+strings.Repeat("x", 100))
	link(usb+"/subsystem", "/x/bus/usb")
	link(usb+"/1-1.2:1.0/subsystem", "/x/bus/usb")
	put(usb+"/1-1.2:1.0/ttyUSB1/port_number", "1\n")
	link(usb+"/1-1.2:1.0/ttyUSB1/tty/ttyUSB1/subsystem", "/x/class/tty")
	link(usb+"/1-1.2:1.0/ttyUSB1/tty/ttyUSB1/device", "../..")
	link("sys/dev/char/188:1", "../../devices/usb1/1-1/1-1.2/1-1.2:1.0/ttyUSB1/tty/ttyUSB1")
	for name, kind := range map[string]string{"4:64": "4", "4:65": "0"} {
		put("sys/devices/serial/"+name+"/type", kind+"\n")
		link("sys/devices/serial/"+name+"/subsystem", "/x/class/tty")
		link("sys/dev/char/"+name, "../../devices/serial/"+name)
	}
	put("sys/class/tty/console/active", "tty0\n")
	put("proc/cmdline", "quiet console=ttyS0,115200\n")
	wants := func(path string) bool {
		return strings.HasPrefix(path, "/dev/ttyS") || strings.HasPrefix(path, "/dev/serial/")
	}
	list, err := c.Look(wants)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	if d := list[0]; d.Path != "/dev/ttyS0" || !d.Console || d.Bare || d.Major != 4 || d.Minor != 64 || d.Subsystem != "tty" {
		t.Errorf("%+v", d)
	}
	if d := list[1]; d.Console || !d.Bare {
		t.Errorf("%+v", d)
	}
	serial := "A_1__" + strings.Repeat("x", 59)
	if d := list[2]; d.Path != "/dev/ttyUSB1" || len(d.Links) != 1 || d.Links[0] != "/dev/serial/by-id/usb-x" || d.USB != "10c4:ea60" ||
		d.Port != "1-1.2" || d.Part != "1.0.1" || d.Serial != serial {
		t.Errorf("%+v", d)
	}
	if err := os.Remove(filepath.Join(dir, "dev/ttyUSB1")); err != nil {
		t.Fatal(err)
	}
	born := list[2].Born
	if list, err = c.Look(wants); err != nil || len(list) != 2 {
		t.Errorf("%+v %v", list, err)
	}
	node("dev/blocker", 10, 1) // so that the number of the node is not used again
	node("dev/ttyUSB1", 188, 1)
	if list, err = c.Look(wants); err != nil || len(list) != 3 || list[2].Born == born {
		t.Errorf("%+v %v", list, err)
	}
}

// makers make files, links and nodes below a directory.
func makers(t *testing.T, dir string) (put, link func(name, text string), node func(name string, major, minor uint32)) {
	put = func(name, text string) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link = func(name, to string) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	node = func(name string, major, minor uint32) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mknod(at, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
			t.Skipf("no nodes can be made here: %v", err)
		}
	}
	return put, link, node
}

func TestPlugs(t *testing.T) {
	for event, want := range map[string]bool{
		"add@/devices/x\x00ACTION=add\x00SUBSYSTEM=tty\x00DEVNAME=ttyUSB0\x00": true,
		"remove@/devices/x\x00ACTION=remove\x00DEVNAME=ttyUSB0\x00":            true,
		"change@/devices/x\x00SUBSYSTEM=mem\x00DEVNAME=null\x00":               true,
		"add@/devices/x\x00ACTION=add\x00SUBSYSTEM=block\x00DEVNAME=sda\x00":   false,
		"add@/module/x\x00ACTION=add\x00":                                      false,
		"change@/devices/x\x00SUBSYSTEM=thermal\x00":                           false,
		"": false,
	} {
		if plugs(event) != want {
			t.Errorf("%q: %v", event, !want)
		}
	}
}

// TestWaitForPlugs: the wait ends with its time, with its context, and with an event that the kernel is asked to send.
func TestWaitForPlugs(t *testing.T) {
	var c CharDevices
	c.Wait(t.Context(), time.Millisecond)
	if c.failed {
		t.Skip("nobody tells of devices here")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	began := time.Now()
	c.Wait(ctx, time.Minute)
	if time.Since(began) > 30*time.Second {
		t.Error("the wait outlived its context")
	}
	c.Drain()
	began = time.Now()
	if err := os.WriteFile("/sys/class/mem/null/uevent", []byte("change"), 0); err != nil {
		t.Skipf("the kernel cannot be asked for an event: %v", err)
	}
	c.Wait(t.Context(), time.Minute)
	if time.Since(began) > 30*time.Second {
		t.Error("an event was not heard")
	}
}
