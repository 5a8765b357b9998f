// Package podspec turns a pod, an image and facts about a board into what an engine runs. It decides and does nothing: the same
// pod, image and facts give the same spec. What it cannot know (files, other objects, mounts) it asks its Needs for.
//
//	pod ----------.
//	image config --+--> Board.Container --> runtime.Container
//	Board (facts) -'         |
//	                       Needs: ConfigMaps, Secrets, Services, files of volumes, seccomp profiles, mounts
package podspec

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
	"ledge/node/devices"
	"ledge/node/downward"
	"ledge/node/podlog"
	"ledge/node/podstate"
	"ledge/node/volume"
	"ledge/runtime"
)

// Board is what a spec depends on besides the pod and its image. It is a value.
type Board struct {
	Node        string
	Hostname    string   // of the machine; "": that of the Node
	IPs         []string // of the machine
	Allocatable corev1.ResourceList
	Limits      Limits
	Logs        podlog.Config

	APIServer     netip.AddrPort // where pods find the API; not valid: nowhere. An unspecified address is the machine's own.
	ClusterDNS    []string       // asked by pods with dnsPolicy ClusterFirst; none: they ask whom the host asks
	ClusterDomain string         // "": cluster.local
	NoPodNetwork  bool           // every pod is on the host's network
	Unconfined    bool           // no system call filter by default
}

// Needs is what specs take from elsewhere.
type Needs interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services are those of a namespace, and default/kubernetes.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
	// File is a file in a volume of the pod, of at most MaxEnvFile bytes.
	File(volume, path string) ([]byte, error)
	// SeccompProfile is a profile that somebody has put on the board.
	SeccompProfile(name string) ([]byte, error)
	// Mounts are those of the container; expand replaces $(NAME) in their paths.
	Mounts(ctx context.Context, expand func(string) (string, error)) ([]runtime.Mount, error)
	// Devices are those that the container is given.
	Devices() ([]devices.Given, error)
	// Blocks are the devices that the container has as volumes.
	Blocks() ([]volume.Block, error)
	// Plugged is what device plugins give to the container.
	Plugged(ctx context.Context) (Plugged, error)
}

// Attempt is one instance of a container that is to begin.
type Attempt struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	ID        string
	Number    int
	Image     images.Image
	Rootfs    string // where the image's files are
	PodIPs    []string
	LogPath   string
	LogRoot   string
}

// OnHostNetwork says whether the pod is on the machine's network: it asked for it, or the board has nothing else to give.
func (b Board) OnHostNetwork(pod *corev1.Pod) bool { return pod.Spec.HostNetwork || b.NoPodNetwork }

// Names are what a pod is called. On the host's network it has the host's name.
func (b Board) Names(pod *corev1.Pod) (Names, error) {
	n, err := namesOf(pod, b.domain())
	if b.OnHostNetwork(pod) {
		n.kernel, err = first(b.Hostname, b.Node), nil
	}
	return n, err
}

func (b Board) domain() string { return first(b.ClusterDomain, "cluster.local") }

// Facts are the facts about a pod that the downward API may tell.
func (b Board) Facts(pod *corev1.Pod, podIPs []string) downward.Facts {
	return downward.Facts{Pod: pod, HostIPs: b.IPs, PodIPs: podIPs, Allocatable: b.Allocatable}
}

// Pod is what the engine needs of the pod itself. users is the block of a pod with users of its own.
func (b Board) Pod(pod *corev1.Pod, users *runtime.IDRange) (runtime.Pod, error) {
	n, err := b.Names(pod)
	if err != nil {
		return runtime.Pod{}, err
	}
	return runtime.Pod{UID: string(pod.UID), Users: users, Namespace: pod.Namespace, Name: pod.Name, Hostname: n.kernel,
		HostNetwork: b.OnHostNetwork(pod), HostPID: pod.Spec.HostPID, HostIPC: pod.Spec.HostIPC,
		ShareProcess: pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace,
		Cgroup:       Cgroup(pod), Resources: b.Limits.Pod(pod), Sysctls: sysctls(pod)}, nil
}

