package rough

import (
	"runtime"
	"syscall"
	"unsafe"
)

func uintptrOf[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// numbers of calls that package syscall does not name for every architecture: amd64 first, arm64 (generic), arm.
var numbers = map[string][3]uintptr{
	"mount":             {165, 40, 21},
	"umount2":           {166, 39, 52},
	"pivot_root":        {155, 41, 218},
	"open_tree":         {428, 428, 428},
	"fsopen":            {430, 430, 430},
	"keyctl":            {250, 219, 311},
	"add_key":           {248, 217, 309},
	"request_key":       {249, 218, 310},
	"bpf":               {321, 280, 386},
	"perf_event_open":   {298, 241, 364},
	"kexec_load":        {246, 104, 347},
	"init_module":       {175, 105, 128},
	"finit_module":      {313, 273, 379},
	"delete_module":     {176, 106, 129},
	"reboot":            {169, 142, 88},
	"swapon":            {167, 224, 87},
	"swapoff":           {168, 225, 115},
	"unshare":           {272, 97, 337},
	"setns":             {308, 268, 375},
	"open_by_handle_at": {304, 265, 371},
	"clone3":            {435, 435, 435},
	"userfaultfd":       {323, 282, 388},
	"io_uring_setup":    {425, 425, 425},
	"quotactl":          {179, 60, 131},
	"acct":              {163, 89, 51},
	"syslog":            {103, 116, 103},
	"future":            {1000, 1000, 1000},
	"getpid":            {39, 172, 20},
	"ptrace":            {101, 117, 26},
	"personality":       {135, 92, 136},
	"clone":             {56, 220, 120},
	"socket":            {41, 198, 281},
	"ioctl":             {16, 29, 54},
}

// variants are further ways to call some of these. The kernel takes 32 bits of these arguments where a caller may set 64.
var variants = map[string]struct {
	call string
	args [3]uint64
}{
	"socket-wide":     {"socket", [3]uint64{1<<32 | 40, 1, 0}},
	"setproject":      {"ioctl", [3]uint64{1 << 20, 0x401c5820, 0}},
	"setproject-wide": {"ioctl", [3]uint64{1 << 20, 1<<32 | 0x401c5820, 0}},
	"setflags":        {"ioctl", [3]uint64{1 << 20, 0x40086602, 0}},
	"setflags-32":     {"ioctl", [3]uint64{1 << 20, 0x40046602, 0}},
	"getflags":        {"ioctl", [3]uint64{1 << 20, 0x80086601, 0}},
}

// calls tries each system call with arguments that could do no harm even if it were let through: bad pointers and
// descriptors give EFAULT, EBADF or EINVAL where a filter gives EPERM or ENOSYS.
func calls() {
	arch := map[string]int{"amd64": 0, "arm64": 1, "arm": 2}[runtime.GOARCH]
	const bad = ^uintptr(0)
	args := map[string][3]uintptr{
		"reboot":      {0, 0, 0}, // wrong magic: EINVAL
		"unshare":     {syscall.CLONE_NEWUSER, 0, 0},
		"setns":       {bad, 0, 0},
		"umount2":     {1, 0, 0},
		"mount":       {1, 1, 1},
		"keyctl":      {0, bad - 2, 0},    // KEYCTL_GET_KEYRING_ID
		"syslog":      {10, 0, 0},         // SYSLOG_ACTION_SIZE_BUFFER
		"ptrace":      {bad, 0, 0},        // no such request
		"personality": {0xffffffff, 0, 0}, // only a question
		"clone":       {syscall.CLONE_NEWUSER | 0x10000 /* CLONE_THREAD without SIGHAND: EINVAL */, 0, 0},
		"socket":      {40, 1, 0}, // AF_VSOCK
		"future":      {0, 0, 0},
		"getpid":      {0, 0, 0},
		"swapon":      {1, 0, 0},
		"swapoff":     {1, 0, 0},
		"acct":        {1, 0, 0},
		"pivot_root":  {1, 1, 0},
	}
	for name, nr := range numbers {
		a, ok := args[name]
		if !ok {
			a = [3]uintptr{bad, bad, bad}
		}
		try(name, nr[arch], a)
	}
	for name, v := range variants {
		try(name, numbers[v.call][arch], [3]uintptr{uintptr(v.args[0]), uintptr(v.args[1]), uintptr(v.args[2])})
	}
	say("done")
}

func try(name string, nr uintptr, a [3]uintptr) {
	_, _, e := syscall.RawSyscall(nr, a[0], a[1], a[2])
	var err error
	if e != 0 {
		err = e
	}
	say("call", name, word(err))
}
