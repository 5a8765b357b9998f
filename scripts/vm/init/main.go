// Command init is the first process of the appliance guest: it mounts what every Linux program expects, loads the
// modules of the initramfs, and becomes ledge, which so is process 1.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	for _, m := range []struct{ kind, at string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
		{"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			fmt.Printf("init: mount %s: %v\n", m.at, err)
		}
	}
	modules, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		fmt.Println("init:", err)
	}
	for _, m := range modules { // Glob sorts, and the names begin with their turn
		if err := load(m); err != nil {
			fmt.Printf("init: load %s: %v\n", m, err)
		}
	}
	fmt.Println("@@ledge")
	err = unix.Exec("/ledge", append([]string{"/ledge"}, os.Args[1:]...),
		[]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "GOTRACEBACK=all"})
	fmt.Println("init: start ledge:", err)
}

func load(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}
