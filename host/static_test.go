package host

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/network/netns"
)

// TestSetAddress: an interface gets its address and the way out, as often as it is asked for, and again after it was down.
func TestSetAddress(t *testing.T) { inOwnNetwork(t, testSetAddress) }

// inOwnNetwork runs a test on a thread of its own with a network of its own, which ends with it.
func inOwnNetwork(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	err := netns.InNew(func() error {
		test(t)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func testSetAddress(t *testing.T) {
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wired0"}, PeerName: "wired1"}); err != nil {
		t.Error(err)
		return
	}
	peer, err := netlink.LinkByName("wired1")
	if err != nil || netlink.LinkSetUp(peer) != nil {
		t.Error(err)
		return
	}
	for _, a := range []StaticAddress{
		{"wired0", netip.MustParsePrefix("192.0.2.20/24"), netip.MustParseAddr("192.0.2.1")},
		{"wired0", netip.MustParsePrefix("2001:db8::20/64"), netip.MustParseAddr("2001:db8::1")},
		{"wired0", netip.MustParsePrefix("198.51.100.7/31"), netip.Addr{}},
	} {
		for round := range 3 {
			if on, err := setAddress(a); err != nil || on != "wired0" {
				t.Errorf("%+v, %d: %s, %v", a, round, on, err)
			}
			link, err := netlink.LinkByName("wired0")
			if err != nil {
				t.Error(err)
				return
			}
			family := netlink.FAMILY_V4
			if a.Address.Addr().Is6() {
				family = netlink.FAMILY_V6
			}
			addrs, aerr := netlink.AddrList(link, family)
			found := 0
			for _, have := range addrs {
				if have.IPNet.String() == a.Address.String() {
					found++
				}
			}
			routes, rerr := netlink.RouteList(link, family)
			out := 0
			for _, r := range routes {
				if a.Gateway.IsValid() && r.Gw.Equal(net.IP(a.Gateway.AsSlice())) {
					out++
				}
			}
			if aerr != nil || rerr != nil || found != 1 || a.Gateway.IsValid() != (out == 1) || link.Attrs().Flags&net.FlagUp == 0 {
				t.Errorf("%+v, %d: %v, %v, flags %v", a, round, addrs, routes, link.Attrs().Flags)
			}
			if round == 1 {
				if err := netlink.LinkSetDown(link); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if _, err := setAddress(StaticAddress{Interface: "none0", Address: netip.MustParsePrefix("192.0.2.20/24")}); err == nil {
		t.Error("an interface that is not there has an address")
	}
}

// TestFirstWired: neither a bridge nor a radio.
func TestFirstWired(t *testing.T) {
	sys := t.TempDir()
	if _, err := FirstWired(sys); err == nil {
		t.Error("there is none")
	}
	for _, dir := range []string{"br0", "lo", "eth1/device", "eth0/device", "aradio/device", "aradio/wireless"} {
		if err := os.MkdirAll(filepath.Join(sys, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if name, err := FirstWired(sys); err != nil || name != "eth0" {
		t.Error(name, err)
	}
}

// TestTellOnCard: a partition is written only when there is something to change, and is read-only afterwards.
func TestTellOnCard(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	for _, text := range []string{"", "a", "a", "b", "", "c"} {
		var data []byte
		if text != "" {
			data = []byte(text)
		}
		if err := TellOnCard(dir, "x", data); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if have, err := os.ReadFile(filepath.Join(dir, "x")); string(have) != text || text == "" && !os.IsNotExist(err) {
			t.Errorf("%q: %q, %v", text, have, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "y"), nil, 0o644); err == nil {
			t.Errorf("%q: it stays writable", text)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil || st.Flags&flags != flags {
			t.Errorf("%q: flags %#x, %v", text, st.Flags, err)
		}
	}
}

// TestChangeOnCard: whenever the power goes, a file of people's is the old or the new one, whole.
func TestChangeOnCard(t *testing.T) {
	const before, after = "hostname: a\n", "hostname: b # and more\n"
	for step := range 8 {
		dir := t.TempDir()
		file, beside := filepath.Join(dir, "ledge.yaml"), filepath.Join(dir, copyName("ledge.yaml", []byte(after)))
		put := func(path, text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		put(file, before)
		want := after
		switch step { // what the card holds when the power goes
		case 0:
			want = before
		case 1: // the copy is torn
			put(beside, after[:9])
			want = before
		case 2: // the change has not begun: it is made at the next boot
			put(beside, after)
			want = before
		case 6: // somebody has written another one since
			put(beside, after)
			put(file, "hostname: c and much more than there was\n")
			want = "hostname: c and much more than there was\n"
		case 7: // its size came to the card, and its bytes did not
			put(beside, after)
			put(file, strings.Repeat("\x00", len(after)))
		case 3: // the file is torn
			put(beside, after)
			put(file, "")
		case 4:
			put(beside, after)
			put(file, after)
		case 5:
			if err := ChangeOnCard(dir, "ledge.yaml", []byte(after)); err != nil {
				t.Fatal(err)
			}
		}
		if err := FinishOnCard(dir, 1<<10); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		left, _ := os.ReadDir(dir)
		if err != nil || string(got) != want || len(left) != 1 {
			t.Errorf("step %d: %q, %v, %d files", step, got, err, len(left))
		}
	}
}
