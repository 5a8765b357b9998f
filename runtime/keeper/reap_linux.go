package keeper

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reaper is the only one in the process that waits for children nobody asked for: processes of containers without
// a PID namespace of their own, which become ours when their parent dies (we are a subreaper). It looks without
// taking (WNOWAIT) and leaves alone what has an owner. While a container starts it takes nothing at all: the
// library then has children whose numbers only it knows.
type reaper struct {
	mu       sync.Mutex // held over looking and reaping, and over forking's begin and end
	starting int
	owned    map[int]bool
	poke     chan struct{}
}

func newReaper() *reaper {
	return &reaper{owned: map[int]bool{}, poke: make(chan struct{}, 1)}
}

// begin announces that children will be made.
func (r *reaper) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting++
}

// end says they have been; pid, if not 0, now belongs to somebody who will wait for it.
func (r *reaper) end(pid int) {
	r.mu.Lock()
	r.starting--
	if pid != 0 {
		r.owned[pid] = true
	}
	r.mu.Unlock()
	r.look()
}

// gone says that an owner has reaped its child.
func (r *reaper) gone(pid int) {
	r.mu.Lock()
	delete(r.owned, pid)
	r.mu.Unlock()
	r.look()
}

func (r *reaper) look() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// run reaps until ctx ends. It must run only in a process whose every other child is known to the reaper.
func (r *reaper) run(ctx context.Context) {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, unix.SIGCHLD)
	defer signal.Stop(sig)
	for {
		r.pass()
		select {
		case <-ctx.Done():
			return
		case <-sig:
		case <-r.poke:
		}
	}
}

// pass reaps every ended child that has no owner. The kernel always shows the same one first, so one with an owner
// ends the pass; its owner calls gone and there is another.
func (r *reaper) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.starting == 0 {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		pid := siginfoPid(&info)
		if err != nil || pid == 0 || r.owned[pid] {
			return
		}
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}

// siginfoPid reads si_pid, which follows three ints and lies on a pointer's boundary.
func siginfoPid(info *unix.Siginfo) int {
	const word = unsafe.Sizeof(uintptr(0))
	off := (3*unsafe.Sizeof(int32(0)) + word - 1) / word * word
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), off)))
}
