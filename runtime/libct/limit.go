package libct

import (
	"path"

	"ledge/runtime"
)

// Limit changes the cgroup of a container that runs, or with an empty id that of the pod.
func (r *Runner) Limit(p runtime.Pod, id string, in runtime.Resources) error {
	if err := checkCgroup(p.Cgroup); err != nil {
		return err
	}
	cg := r.tree.podCgroup(p)
	if id != "" {
		if err := runtime.CheckID("container", id); err != nil {
			return err
		}
		cg = r.tree.containerCgroup(p, id)
	}
	res, err := r.tree.resources(in)
	if err != nil {
		return err
	}
	// A limit below what is in use would have the OOM killer enforce it: refused instead, where the kernel is not
	// asked first (v1 refuses by itself).
	res.MemoryCheckBeforeUpdate = r.tree.unified
	m, err := r.tree.open(cg, res)
	if err != nil {
		return err
	}
	return m.Set(res)
}

// LimitGroup sets a cgroup that pods stand in, and makes it if need be.
func (r *Runner) LimitGroup(cgroup string, in runtime.Resources) error {
	if err := checkCgroup(cgroup); err != nil {
		return err
	}
	res, err := r.tree.resources(in)
	if err != nil {
		return err
	}
	m, err := r.tree.open(path.Join(r.tree.root, cgroup), res)
	if err != nil {
		return err
	}
	if err := m.Apply(-1); err != nil {
		return err
	}
	return m.Set(res)
}
