package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/devices"
	"ledge/node/podspec"
	"ledge/runtime"
)

// serveDevices joins the devices of a board with its agent.
func serveDevices(a *Agent) {
	there, poked := int64(0), time.Time{}
	a.cfg.Devices.Serve(func() {
		// Pods that wait are served at once; one that comes and goes all the time is no reason to write the Node all the time.
		sum := int64(0)
		for _, c := range a.cfg.Devices.Counts() {
			sum += c.Capacity
		}
		if sum > there && time.Since(poked) > mostPokes {
			poked = time.Now()
			a.poster.Poke()
		}
		there = sum
		a.roster.tryDevices()
	}, func(pod string) bool { return livesHere(a, pod) })
}

// mostPokes is how often the Node is written because of a device, beside when it would be anyway.
const mostPokes = 10 * time.Second

// tryDevices has pods with devices look again: theirs may have come, or gone.
func (r *roster) tryDevices() {
	for _, w := range r.all() {
		if asksDevices(w.current()) {
			w.sourcesChanged()
		}
	}
}

// asksDevices says whether a pod asks for devices, by a resource or by a volume.
func asksDevices(pod *corev1.Pod) bool {
	asks := asksByResource(pod) || slices.ContainsFunc(pod.Spec.Volumes, ofDevice)
	each(pod, func(c *corev1.Container) { asks = asks || len(pluginCounts(c)) > 0 })
	return asks
}

// ofBoard says whether a resource is a class of the board's own devices.
func ofBoard(name corev1.ResourceName) bool { return strings.HasPrefix(string(name), devices.Domain) }

func asksByResource(pod *corev1.Pod) (asks bool) {
	each(pod, func(c *corev1.Container) { asks = asks || len(deviceCounts(c)) > 0 })
	return asks
}

func ofDevice(v corev1.Volume) bool {
	return v.HostPath != nil && v.HostPath.Type != nil && *v.HostPath.Type == corev1.HostPathCharDev
}

// deviceCounts is how many devices a container asks for, by class.
func deviceCounts(c *corev1.Container) map[string]int {
	out := map[string]int{}
	for name, q := range c.Resources.Limits {
		if class, ok := strings.CutPrefix(string(name), devices.Domain); ok && q.Value() > 0 {
			out[class] = int(min(q.Value(), mostAsked))
		}
	}
	return out
}

// mostAsked bounds what is looked for; no board has as many.
const mostAsked = 1000

// Devices implements podspec.Needs.
func (n specNeeds) Devices() ([]devices.Given, error) {
	w := devices.Want{Count: deviceCounts(n.c), Ask: devices.Ask{Pod: string(n.pod.UID), Name: api.Key(n.pod).String(),
		Container: n.c.Name, Init: plainInit(n.pod, n.c.Name)}}
	if podspec.OwnUsers(n.pod) {
		return nil, nil // admission has refused those that ask by a resource; a volume is what it is on Kubernetes
	}
	paths, err := n.devicePaths()
	if err != nil {
		return nil, err
	}
	w.Labels = n.a.engine.deviceLabels()
	if w.Paths = paths; len(w.Count) == 0 && len(paths) == 0 {
		return nil, nil
	}
	if n.a.cfg.Devices == nil {
		if len(w.Count) > 0 {
			return nil, errors.New("this board gives no devices")
		}
		return nil, nil
	}
	n.a.cfg.Devices.Learn(n.a.engine.deviceLabels)
	given, unclassed, err := n.a.cfg.Devices.Give(w)
	for _, p := range unclassed {
		if sc := n.c.SecurityContext; sc == nil || sc.Privileged == nil || !*sc.Privileged {
			n.a.containerEvent(n.pod, n.c.Name, corev1.EventTypeWarning, "DeviceNotGiven", fmt.Sprintf(
				"The device at %s is of no class, so that the container may not open it: name it in the key devices of the board's configuration", p.At))
		}
	}
	return given, err
}

// plainInit says whether a container ends before the main ones begin.
func plainInit(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name && !api.IsSidecar(&c) })
}

// devicePaths are the devices that the container's volumes name.
func (n specNeeds) devicePaths() (out []devices.Path, err error) {
	for _, m := range n.c.VolumeMounts {
		i := slices.IndexFunc(n.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || !ofDevice(n.pod.Spec.Volumes[i]) || m.SubPath != "" || m.SubPathExpr != "" {
			continue
		}
		at := n.pod.Spec.Volumes[i].HostPath.Path
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			return nil, fmt.Errorf("volume %s: device %s: %w", m.Name, at, os.NewSyscallError("stat", err))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR {
			return nil, fmt.Errorf("volume %s: %s is not a character device any more", m.Name, at)
		}
		out = append(out, devices.Path{Major: unix.Major(uint64(st.Rdev)), Minor: unix.Minor(uint64(st.Rdev)), At: m.MountPath,
			ReadOnly: m.ReadOnly})
	}
	return out, nil
}

// deviceLabels are those of all containers that run.
func (v *engineView) deviceLabels() (out []string) {
	for _, st := range v.all() {
		containers, _, _ := v.held(types.UID(st.Pod.UID))
		for _, c := range containers {
			if c.Phase == runtime.Running && c.Labels[devices.Label] != "" {
				out = append(out, c.Labels[devices.Label])
			}
		}
	}
	return out
}

// pulled tells of the devices of one pod that were unplugged.
type pulled struct {
	a    *Agent
	told map[string]bool // by container ID
}

// of are the devices of running containers that are gone, of those that are to begin anew for it.
func (p *pulled) of(pod *corev1.Pod, containers []runtime.Status) map[string]string {
	var out map[string]string
	maps.DeleteFunc(p.told, func(id string, _ bool) bool {
		return !slices.ContainsFunc(containers, func(c runtime.Status) bool { return c.ID == id })
	})
	for _, c := range containers {
		if c.Phase == runtime.Running && len(pod.Spec.Volumes) > 0 {
			if spec := api.ContainerNamed(pod, c.Name); spec != nil {
				if name := p.a.volumes.Taken(pod, spec); name != "" { // its numbers may be another one's next
					out = p.ends(out, c.ID, "of volume "+name)
					p.tell(pod, c, "of volume "+name, devices.Restart)
				}
			}
		}
		if c.Phase != runtime.Running || c.Labels[devices.Label] == "" {
			continue
		}
		lost := p.a.cfg.Devices.Lost(c.Labels[devices.Label])
		if len(lost) == 0 {
			continue
		}
		what, gone := fmt.Sprintf("%s of class %s", lost[0].ID, lost[0].Class), devices.Leave
		for _, l := range lost {
			if l.Gone == devices.Restart {
				gone = devices.Restart
			}
		}
		if gone == devices.Restart {
			out = p.ends(out, c.ID, what)
		}
		p.tell(pod, c, what, gone)
	}
	return out
}

func (p *pulled) ends(out map[string]string, id, what string) map[string]string {
	if out == nil {
		out = map[string]string{}
	}
	out[id] = what
	return out
}

// tell says it once for each container.
func (p *pulled) tell(pod *corev1.Pod, c runtime.Status, what string, gone devices.Pulled) {
	if p.told[c.ID] {
		return
	}
	if p.told == nil {
		p.told = map[string]bool{}
	}
	p.told[c.ID] = true
	then := map[devices.Pulled]string{devices.Restart: "it is ended, and begins anew when the device is there",
		devices.Leave: "it is left as it is"}[gone]
	p.a.containerEvent(pod, c.Name, corev1.EventTypeWarning, "DeviceUnplugged", fmt.Sprintf("Container %s lost device %s: %s", c.Name, what, then))
}
