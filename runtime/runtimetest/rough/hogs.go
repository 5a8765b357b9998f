package rough

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
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

// leak takes mib more of memory each second, and does not make up for the time that it is held up. A deaf one goes on when
// it is asked to stop.
func leak(mib int, deaf bool) {
	if deaf {
		signal.Ignore(syscall.SIGTERM)
	}
	say("ready")
	const step = 20 * time.Millisecond
	var hold [][]byte
	for range time.NewTicker(step).C {
		b := make([]byte, int64(mib)<<20*int64(step)/int64(time.Second))
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		hold = append(hold, b)
		runtime.KeepAlive(hold)
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

// reread writes a file of so many MiB and reads it again and again.
func reread(path string, mib int) {
	block := make([]byte, 1<<20)
	f, err := os.Create(path)
	check(err)
	for range mib {
		_, err := f.Write(block)
		check(err)
	}
	for n := 1; ; n++ {
		_, err := f.Seek(0, io.SeekStart)
		check(err)
		for err == nil {
			_, err = f.Read(block)
		}
		say("read", n)
	}
}
