package rough

import (
	"fmt"
	"os"
	"path/filepath"
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
