package libct

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// findRoot finds where kubepods stands: where it is wanted, if that is said.
func (t *tree) findRoot(want string) (string, error) {
	if want != "" {
		if !path.IsAbs(want) || path.Clean(want) != want {
			return "", fmt.Errorf("%q: want a clean absolute path", want)
		}
		return want, nil
	}
	if !t.unified {
		return "/", nil
	}
	own, err := t.ownCgroup()
	if err != nil {
		return "", err
	}
	if t.given(own) {
		return own, nil
	}
	if path.Base(own) == leafName && t.delegated(path.Dir(own)) {
		return path.Dir(own), nil
	}
	return "/", nil
}

// services is the hierarchy in which systemd, where it is there, keeps its units: below the mount point, and as the kernel calls it.
func (t *tree) services() (dir, name string) {
	switch {
	case t.unified:
		return "", ""
	case cgroups.IsCgroup2HybridMode():
		return "unified", ""
	}
	return "systemd", "name=systemd"
}

// ownCgroup is the cgroup of this process, as systemd sees it.
func (t *tree) ownCgroup() (string, error) { return t.cgroupOf("self") }

func (t *tree) cgroupOf(process string) (string, error) {
	m, err := cgroups.ParseCgroupFile("/proc/" + process + "/cgroup")
	if err != nil {
		return "", err
	}
	_, name := t.services()
	return m[name], nil
}

// given asks whether systemd (Delegate=yes) has handed a cgroup over, to this process and not to the brain that started it: while that
// stands there, nothing can be handed down on v2.
func (t *tree) given(own string) bool {
	theirs, err := t.cgroupOf(strconv.Itoa(os.Getppid()))
	return t.delegated(own) && (err != nil || theirs != own)
}

// delegated asks whether systemd has marked a cgroup as handed over, which it does with an attribute.
func (t *tree) delegated(cg string) bool {
	dir, _ := t.services()
	for _, attr := range []string{"trusted.delegate", "user.delegate"} {
		buf := make([]byte, 8)
		if n, err := unix.Getxattr(filepath.Join(cgroupMount, dir, cg), attr, buf); err == nil && string(buf[:n]) == "1" {
			return true
		}
	}
	return false
}

// Enter prepares this process and the cgroup root for containers, and says what it found. The keeper process calls
// it once. The process moves to a leaf of its own: somebody may end the brain's cgroup, and on v2 a cgroup that holds
// processes cannot hand controllers down to its children.
func (r *Runner) Enter() (runtime.Info, error) {
	r.tree.lacks = r.tree.lacking()
	r.tree.makeParents()
	for _, c := range limiting {
		if r.tree.lacks[c] {
			r.warn("the cgroup controller " + c + " is not to be had here: limits that need it do not hold" + remedy(c))
		}
	}
	if !r.tree.unified {
		if err := checkV1(); err != nil {
			return runtime.Info{}, err
		}
		if err := r.tree.enterLeaf(); err != nil { // the brain's will do
			r.warn(err.Error())
		}
		return r.info(), nil
	}
	if err := r.tree.enterLeaf(); err != nil {
		return runtime.Info{}, err
	}
	// From the top down: a controller can be used only where every ancestor hands it on.
	dir := cgroupMount
	enable := func(dir string) map[string]error {
		failed := map[string]error{}
		for _, c := range []string{"cpu", "memory", "pids", "cpuset", "io", "hugetlb"} {
			if err := cgroups.WriteFile(dir, "cgroup.subtree_control", "+"+c); err != nil {
				failed[c] = err
			}
		}
		return failed
	}
	failed := enable(dir)
	for _, part := range strings.Split(strings.Trim(r.tree.root, "/"), "/") {
		if part != "" {
			dir = filepath.Join(dir, part)
			failed = enable(dir)
		}
	}
	for _, c := range limiting {
		if err := failed[c]; err != nil && !r.tree.lacks[c] {
			r.warn("the cgroup controller " + c + " cannot be handed on to pods: " + err.Error())
		}
	}
	return r.info(), nil
}

// enterLeaf moves this process to the keeper's own cgroup, out of the root of the pods and out of the brain's, should
// that have started it. Where systemd has given it a cgroup of its own, and the pods are elsewhere, it stays.
func (t *tree) enterLeaf() error {
	own, err := t.ownCgroup()
	if err != nil {
		return fmt.Errorf("find the keeper's cgroup: %w", err)
	}
	given := own != t.root && t.given(own)
	switch {
	case given && t.unified:
		return os.MkdirAll(filepath.Join(cgroupMount, t.root), 0o755)
	case given:
		return nil
	case !t.unified: // one in each hierarchy; not t.open, whose SkipDevices would not join that of devices
		m, err := manager.New(&cgroups.Cgroup{Path: path.Join(t.root, leafName), Resources: &cgroups.Resources{}})
		if err == nil {
			err = m.Apply(os.Getpid())
		}
		if err != nil {
			return fmt.Errorf("move the keeper to cgroups of its own: %w", err)
		}
		return nil
	}
	leaf := filepath.Join(cgroupMount, t.root, leafName)
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return fmt.Errorf("make the keeper's cgroup: %w", err)
	}
	if err := cgroups.WriteCgroupProc(leaf, os.Getpid()); err != nil {
		return fmt.Errorf("move the keeper to its cgroup: %w", err)
	}
	return nil
}

