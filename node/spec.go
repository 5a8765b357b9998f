package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
	"ledge/node/downward"
	"ledge/node/podstate"
	"ledge/node/volume"
	"ledge/runtime"
)

// podSpec is what the engine needs of the pod itself.
func (a *Agent) podSpec(pod *corev1.Pod) (runtime.Pod, error) {
	n, err := a.names(pod)
	if err != nil {
		return runtime.Pod{}, err
	}
	users, err := a.usersOf(pod)
	if err != nil {
		return runtime.Pod{}, err
	}
	return runtime.Pod{UID: string(pod.UID), Users: users, Namespace: pod.Namespace, Name: pod.Name, Hostname: n.kernel,
		HostNetwork: a.onHostNetwork(pod), HostPID: pod.Spec.HostPID, HostIPC: pod.Spec.HostIPC,
		ShareProcess: pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace,
		Cgroup:       podCgroup(pod), Resources: a.limits().pod(pod), Sysctls: sysctls(pod)}, nil
}

// onHostNetwork: the pod asked for it, or this board has nothing else to give.
func (a *Agent) onHostNetwork(pod *corev1.Pod) bool {
	return pod.Spec.HostNetwork || a.cfg.NoPodNetwork
}

// place is what a pod was given before its first container.
type place struct {
	ips    []string
	images map[string]string // where the images stand that are volumes
}

// containerSpec turns a container of a pod, with its image, into what the engine runs.
func (a *Agent) containerSpec(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, attempt int, rootfs string,
	img images.Image, at place) (runtime.Container, error) {
	var none runtime.Container
	user, err := resolveUser(rootfs, pod, c, img.Config.User)
	if err != nil {
		return none, err
	}
	env, err := a.environment(ctx, pod, c, img, at.ips)
	if err != nil {
		return none, err
	}
	args := command(c, img, env)
	if len(args) == 0 {
		return none, fmt.Errorf("no command: neither container %s nor its image %q names one", c.Name, c.Image)
	}
	mounts, err := a.mounts(pod, c, id, env, at.images)
	if err != nil {
		return none, err
	}
	out := runtime.Container{ID: id, PodUID: string(pod.UID), Name: c.Name, Attempt: attempt, Rootfs: rootfs,
		Args: args, Env: env.list(), Stdin: c.Stdin, StdinOnce: c.StdinOnce, TTY: c.TTY, Cwd: first(c.WorkingDir, img.Config.WorkingDir, "/"), User: user,
		Mounts: mounts, LogPath: a.logs.Path(pod, c.Name, attempt), LogBytes: a.cfg.Logs.MaxBytes, LogFiles: a.cfg.Logs.MaxFiles,
		LogRate: a.cfg.Logs.Rate, LogRoot: a.logs.Root(), LogTotal: a.cfg.Logs.Total, Resources: a.limits().container(pod, c),
		Labels: map[string]string{podstate.LabelStopSignal: stopSignal(c, img), podstate.LabelImage: c.Image,
			podstate.LabelResize: podstate.ResizeKey(pod, c), podstate.LabelUser: podstate.UserKey(user)}}
	return out, a.secure(&out, pod, c)
}

// stopSignal is the container's own, else its image's.
func stopSignal(c *corev1.Container, img images.Image) string {
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		return string(*c.Lifecycle.StopSignal)
	}
	return img.Config.StopSignal
}

func (a *Agent) environment(ctx context.Context, pod *corev1.Pod, c *corev1.Container, img images.Image, ips []string) (environ, error) {
	n, err := a.names(pod)
	if err != nil {
		return environ{}, err
	}
	files := func(name, path string) ([]byte, error) { return a.volumes.ReadFile(pod, name, path, maxEnvFile) }
	return envMaker{a.facts(pod, ips), n.kernel, a.apiServer(pod), a.sources, files}.environment(ctx, c, img)
}

// apiServer tells a pod where the API is, by the variables that client libraries look for. A loopback address is of
// use only on the host's network.
func (a *Agent) apiServer(pod *corev1.Pod) []envVar {
	at := a.cfg.APIServer
	if !at.IsValid() {
		return nil
	}
	host := at.Addr().String()
	switch {
	case at.Addr().IsUnspecified():
		ips := a.nodeIPs()
		if len(ips) == 0 {
			return nil
		}
		host = ips[0]
	case at.Addr().IsLoopback() && !a.onHostNetwork(pod):
		return nil
	}
	port := strconv.Itoa(int(at.Port()))
	return []envVar{{"KUBERNETES_SERVICE_HOST", host}, {"KUBERNETES_SERVICE_PORT", port}, {"KUBERNETES_SERVICE_PORT_HTTPS", port}}
}

// facts is what the downward API may tell of a pod.
func (a *Agent) facts(pod *corev1.Pod, ips []string) downward.Facts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return downward.Facts{Pod: pod, HostIPs: a.hostIPs, PodIPs: ips, Allocatable: a.allocatable}
}

// command follows Kubernetes: command replaces ENTRYPOINT and CMD, args alone replaces CMD.
func command(c *corev1.Container, img images.Image, env environ) []string {
	entry, args := img.Config.Entrypoint, img.Config.Cmd
	if len(c.Command) > 0 {
		entry, args = expandAll(c.Command, env.pod), nil
	}
	if len(c.Args) > 0 {
		args = expandAll(c.Args, env.pod)
	}
	return append(slices.Clone(entry), args...)
}

func first(of ...string) string {
	for _, s := range of {
		if s != "" {
			return s
		}
	}
	return ""
}

// mounts are the container's volume mounts and the files the agent gives every container.
func (a *Agent) mounts(pod *corev1.Pod, c *corev1.Container, id string, env environ, roots map[string]string) ([]runtime.Mount, error) {
	out, err := a.volumes.Mounts(pod, c, env.expandAll, roots)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for i, m := range out {
		out[i].Mapped = ownUsers(pod) // the agent's own files are for everybody to read, and on a tmpfs
		taken[path.Clean(m.Target)] = true
	}
	dir := a.volumes.FilesOf(string(pod.UID))
	message, err := a.makeMessageFile(string(pod.UID), id)
	if err != nil {
		return nil, err
	}
	files := []runtime.Mount{{Source: message, Target: c.TerminationMessagePath}}
	for _, file := range volume.AgentFiles {
		files = append(files, runtime.Mount{Source: path.Join(dir, path.Base(file)), Target: file})
	}
	for _, m := range files {
		if m.Target != "" && !taken[m.Target] {
			out = append(out, m)
		}
	}
	return out, a.volumes.MakeMountPoints(pod, c, out)
}

// Kubernetes' refusals of a container that would run as root against runAsNonRoot.
var (
	errRootUser  = errors.New("container has runAsNonRoot and image will run as root")
	errRootAsked = errors.New("container's runAsUser breaks non-root policy")
)
