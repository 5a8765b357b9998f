package libct

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

const (
	cgroupMount = "/sys/fs/cgroup"
	leafName    = "keeper"   // the keeper's own cgroup: on v2 inner cgroups may hold no process
	podsName    = "kubepods" // what every Pod.Cgroup begins with
)

// tree is the cgroups of this machine, and where those of the pods stand.
type tree struct {
	unified bool            // cgroup v2
	root    string          // absolute below the mount point
	lacks   map[string]bool // of limiting; Enter's finding, and before it nothing

	swift swift

	mu     sync.Mutex
	mounts map[string]string // of the hierarchies of cgroup v1, by controller; nil until one has been used
}

// hasController asks whether a controller can be used at all; v2 only.
func (t *tree) hasController(name string) bool {
	b, err := os.ReadFile(filepath.Join(cgroupMount, t.root, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(b)), name)
}

// swapController asks whether swap can be limited (N-8.8). On v2 the file stands in every cgroup but the topmost.
func (t *tree) swapController() bool {
	if t.unified {
		files, _ := filepath.Glob(filepath.Join(cgroupMount, "*", "memory.swap.max"))
		return len(files) > 0
	}
	_, err := os.Stat(filepath.Join(cgroupMount, "memory", "memory.memsw.limit_in_bytes"))
	return err == nil
}

func (t *tree) podCgroup(p runtime.Pod) string { return path.Join(t.root, p.Cgroup) }

func (t *tree) containerCgroup(p runtime.Pod, id string) string {
	return path.Join(t.root, p.Cgroup, id)
}

// open gives the manager of a cgroup, which need not exist.
func (t *tree) open(cg string, res *cgroups.Resources) (cgroups.Manager, error) {
	if res == nil {
		res = &cgroups.Resources{}
	}
	res.SkipDevices = true
	m, err := manager.NewWithPaths(&cgroups.Cgroup{Path: cg, Resources: res}, t.pathsOf(cg))
	if err == nil && !t.unified {
		t.learnMounts(cg, m.GetPaths())
	}
	return m, err
}

// pathsOf is where a cgroup stands in each hierarchy of v1, once that is known: a pod that ends is asked for half a dozen times,
// and to look all hierarchies up anew is most of what that costs.
func (t *tree) pathsOf(cg string) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mounts) == 0 {
		return nil
	}
	paths := make(map[string]string, len(t.mounts))
	for controller, dir := range t.mounts {
		paths[controller] = path.Join(dir, cg)
	}
	return paths
}

// learnMounts keeps where the hierarchies are mounted, which does not change while a machine runs.
func (t *tree) learnMounts(cg string, paths map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mounts != nil {
		return
	}
	mounts := map[string]string{}
	for controller, p := range paths {
		dir, ok := strings.CutSuffix(p, cg)
		if !ok {
			return
		}
		mounts[controller] = dir
	}
	t.mounts = mounts
}

// makePodCgroup makes the pod's cgroup and sets what its containers share (N-7.42, N-7.46).
func (r *Runner) makePodCgroup(p runtime.Pod) error {
	res, err := r.tree.resources(p.Resources)
	if err != nil {
		return err
	}
	m, err := r.tree.open(r.tree.podCgroup(p), res)
	if err != nil {
		return err
	}
	if err := m.Apply(-1); err != nil {
		return err
	}
	return m.Set(res)
}

// killOnce sends SIGKILL to every process of a cgroup and its children, once.
func killOnce(m cgroups.Manager) error {
	// One atomic write where there is a v2 tree (kernel 5.14), hybrid included.
	if dir := m.Path(""); dir != "" {
		if err := cgroups.WriteFile(dir, "cgroup.kill", "1"); err == nil {
			return nil
		}
	}
	// Frozen processes cannot fork away from us.
	frozen := m.Freeze(cgroups.Frozen) == nil
	pids, err := m.GetAllPids()
	for _, pid := range pids {
		if kerr := unix.Kill(pid, unix.SIGKILL); kerr != nil && kerr != unix.ESRCH {
			err = errors.Join(err, fmt.Errorf("kill %d: %w", pid, kerr))
		}
	}
	if frozen {
		err = errors.Join(err, m.Freeze(cgroups.Thawed))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// emptyWithin is how long processes get to die of SIGKILL; one that is stuck in the kernel can take for ever.
const emptyWithin = 10 * time.Second

// removeCgroup kills everything in a cgroup and removes it from every hierarchy, or says what is left.
func (t *tree) removeCgroup(cg string) error {
	m, err := t.open(cg, nil)
	if err != nil {
		return err
	}
	paths := removeEmpty(m.GetPaths())
	if len(paths) == 0 {
		return nil
	}
	deadline := time.Now().Add(emptyWithin)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		pids, err := allPids(paths)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup %s: processes %v do not die", cg, pids)
		}
		if err := killOnce(m); err != nil {
			return fmt.Errorf("cgroup %s: %w", cg, err)
		}
		time.Sleep(wait)
	}
	var errs []error
	for _, p := range paths {
		errs = append(errs, cgroups.RemovePath(p))
	}
	return errors.Join(errs...)
}

// removeEmpty removes a cgroup in all hierarchies. Nothing stands in the way once a container has ended as it should; it returns the
// paths where something does. The hierarchy by which processes are killed goes last: a process can be in another cgroup there.
func removeEmpty(all map[string]string) (left []string) {
	for _, controller := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return killedBy(a) - killedBy(b) }) {
		p := all[controller]
		if len(left) > 0 && killedBy(controller) > 0 {
			left = append(left, p)
			continue
		}
		if err := unix.Rmdir(p); err != nil && !errors.Is(err, unix.ENOENT) {
			left = append(left, p)
		}
	}
	return left
}

// killedBy is 1 for the hierarchies that killOnce works with.
func killedBy(controller string) int {
	if controller == "" || controller == "devices" || controller == "freezer" {
		return 1
	}
	return 0
}

func allPids(paths []string) ([]int, error) {
	var all []int
	for _, p := range paths {
		pids, err := cgroups.GetAllPids(p)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return nil, err
		}
		all = append(all, pids...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// OOM is how many processes of a container the kernel killed for want of memory, by its own count, and how much there was.
func (r *Runner) OOM(p runtime.Pod, id string) (out runtime.OOM, err error) {
	if r.tree.lacks["memory"] {
		return out, nil
	}
	m, err := r.tree.open(r.tree.containerCgroup(p, id), nil)
	if err != nil {
		return out, err
	}
	out.Kills, err = m.OOMKillCount()
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil // the cgroup is gone
	}
	if err != nil || out.Kills == 0 {
		return out, err
	}
	own := m.Path("memory")
	if r.tree.unified {
		own = m.Path("")
	}
	out.Peak = r.tree.memoryFigure(own, "memory.peak", "memory.max_usage_in_bytes") // the first since Linux 5.19
	for _, dir := range []string{own, filepath.Dir(own)} {
		if out.Limit = r.tree.memoryFigure(dir, "memory.max", "memory.limit_in_bytes"); out.Limit > 0 {
			break
		}
	}
	return out, nil
}

// memoryFigure reads one number of a cgroup; 0 where there is none, and for no limit, which v1 writes as a huge one.
func (t *tree) memoryFigure(dir, v2, v1 string) int64 {
	file := v1
	if t.unified {
		file = v2
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n > 1<<62 {
		return 0
	}
	return n
}
