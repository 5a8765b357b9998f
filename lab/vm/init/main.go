// Command init is the first process of the appliance guest: it loads the modules of the initramfs, which a board's own
// kernel would have, and becomes ledge, which so is process 1. Asked to, it leaves a child behind that watches the node.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "watch" {
		switch what, end, _ := strings.Cut(os.Args[2], ","); what {
		case "card":
			watchCard()
		case "upgrades":
			watchUpgrades()
		default:
			watch(end)
		}
		return
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
	if what := os.Getenv("watch"); what != "" { // the kernel makes variables of words it does not know
		if _, err := os.StartProcess("/init", []string{"/init", "watch", what},
			&os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}}); err != nil {
			fmt.Println("init: watch:", err)
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
