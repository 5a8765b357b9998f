package rough

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// fill takes every byte, or every inode, of a disk, and takes again what others give back.
func fill(dir, what string) {
	block := make([]byte, 64<<10)
	if what == "inodes" {
		block = nil
	}
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint("fill", i)))
		for err == nil && block != nil {
			_, err = f.Write(block)
		}
		if f != nil {
			_ = f.Close()
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// bomb starts children that do the same, again and again.
func bomb() {
	for {
		if cmd := self("bomb"); cmd.Start() == nil {
			go func() { _ = cmd.Wait() }()
		}
		for end := time.Now().Add(10 * time.Millisecond); time.Now().Before(end); { // no sleep: others shall have to wait for it
		}
	}
}

// crowd has as many children that do nothing as there can be, and takes again the place of each that ends. It must not need
// a thread when there is none left, or Go ends it: some are made before, and the kernel buries the children.
func crowd() {
	signal.Ignore(syscall.SIGCHLD)
	var threads sync.WaitGroup
	for range 16 {
		threads.Go(func() {
			nap := syscall.NsecToTimespec(int64(50 * time.Millisecond))
			_ = syscall.Nanosleep(&nap, nil) // a signal may end it early
		})
	}
	threads.Wait()
	say("ready")
	for {
		if self("ignore").Start() != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
