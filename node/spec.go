package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
	"ledge/node/podspec"
	"ledge/node/volume"
	"ledge/runtime"
)

// place is what a pod was given before its first container.
type place struct {
	ips    []string
	images map[string]string // where the images stand that are volumes
}

// containerSpec turns a container of a pod, with its image, into what the engine runs.
func (h *hands) containerSpec(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, attempt int, rootfs string,
	img images.Image, at place) (runtime.Container, error) {
	return h.a.board().Container(ctx, podspec.Attempt{Pod: pod, Container: c, ID: id, Number: attempt, Image: img, Rootfs: rootfs,
		PodIPs:  at.ips,
		LogPath: h.a.logs.Path(pod, c.Name, attempt), LogRoot: h.a.logs.Root()}, specNeeds{h.a.sources, h.a, pod, c, id, at.images})
}

// specNeeds is what the spec of one container takes from the board.
type specNeeds struct {
	*sources
	a      *Agent
	pod    *corev1.Pod
	c      *corev1.Container
	id     string
	images map[string]string // where the images stand that are volumes
}

var _ podspec.Needs = specNeeds{}

// File implements podspec.Needs.
func (n specNeeds) File(volume, path string) ([]byte, error) {
	return n.a.volumes.ReadFile(n.pod, volume, path, podspec.MaxEnvFile)
}

// Services implements podspec.Needs: what the board was last told of them, so that pods start while the control plane is away.
func (n specNeeds) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	if n.a.cfg.Services == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := n.a.cfg.Services(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("services have not yet been read at least once, cannot construct envvars: %w", err)
	}
	return list, nil
}

// Mounts implements podspec.Needs: the container's volume mounts and the files the agent gives every container.
func (n specNeeds) Mounts(ctx context.Context, expand func(string) (string, error)) ([]runtime.Mount, error) {
	out, err := n.a.volumes.Mounts(ctx, n.pod, n.c, expand, n.images)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for i, m := range out {
		out[i].Mapped = podspec.OwnUsers(n.pod) // the agent's own files are for everybody to read, and on a tmpfs
		taken[path.Clean(m.Target)] = true
	}
	dir := n.a.volumes.FilesOf(string(n.pod.UID))
	message, err := n.a.hands.makeMessageFile(string(n.pod.UID), n.id)
	if err != nil {
		return nil, err
	}
	files := []runtime.Mount{{Source: message, Target: n.c.TerminationMessagePath}}
	for _, file := range volume.AgentFiles {
		files = append(files, runtime.Mount{Source: path.Join(dir, path.Base(file)), Target: file})
	}
	for _, m := range files {
		if m.Target != "" && !taken[m.Target] {
			out = append(out, m)
		}
	}
	return out, n.a.volumes.MakeMountPoints(n.pod, n.c, out)
}

// Blocks implements podspec.Needs.
func (n specNeeds) Blocks() ([]volume.Block, error) { return n.a.volumes.Blocks(n.pod, n.c) }

// maxSeccompFile is far more than any profile: it travels to the keeper with its container.
const maxSeccompFile = 1 << 20

// SeccompProfile implements podspec.Needs: it reads a profile below the directory for them, and nowhere else.
func (n specNeeds) SeccompProfile(name string) ([]byte, error) {
	dir := filepath.Join(n.a.cfg.DataDir, "seccomp")
	f, err := os.OpenInRoot(dir, name)
	if err != nil {
		return nil, fmt.Errorf("cannot load seccomp profile %q of %s: %w", name, dir, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSeccompFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot load seccomp profile %q of %s: %w", name, dir, err)
	case len(text) == 0: // to the engine that is the default profile
		return nil, fmt.Errorf("cannot load seccomp profile %q of %s: the file is empty", name, dir)
	case len(text) > maxSeccompFile:
		return nil, fmt.Errorf("cannot load seccomp profile %q of %s: more than %d bytes", name, dir, maxSeccompFile)
	}
	return text, nil
}
