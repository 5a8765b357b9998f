package host

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listener is a socket on which a process of this machine waits for others.
type Listener struct {
	Protocol string // "TCP", "UDP"
	At       netip.AddrPort
}

// mostListeners bounds how many lines of each of the kernel's tables are read.
const mostListeners = 10_000

// States of sockets in those tables.
const (
	tcpListens  = "0A"
	udpAnyPeers = "07"
)

// Listeners are the sockets of this network namespace that wait for others.
func Listeners(h *Host) ([]Listener, error) {
	var out []Listener
	for _, t := range []struct{ file, protocol, state string }{
		{"tcp", "TCP", tcpListens}, {"tcp6", "TCP", tcpListens}, {"udp", "UDP", udpAnyPeers}, {"udp6", "UDP", udpAnyPeers}} {
		f, err := os.Open(filepath.Join(h.cfg.Proc, "net", t.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		// In the tables of TCP those that listen stand first.
		some, err := readListeners(f, t.state, t.protocol == "TCP")
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		for _, at := range some {
			out = append(out, Listener{t.protocol, at})
		}
	}
	return out, nil
}

func readListeners(r io.Reader, state string, first bool) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	lines := bufio.NewScanner(r)
	lines.Scan() // the names of the columns
	for n := 0; n < mostListeners && lines.Scan(); n++ {
		columns := strings.Fields(lines.Text()) // number, address, peer, state
		if len(columns) < 4 {
			return nil, fmt.Errorf("the line %q has too few columns", lines.Text())
		}
		if columns[3] != state {
			if first {
				break
			}
			continue
		}
		at, err := kernelAddress(columns[1])
		if err != nil {
			return nil, err
		}
		out = append(out, at)
	}
	return out, lines.Err()
}

// kernelAddress reads an address as the kernel prints it: words of four bytes in the machine's order, and the port.
func kernelAddress(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	n, perr := strconv.ParseUint(port, 16, 16)
	if err = errors.Join(err, perr); err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, errors.Join(fmt.Errorf("%q is no address of a socket", text), err)
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
}