// madeHere marks cgroups above the root that this made, for whichever keeper clears them away.
const madeHere = "trusted.ledge"

// makeParents makes the cgroups above the root, and marks those it has made. An error here is ignored: making the
// first cgroup below tries again and reports it.
func (t *tree) makeParents() {
	if path.Dir(t.root) == "/" {
		return // they are the hierarchies themselves
	}
	m, err := t.open(t.root, nil)
	if err != nil {
		return
	}
	parts := strings.Split(strings.Trim(t.root, "/"), "/")
	for _, p := range m.GetPaths() {
		dir := strings.TrimSuffix(p, t.root)
		for _, part := range parts[:len(parts)-1] {
			dir = filepath.Join(dir, part)
			if os.Mkdir(dir, 0o755) == nil {
				_ = unix.Setxattr(dir, madeHere, []byte("1"), 0) // without a mark it stays
			}
		}
	}
}

// dropParents removes the cgroups above a root's directory that a keeper made, as far as they are empty.
func (t *tree) dropParents(dir string) {
	for above := path.Dir(t.root); above != "/"; above = path.Dir(above) {
		dir = filepath.Dir(dir)
		if n, err := unix.Getxattr(dir, madeHere, nil); err != nil || n == 0 || unix.Rmdir(dir) != nil {
			return
		}
	}
}

// leaveLeaf moves this process out of the keeper's own cgroup, should it be there, and removes that: a process cannot remove the
// cgroup it is in. Where it came from is gone or taken as often as not; the top always takes it.
func (t *tree) leaveLeaf() error {
	leaf := path.Join(t.root, leafName)
	m, err := t.open(leaf, nil)
	if err != nil {
		return err
	}
	// Not by the names in /proc: a container's need not be those of its mounts. Each for itself: somebody may have moved it in one.
	for _, dir := range m.GetPaths() {
		if pids, err := cgroups.GetPids(dir); err == nil && slices.Contains(pids, os.Getpid()) {
			_ = cgroups.WriteCgroupProc(strings.TrimSuffix(dir, leaf), os.Getpid())
		}
		_ = unix.Rmdir(dir) // while another process is in it, it stays
	}
	return nil
}

func remedy(controller string) string {
	if controller == "memory" {
		return " (on a Raspberry Pi add cgroup_enable=memory cgroup_memory=1 psi=1 to the line in cmdline.txt)"
	}
	return ""
}

func checkV1() error {
	if _, err := cgroups.FindCgroupMountpoint("", "devices"); err != nil {
		return fmt.Errorf("cgroup v1 without the devices controller: containers could open every device: %w", err)
	}
	return nil
}

// limiting are the controllers that every pod's limits need, where they are there.
var limiting = []string{"cpu", "memory", "pids"}

// lacking returns the controllers that this kernel does not have, or was told to leave out. Pods run without: a
// Raspberry Pi's kernel has no memory controller unless it is asked for one.
func (t *tree) lacking() map[string]bool {
	lacks := map[string]bool{}
	if t.unified {
		have, err := os.ReadFile(filepath.Join(cgroupMount, "cgroup.controllers"))
		for _, c := range limiting {
			lacks[c] = err == nil && !slices.Contains(strings.Fields(string(have)), c)
		}
		return lacks
	}
	for _, c := range limiting {
		_, err := cgroups.FindCgroupMountpoint("", c)
		lacks[c] = cgroups.IsNotFound(err)
	}
	return lacks
}

// Clear removes the empty cgroups that stand above the pods', as far as ledge made them, and the keeper's own. It kills nothing: with the
// root at "/" somebody else may use kubepods too.
func (r *Runner) Clear() error {
	m, err := r.tree.open(path.Join(r.tree.root, podsName), nil)
	if err != nil {
		return err
	}
	mayDropRoot := r.tree.root != "/" && !(r.tree.unified && r.tree.delegated(r.tree.root))
	errs := []error{r.tree.leaveLeaf()}
	for _, p := range m.GetPaths() {
		if _, err := os.Stat(p); err == nil {
			errs = append(errs, cgroups.RemovePath(p))
		}
		if mayDropRoot {
			_ = unix.Rmdir(filepath.Dir(p))
			r.tree.dropParents(filepath.Dir(p))
		}
	}
	return errors.Join(errs...)
}
