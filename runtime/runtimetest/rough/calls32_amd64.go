package rough

import "syscall"

// int80 makes a call as 32-bit x86 programs do. A kernel without them ends whoever tries.
func int80(nr, a, b, c uint32) int32

// calls32 makes calls by the numbers of 32-bit x86. Addresses are bad: EFAULT where no filter answers.
func calls32() {
	const bad = ^uint32(0)
	for _, call := range []struct {
		name        string
		nr, a, b, c uint32
	}{
		{"getpid", 20, 0, 0, 0},
		{"socketcall", 102, 1 /* SYS_SOCKET */, bad, 0},
		{"socketcall-bind", 102, 2 /* SYS_BIND */, bad, 0},
		{"socket-unix", 359, syscall.AF_UNIX, syscall.SOCK_STREAM, 0},
		{"socket", 359, 40 /* AF_VSOCK */, 1, 0},
		{"mount", 21, bad, bad, bad},
		{"vm86", 166, bad, bad, 0},
		{"future", 1000, 0, 0, 0},
	} {
		var err error
		if r := int80(call.nr, call.a, call.b, call.c); r < 0 {
			err = syscall.Errno(-r)
		}
		say("call32", call.name, word(err))
	}
	say("done")
}
