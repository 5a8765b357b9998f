package rough

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openExecutables tries for ever to get hold of the programs of others for writing, as CVE-2019-5736 did, and says so
// when it has.
func openExecutables() {
	say("ready")
	for {
		exes, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, exe := range exes {
			name, _ := os.Readlink(exe)
			if name == os.Args[0] {
				continue
			}
			if f, err := os.OpenFile(exe, os.O_WRONLY, 0); err == nil {
				say("opened", name)
				_ = f.Close()
			}
			// Held open, and opened again when the program has ended and is not busy any more.
			f, err := os.Open(exe)
			if err != nil {
				continue
			}
			for range 3 {
				if again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY, 0); err == nil {
					say("opened", name)
					_ = again.Close()
				}
				time.Sleep(time.Millisecond)
			}
			_ = f.Close()
		}
	}
}

// swap exchanges two names for ever.
func swap(a, b string) {
	say("ready")
	for {
		check(unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
	}
}

// device makes nodes of the first memory disk, or whatever has that number, and of the board's console, and tries to open them.
func device(path string) {
	for name, node := range map[string][2]uint32{"disk": {unix.S_IFBLK, uint32(unix.Mkdev(1, 0))},
		"console": {unix.S_IFCHR, uint32(unix.Mkdev(5, 1))}} {
		at := path + "-" + name
		err := unix.Mknod(at, node[0]|0o600, int(node[1]))
		say(name, "mknod", word(err))
		f, err := os.OpenFile(at, os.O_RDWR|unix.O_NOCTTY, 0)
		if err == nil || errors.Is(err, unix.ENXIO) {
			say(name, "open allowed")
			_ = f.Close()
			continue
		}
		say(name, "open", word(err))
	}
}

// openNodes tries to open device nodes. One that is given as PATH=MAJOR:MINOR is made first.
func openNodes(nodes []string) {
	for _, n := range nodes {
		at, numbers, made := strings.Cut(n, "=")
		if made {
			var major, minor uint32
			_, err := fmt.Sscanf(numbers, "%d:%d", &major, &minor)
			check(err)
			say(at, "mknod", word(unix.Mknod(at, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor)))))
		}
		for flag, name := range map[int]string{os.O_RDONLY: "read", os.O_RDWR: "write"} {
			f, err := os.OpenFile(at, flag|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
			say(at, name, word(err))
			_ = f.Close()
		}
	}
}

// still stops whoever else is seen, and comes later, again and again.
func still() {
	say("ready")
	for {
		_ = syscall.Kill(-1, syscall.SIGSTOP) // ESRCH when alone
	}
}
