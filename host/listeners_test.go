package host

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestListeners: sockets of this process that wait for others are found, each as what it is, and one that talks to somebody is not.
func TestListeners(t *testing.T) {
	want := map[Listener]bool{}
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil && strings.HasPrefix(at, "[") {
			continue // no IPv6 here
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		p, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ip := netip.MustParseAddrPort(at).Addr()
		want[Listener{"TCP", netip.AddrPortFrom(ip, uint16(l.Addr().(*net.TCPAddr).Port))}] = true
		want[Listener{"UDP", netip.AddrPortFrom(ip, uint16(p.LocalAddr().(*net.UDPAddr).Port))}] = true
	}
	talks, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer talks.Close()
	got, err := Listeners(New(Config{}))
	if err != nil {
		t.Fatal(err)
	}
	for l := range want {
		// One of 0.0.0.0 may be shown as ::, which takes both families.
		either := Listener{l.Protocol, netip.AddrPortFrom(netip.IPv6Unspecified(), l.At.Port())}
		if !slices.Contains(got, l) && (!l.At.Addr().IsUnspecified() || !slices.Contains(got, either)) {
			t.Errorf("%v is not among %v", l, got)
		}
	}
	if slices.ContainsFunc(got, func(l Listener) bool {
		return l.Protocol == "UDP" && l.At.Port() == uint16(talks.LocalAddr().(*net.UDPAddr).Port)
	}) {
		t.Error("a socket that talks to somebody waits for others")
	}
}

// TestOddListeners: tables that are missing, long or not what they should be.
func TestOddListeners(t *testing.T) {
	proc := t.TempDir()
	h := New(Config{Proc: proc})
	if got, err := Listeners(h); len(got) != 0 || err != nil {
		t.Errorf("no tables: %v, %v", got, err)
	}
	if err := os.Mkdir(filepath.Join(proc, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name string, lines ...string) {
		text := "  sl  local_address rem_address   st tx_queue rx_queue\n" + strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(proc, "net", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	local := fmt.Sprintf("%08X", binary.NativeEndian.Uint32([]byte{127, 0, 0, 1}))
	row := func(address, state string) string {
		return "   0: " + address + " 00000000:0000 " + state + " 00000000:00000000"
	}
	var many []string
	for i := range mostListeners + 100 {
		many = append(many, row(fmt.Sprintf("%s:%04X", local, i+1), tcpListens))
	}
	write("tcp", many...)
	got, err := Listeners(h)
	if err != nil || len(got) != mostListeners || got[0] != (Listener{"TCP", netip.MustParseAddrPort("127.0.0.1:1")}) {
		t.Errorf("%d of many: %v, %v", len(got), got[:min(1, len(got))], err)
	}
	write("tcp", row(local+":0050", tcpListens), row(local+":0051", "01"), row(local+":0052", tcpListens))
	if got, err := Listeners(h); err != nil || len(got) != 1 || got[0].At.Port() != 80 {
		t.Errorf("behind those that listen: %v, %v", got, err)
	}
	for _, bad := range []string{"x", row("7F000001", tcpListens), row("7F0001:0050", tcpListens), row("ZZ000001:0050", tcpListens),
		row(local+":10000", tcpListens), strings.Repeat("x", 100_000)} {
		write("tcp", bad)
		if got, err := Listeners(h); err == nil {
			t.Errorf("%.40q: %v", bad, got)
		}
	}
}
