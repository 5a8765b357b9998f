package host

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// TestHoldersOfUDP: who has a port is found by the name of its process; this process is not told of itself.
func TestHoldersOfUDP(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"
	h := machine(t, map[string]string{
		"proc/net/udp": head + " 100: 00000000:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000   108        0 4711 2 0 0\n" +
			" 101: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   108        0 4712 2 0 0\nshort\n",
		"proc/net/udp6": head + " 102: 00000000000000000000000000000000:14E9 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 " +
			"00000000   108        0 4713 2 0 0\n",
		"proc/7/comm": "avahi-daemon\n", "proc/8/comm": "named\n", "proc/9/comm": "kiosk\n", "proc/10/comm": "ledge\n",
	})
	for process, inode := range map[string]int{"7": 4711, "8": 4712, "9": 4713, "10": 4711} {
		dir := filepath.Join(h.cfg.Proc, process, "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "3")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("10", filepath.Join(h.cfg.Proc, "self")); err != nil {
		t.Fatal(err)
	}
	if got := HoldersOfUDP(h, 5353); !slices.Equal(got, []string{"avahi-daemon", "kiosk"}) {
		t.Errorf("%q", got)
	}
	if got := HoldersOfUDP(h, 5354); got != nil {
		t.Errorf("%q", got)
	}
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	n, _ := strconv.ParseUint(port, 10, 16)
	if got := HoldersOfUDP(New(Config{}), uint16(n)); got != nil {
		t.Errorf("this process: %q", got)
	}
}
