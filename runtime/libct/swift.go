package libct

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
)

const (
	// swiftFor is how long the lock stays quick after what comes before a move: a pod's network takes less.
	swiftFor = 40 * time.Millisecond
	// swiftEvery is below the kernel's shortest grace period at 250 ticks a second.
	swiftEvery = 4 * time.Millisecond
)

// swift spares a container's start the wait for a lock of the kernel. Who moves a process to a cgroup waits until each CPU has been seen
// at rest (cgroup_threadgroup_rwsem, some 10 ms), but not who comes soon after another one. So while a pod is made ready, this process is
// moved again and again to where it is already: then its wait goes by beside that work. Where cgroup v2 is mounted with favordynmods
// nobody waits, and a move of this kind takes some microseconds.
type swift struct {
	mu    sync.Mutex
	until time.Time // when the moves end; zero while there are none
}

// begin has the moves go on for swiftFor from now on. procs finds the cgroup.procs of this process; it is asked where none go on yet.
func (s *swift) begin(procs func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until.IsZero() {
		go s.move(procs)
	}
	s.until = time.Now().Add(swiftFor)
}

func (s *swift) move(procs func() string) {
	f, err := os.OpenFile(procs(), os.O_WRONLY, 0)
	for ; s.goesOn(err); time.Sleep(swiftEvery) {
		_, err = f.WriteString("0")
	}
	f.Close()
}

// goesOn is false after an error: the start is as slow as it would be without.
func (s *swift) goesOn(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && time.Now().Before(s.until) {
		return true
	}
	s.until = time.Time{}
	return false
}

// ownProcs is the cgroup.procs of this process in a hierarchy that is always there; the lock is the same for all.
func (t *tree) ownProcs() string {
	hierarchy := "devices"
	if t.unified {
		hierarchy = ""
	}
	m, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return filepath.Join(cgroupMount, hierarchy, m[hierarchy], "cgroup.procs")
}
