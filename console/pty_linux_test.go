package console

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pty is a serial line and the other end of it.
func pty(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { ours.Close() })
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ctlErr := raw.Control(func(fd uintptr) {
		if n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err == nil {
			err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		}
	})
	if err != nil || ctlErr != nil {
		t.Fatal(err, ctlErr)
	}
	if theirs, err = openLine(fmt.Sprintf("/dev/pts/%d", n)); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}