// Container turns a container of a pod, with its image, into what the engine runs.
func (b Board) Container(ctx context.Context, at Attempt, needs Needs) (runtime.Container, error) {
	var none runtime.Container
	pod, c, img := at.Pod, at.Container, at.Image
	user, err := resolveUser(at.Rootfs, pod, c, img.Config.User)
	if err != nil {
		return none, err
	}
	n, err := b.Names(pod)
	if err != nil {
		return none, err
	}
	services, err := b.services(ctx, pod, needs)
	if err != nil {
		return none, err
	}
	given, err := needs.Devices()
	if err != nil {
		return none, err
	}
	plugged, err := needs.Plugged(ctx)
	if err != nil {
		return none, err
	}
	services = slices.Concat(services, deviceVars(given), plugged.vars())
	env, err := envMaker{b.Facts(pod, at.PodIPs), n.kernel, services, needs}.environment(ctx, c, img)
	if err != nil {
		return none, err
	}
	args, err := command(c, img, env)
	if err != nil {
		return none, err
	}
	if len(args) == 0 {
		return none, fmt.Errorf("no command: neither container %s nor its image %q names one", c.Name, c.Image)
	}
	mounts, err := needs.Mounts(ctx, env.expandAll)
	if err != nil {
		return none, err
	}
	out := runtime.Container{ID: at.ID, PodUID: string(pod.UID), Name: c.Name, Attempt: at.Number, Rootfs: at.Rootfs,
		Args: args, Env: env.list(), Stdin: c.Stdin, StdinOnce: c.StdinOnce, TTY: c.TTY, Cwd: first(c.WorkingDir, img.Config.WorkingDir, "/"),
		User:   user,
		Mounts: mounts, LogPath: at.LogPath, LogBytes: b.Logs.MaxBytes, LogFiles: b.Logs.MaxFiles,
		LogRate: b.Logs.Rate, LogRoot: at.LogRoot, LogTotal: b.Logs.Total, Resources: b.Limits.Container(pod, c),
		Labels: map[string]string{podstate.LabelStopSignal: stopSignal(c, img), podstate.LabelImage: c.Image,
			podstate.LabelResize: podstate.ResizeKey(pod, c), podstate.LabelUser: podstate.UserKey(user)}}
	giveDevices(&out, given)
	plugged.add(&out)
	blocks, err := needs.Blocks()
	if err == nil {
		err = giveBlocks(&out, blocks)
	}
	if err != nil {
		return none, err
	}
	return out, b.secure(&out, pod, c, needs)
}

// stopSignal is the container's own, else its image's.
func stopSignal(c *corev1.Container, img images.Image) string {
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		return string(*c.Lifecycle.StopSignal)
	}
	return img.Config.StopSignal
}

// apiServer tells a pod where the API is, by the variables that client libraries look for. A loopback address is of
// use only on the host's network.
func (b Board) apiServer(pod *corev1.Pod) []envVar {
	at := b.APIServer
	if !at.IsValid() {
		return nil
	}
	host := at.Addr().String()
	switch {
	case at.Addr().IsUnspecified():
		if len(b.IPs) == 0 {
			return nil
		}
		host = b.IPs[0]
	case at.Addr().IsLoopback() && !b.OnHostNetwork(pod):
		return nil
	}
	port := strconv.Itoa(int(at.Port()))
	return []envVar{{"KUBERNETES_SERVICE_HOST", host}, {"KUBERNETES_SERVICE_PORT", port}, {"KUBERNETES_SERVICE_PORT_HTTPS", port}}
}

// command follows Kubernetes: command replaces ENTRYPOINT and CMD, args alone replaces CMD.
func command(c *corev1.Container, img images.Image, env environ) ([]string, error) {
	entry, args := img.Config.Entrypoint, img.Config.Cmd
	var err, argsErr error
	if len(c.Command) > 0 {
		entry, err = expandAll(c.Command, env.pod)
		args = nil
	}
	if len(c.Args) > 0 {
		args, argsErr = expandAll(c.Args, env.pod)
	}
	return append(slices.Clone(entry), args...), errors.Join(err, argsErr)
}

// Files are the texts of a pod's /etc/hosts, /etc/hostname and /etc/resolv.conf, by the last part of their names, made from the
// host's own. The notes are for the pod's owner.
func (b Board) Files(pod *corev1.Pod, podIPs []string, hosts, resolvConf string) (texts map[string]string, notes []string, err error) {
	n, err := b.Names(pod)
	if err != nil {
		return nil, nil, err
	}
	text := managedHosts(n, podIPs, pod.Spec.HostAliases)
	if b.OnHostNetwork(pod) {
		text = hostHosts(hosts, pod.Spec.HostAliases)
	}
	dns, notes := podResolver(pod, b.OnHostNetwork(pod), parseResolv(resolvConf), clusterDNS{b.ClusterDNS, b.domain()})
	return map[string]string{"hosts": text, "hostname": n.kernel + "\n", "resolv.conf": dns.String()}, notes, nil
}

// Searches is the search list in a pod's resolv.conf, as absolute names, if the pod asks this board's cluster DNS; else none.
func (b Board) Searches(pod *corev1.Pod, resolvConf string) []string {
	dns, _ := podResolver(pod, b.OnHostNetwork(pod), parseResolv(resolvConf), clusterDNS{b.ClusterDNS, b.domain()})
	if len(b.ClusterDNS) == 0 || !slices.Contains(dns.servers, b.ClusterDNS[0]) {
		return nil
	}
	out := make([]string, len(dns.searches))
	for i, s := range dns.searches {
		out[i] = strings.ToLower(strings.TrimSuffix(s, ".")) + "."
	}
	return out
}

func first(of ...string) string {
	for _, s := range of {
		if s != "" {
			return s
		}
	}
	return ""
}

// Kubernetes' refusals of a container that would run as root against runAsNonRoot.
var (
	errRootUser  = errors.New("container has runAsNonRoot and image will run as root")
	errRootAsked = errors.New("container's runAsUser breaks non-root policy")
)
