package layers

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeback sends files to the disk as they are done, beside the unpacking, and closes them. Without it the kernel gives
// all of them their blocks at the end, when the inodes are in the journal already, and writes every inode twice more. That
// what is sent arrives is for the syncfs at the end of a pull to say: here an error of the disk means nothing.
type writeback struct {
	files chan *os.File
	ended chan error
}

// waiting bounds the files that are open at a time.
const waiting = 32

func newWriteback() *writeback {
	w := &writeback{files: make(chan *os.File, waiting), ended: make(chan error, 1)}
	go func() {
		var first error
		for f := range w.files {
			_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
			if err := f.Close(); err != nil && first == nil {
				first = err
			}
		}
		w.ended <- first
	}()
	return w
}

// take has a file sent and closed.
func (w *writeback) take(f *os.File) { w.files <- f }

// wait ends it. The error is that of closing a file.
func (w *writeback) wait() error {
	close(w.files)
	return <-w.ended
}
