package podstate

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ParseSignal reads a stop signal as images give it: "SIGTERM", "TERM", "15", "SIGRTMIN+3".
func ParseSignal(s string) (syscall.Signal, bool) {
	s = strings.ToUpper(strings.TrimSpace(s))
	if s == "" {
		return 0, false
	}
	if n, err := strconv.Atoi(s); err == nil {
		return syscall.Signal(n), n > 0 && n <= 64
	}
	if !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	// Real-time signals have no names in the kernel's table; libc's numbering begins at 34.
	if rest, ok := strings.CutPrefix(s, "SIGRTMIN"); ok {
		n, err := strconv.Atoi(strings.TrimPrefix(rest, "+"))
		if rest == "" {
			n, err = 0, nil
		}
		return syscall.Signal(34 + n), err == nil && n >= 0 && n <= 30
	}
	sig := unix.SignalNum(s)
	return sig, sig != 0
}
