package keeper

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reaper is the only one in the process that waits for children nobody asked for: processes of containers without
// a PID namespace of their own, which become ours when their parent dies (we are a subreaper), and those of a start that was
// killed on its way. It looks without taking (WNOWAIT) and leaves alone what has an owner. While a container starts, the library has
// children whose numbers only it knows, for which it waits at once: then the reaper takes only what nobody has waited for in a while.
type reaper struct {
	mu       sync.Mutex // held over looking and reaping, and over forking's begin and end
	starting int
	owned    map[int]bool
	left     map[zombie]time.Time // since when nobody has waited for it, while something starts
	looked   time.Time            // at all of them
	poke     chan struct{}
}

// zombie is a child that has ended.
type zombie struct {
	pid     int
	started string // its number may have been another one's
}

const (
	leftFor   = 5 * time.Second // after which nobody will wait for a zombie any more
	lookAgain = time.Second
)

func newReaper() *reaper {
	return &reaper{owned: map[int]bool{}, left: map[zombie]time.Time{}, poke: make(chan struct{}, 1)}
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
		var later <-chan time.Time
		if r.pass(time.Now()) {
			later = time.After(lookAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-sig:
		case <-r.poke:
		case <-later:
		}
	}
}

// pass reaps every ended child that has no owner. The kernel always shows the same one first, so one with an owner
// ends the pass; its owner calls gone and there is another. again: something starts, and there is a child to be looked at later.
func (r *reaper) pass(now time.Time) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		pid := siginfoPid(&info)
		switch {
		case err != nil || pid == 0:
			clear(r.left)
			return false
		case r.starting > 0:
			r.passBy(now)
			return true
		case r.owned[pid]:
			return false
		}
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}

// passBy is pass while something starts, which may take for ever. The caller holds mu.
func (r *reaper) passBy(now time.Time) {
	if now.Sub(r.looked) < lookAgain {
		return // it reads all of /proc
	}
	r.looked = now
	was := r.left
	r.left = map[zombie]time.Time{}
	for _, z := range zombies() {
		since, known := was[z]
		switch {
		case r.owned[z.pid]:
		case known && now.Sub(since) >= leftFor:
			_, _ = unix.Wait4(z.pid, nil, unix.WNOHANG, nil)
		case known:
			r.left[z] = since
		default:
			r.left[z] = now
		}
	}
}

// zombies are the children of this process that have ended.
func zombies() (out []zombie) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // those that it could read
	parent := strconv.Itoa(os.Getpid())
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if f := statFields(stat); len(f) >= 20 && f[0] == "Z" && f[1] == parent {
			out = append(out, zombie{pid, f[19]})
		}
	}
	return out
}

// siginfoPid reads si_pid, which follows three ints and lies on a pointer's boundary.
func siginfoPid(info *unix.Siginfo) int {
	const word = unsafe.Sizeof(uintptr(0))
	off := (3*unsafe.Sizeof(int32(0)) + word - 1) / word * word
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), off)))
}
