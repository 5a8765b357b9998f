package host

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// GiveBack takes the unchanged pages of this process's own binary out of its memory: mostly code and tables that a
// start needed and nothing needs again. They stay in the page cache for as long as the kernel has room, and what is
// touched again comes back by itself, a few microseconds for each 64 KiB. It returns how many bytes were mapped.
//
// The kernel counts such pages to the process, and takes them last when memory is short, because they are mapped.
func GiveBack() (int64, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0, fmt.Errorf("give memory back: %w", err)
	}
	return giveBack(exe)
}

// giveBack does that for the mappings of one file. Nobody may unmap it meanwhile, or pages that another thread maps
// in its place are lost. The binary is never unmapped; a store may be.
func giveBack(file string) (int64, error) {
	file = strings.TrimSuffix(file, gone)
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, fmt.Errorf("give memory back: %w", err)
	}
	defer f.Close()
	var m mapping
	var sum int64
	for s := bufio.NewScanner(f); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		switch key {
		case "Rss":
			m.rss = kilobytes(value)
		case "Anonymous":
			m.anonymous = kilobytes(value)
		case "VmFlags": // the last line of a mapping
			if m.path != file || !m.droppable() {
				continue
			}
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
				return sum, fmt.Errorf("give memory back: madvise %s: %w", m.path, errno)
			}
			sum += m.rss
		default:
			if next, ok := parseMapping(s.Text()); ok {
				m = next
			}
		}
	}
	return sum, nil
}

// gone is what the kernel appends to the name of a file that was removed or replaced.
const gone = " (deleted)"

// mapping is one range of addresses.
type mapping struct {
	from, to       uintptr
	perms, path    string
	rss, anonymous int64
}

// parseMapping reads the first line of an entry of smaps.
func parseMapping(line string) (m mapping, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 {
		return m, false
	}
	n, err := fmt.Sscanf(f[0], "%x-%x", &m.from, &m.to)
	m.perms, m.path = f[1], strings.TrimSuffix(strings.Join(f[5:], " "), gone)
	return m, n == 2 && err == nil
}

// droppable tells whether every page of m can be had again from its file. A private page is a changed one: the
// relocated data of the binary is read-only by now, but the file has other bytes; so has code with a debugger's traps.
func (m mapping) droppable() bool {
	return strings.HasPrefix(m.path, "/") && strings.HasPrefix(m.perms, "r-") && m.anonymous == 0 && m.rss > 0
}

func kilobytes(text string) int64 {
	var n int64
	if _, err := fmt.Sscanf(text, "%d kB", &n); err != nil {
		return 0
	}
	return n << 10
}
