package host

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// HoldersOfUDP are the programs that have a socket at a UDP port of this network namespace, this process apart. What cannot be read is
// left out.
func HoldersOfUDP(h *Host, port uint16) (names []string) {
	sockets := map[string]bool{} // as links of a process name them
	for _, table := range []string{"udp", "udp6"} {
		f, err := os.Open(filepath.Join(h.cfg.Proc, "net", table))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		for n := 0; n < mostListeners && lines.Scan(); n++ {
			columns := strings.Fields(lines.Text()) // number, address, peer, state, ..., and the inode as the tenth
			if len(columns) < 10 {
				continue
			}
			if at, err := kernelAddress(columns[1]); err == nil && at.Port() == port {
				sockets["socket:["+columns[9]+"]"] = true
			}
		}
		_ = f.Close()
	}
	if len(sockets) == 0 {
		return nil
	}
	own, _ := os.Readlink(filepath.Join(h.cfg.Proc, "self"))
	links, _ := filepath.Glob(filepath.Join(h.cfg.Proc, "[0-9]*", "fd", "*"))
	for _, link := range links {
		process := filepath.Dir(filepath.Dir(link))
		if to, err := os.Readlink(link); err != nil || !sockets[to] || filepath.Base(process) == own {
			continue
		}
		if name := h.line(process, "comm"); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
