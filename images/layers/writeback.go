package layers

import "golang.org/x/sys/unix"

// writeback sends files to the disk as they are done, beside the unpacking, and closes them. Without it the kernel gives
// all of them their blocks at the end, when the inodes are in the journal already, and writes every inode twice more. That
// what is sent arrives is for the syncfs at the end of a pull to say: here an error of the disk means nothing.
type writeback struct {
	next  handful
	full  chan handful
	ended chan error
}

// handful is some open files. They change hands together: waking the other goroutine for each would cost as much as
// making a small file.
type handful struct {
	n  int
	fd [16]int
}

func newWriteback() *writeback {
	w := &writeback{full: make(chan handful, 2), ended: make(chan error, 1)}
	go func() {
		var first error
		for h := range w.full {
			for _, fd := range h.fd[:h.n] {
				_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
				if err := unix.Close(fd); err != nil && first == nil {
					first = err
				}
			}
		}
		w.ended <- first
	}()
	return w
}

// take has a file sent and closed.
func (w *writeback) take(fd int) {
	w.next.fd[w.next.n] = fd
	if w.next.n++; w.next.n == len(w.next.fd) {
		w.full <- w.next
		w.next.n = 0
	}
}

// wait ends it. The error is that of closing a file.
func (w *writeback) wait() error {
	w.full <- w.next
	close(w.full)
	return <-w.ended
}
