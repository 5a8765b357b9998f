package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/images"
	"ledge/network"
	"ledge/node/podstate"
	"ledge/runtime"
)

// hands do to the board what workers decide. They know nothing of their own but the blocks of users that they have given away.
type hands struct {
	a *Agent

	mu     sync.Mutex
	blocks map[types.UID]runtime.IDRange // of users, for pods that the engine does not hold yet
}

// perform carries out one action. Every one may be repeated.
func (h *hands) perform(ctx context.Context, w *worker, pod *corev1.Pod, act podstate.Action) error {
	switch act.Verb {
	case podstate.Sandbox:
		return h.makeSandbox(ctx, w, pod)
	case podstate.Resolve:
		return h.resolve(ctx, w, pod, act)
	case podstate.Start:
		return h.start(ctx, w, pod, act)
	case podstate.Signal:
		err := h.a.cfg.Engine.Signal(ctx, act.ID, act.Sig)
		if errors.Is(err, runtime.ErrNotFound) {
			h.a.engine.forget(w.uid, act.ID)
			return nil
		}
		return err
	case podstate.RunHook:
		w.runHook(ctx, pod, act)
		return nil
	case podstate.Discard:
		return h.discard(ctx, w, act.ID)
	case podstate.Unmount:
		w.keepMessages()
		if err := h.a.volumes.Unmount(pod); err != nil {
			return &fault{"SandboxError", err}
		}
		w.seen.Unmounted = true
		return nil
	case podstate.Empty:
		return h.empty(ctx, w, pod)
	case podstate.Teardown:
		return h.teardown(ctx, w, pod)
	case podstate.DeletePod:
		return w.let(ctx, pod)
	}
	return fmt.Errorf("ledge bug: unknown action %q", act.Verb)
}

// makeSandbox prepares everything the pod's containers share: files, volumes, namespaces, cgroup, addresses.
func (h *hands) makeSandbox(ctx context.Context, w *worker, pod *corev1.Pod) error {
	if err := h.canHandle(ctx, pod); err != nil {
		return err
	}
	if err := h.a.volumes.Prepare(ctx, pod, podSource{h.a, pod}); err != nil {
		return &fault{"FailedMount", err}
	}
	if err := w.images.mountImages(ctx, pod); err != nil {
		return err
	}
	users, err := h.usersOf(pod)
	if err != nil {
		return &fault{"SandboxError", err}
	}
	spec, err := h.a.board().Pod(pod, users)
	if err != nil {
		return &fault{"SandboxError", err}
	}
	st, err := h.a.cfg.Engine.EnsurePod(ctx, spec)
	if err != nil {
		if errors.Is(err, runtime.ErrUnavailable) {
			return err
		}
		return &fault{"SandboxError", fmt.Errorf("make pod sandbox: %w", err)}
	}
	var ips []string
	if h.a.board().OnHostNetwork(pod) {
		ips = h.a.outlook.last().hostIPs
	} else {
		addrs, err := h.a.cfg.Network.Attach(ctx, network.Pod{UID: string(pod.UID), Namespace: pod.Namespace,
			Name: pod.Name, NetNS: st.NetNS, Ports: hostPorts(pod)})
		if err != nil {
			return &fault{"SandboxError", fmt.Errorf("connect pod to the network: %w", err)}
		}
		for _, ip := range addrs {
			ips = append(ips, ip.String())
		}
	}
	notes, err := h.writePodFiles(pod, ips)
	if err != nil {
		return &fault{"SandboxError", err}
	}
	if h.a.cfg.Lineage != "" && !w.static {
		if err := h.record(pod); err != nil {
			return &fault{"SandboxError", fmt.Errorf("record the pod: %w", err)}
		}
	}
	for _, text := range notes {
		h.a.event(pod, corev1.EventTypeWarning, "DNSConfigForming", text)
	}
	w.seen.Sandbox, w.seen.IPs, w.seen.Unmounted, w.seen.Removed = true, ips, false, false
	h.a.engine.made(st)
	return nil
}

func hostPorts(pod *corev1.Pod) []network.Port {
	var out []network.Port
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			np := network.Port{HostPort: uint16(p.HostPort), ContainerPort: uint16(p.ContainerPort), Protocol: string(p.Protocol)}
			if ip, err := netip.ParseAddr(p.HostIP); err == nil && !ip.IsUnspecified() {
				np.HostIP = ip
			}
			out = append(out, np)
		}
	}
	return out
}

// start makes one attempt of a container run.
func (h *hands) start(ctx context.Context, w *worker, pod *corev1.Pod, act podstate.Action) error {
	c := api.ContainerNamed(pod, act.Container)
	img, err := h.a.cfg.Images.Get(ctx, w.seen.Images[act.Container].ID)
	if err != nil { // removed between Resolve and now: resolve again
		delete(w.seen.Images, act.Container)
		return &fault{"CreateContainerError", err}
	}
	id := containerID(pod, act.Container, act.Attempt)
	rootfs, err := h.mountRoot(ctx, pod, img.ID, id)
	if err != nil {
		if errors.Is(err, images.ErrNotFound) { // it was damaged beyond repair: pull it again
			delete(w.seen.Images, act.Container)
		}
		return &fault{"CreateContainerError", fmt.Errorf("make root file system of container %s: %w", c.Name, err)}
	}
	if err := h.a.logs.DropOld(pod, c.Name, act.Attempt); err != nil {
		slog.Warn("old logs cannot be removed", "pod", api.Key(pod), "container", c.Name, "err", err)
	}
	sctx, done := w.untilEnding(ctx, pod) // a device plugin may hang, and the keeper
	defer done()
	ending := func() bool { return errors.Is(context.Cause(sctx), errEnding) }
	spec, err := h.containerSpec(sctx, pod, c, id, act.Attempt, rootfs, img, place{w.seen.IPs, w.images.roots})
	if err != nil && ending() {
		return h.undoStart(ctx, pod, id, errEnding)
	}
	if err != nil {
		return h.undoStart(ctx, pod, id, &fault{"CreateContainerConfigError", err})
	}
	if spec.ProcessesOf, err = h.targetOf(w, pod, c.Name); err != nil {
		return h.undoStart(ctx, pod, id, &fault{"CreateContainerError", err})
	}
	st, err := h.a.cfg.Engine.Start(sctx, spec)
	if err != nil {
		switch {
		case errors.Is(err, runtime.ErrUnavailable):
			return err // the keeper may have started it after all: keep the root file system, ask again
		case ending():
			return h.undoStart(ctx, pod, id, errEnding)
		}
		return h.undoStart(ctx, pod, id, &fault{"RunContainerError", fmt.Errorf("start container %s: %w", c.Name, err)})
	}
	h.a.engine.changed(st)
	h.a.containerEvent(pod, c.Name, corev1.EventTypeNormal, "Created", "Container created") // the engine does both at once
	h.a.containerEvent(pod, c.Name, corev1.EventTypeNormal, "Started", "Container started")
	return nil
}

func (h *hands) undoStart(ctx context.Context, pod *corev1.Pod, id string, cause error) error {
	return errors.Join(cause, h.a.cfg.Images.Unmount(ctx, id), h.dropMessage(string(pod.UID), id))
}

func (h *hands) discard(ctx context.Context, w *worker, id string) error {
	if err := h.a.cfg.Engine.Remove(ctx, id); err != nil {
		return err
	}
	if err := h.a.cfg.Images.Unmount(ctx, id); err != nil {
		return err
	}
	delete(w.seen.Messages, id)
	h.a.engine.forget(w.uid, id)
	return h.dropMessage(string(w.uid), id)
}

// empty deletes the files that the pod's containers have written. Their logs and records stay, and so does everything
// in memory.
func (h *hands) empty(ctx context.Context, w *worker, pod *corev1.Pod) error {
	for _, c := range w.seen.Containers {
		if err := h.a.cfg.Images.Unmount(ctx, c.ID); err != nil {
			return &fault{"SandboxError", fmt.Errorf("delete what containers have written: %w", err)}
		}
	}
	w.keepMessages()
	if err := h.a.volumes.Remove(string(pod.UID)); err != nil {
		return &fault{"SandboxError", err}
	}
	w.seen.Unmounted, w.seen.Emptied = true, true
	return nil
}

// teardown removes the pod from the board: containers first, then what they stood on. Logs stay until the
// object goes.
func (h *hands) teardown(ctx context.Context, w *worker, pod *corev1.Pod) error {
	uid := string(pod.UID)
	keys := map[string]bool{}
	for _, c := range w.seen.Containers {
		keys[c.ID] = true
	}
	if err := h.a.cfg.Engine.RemovePod(ctx, uid); err != nil {
		return err
	}
	for id := range keys {
		if err := h.a.cfg.Images.Unmount(ctx, id); err != nil {
			return &fault{"SandboxError", fmt.Errorf("unmount root file system: %w", err)}
		}
		delete(w.seen.Messages, id)
	}
	if err := h.a.cfg.Network.Detach(ctx, uid); err != nil {
		return &fault{"SandboxError", fmt.Errorf("disconnect pod: %w", err)}
	}
	if err := h.a.volumes.Remove(uid); err != nil {
		return &fault{"SandboxError", err}
	}
	if err := w.images.unmountImages(ctx, pod); err != nil {
		return &fault{"SandboxError", err}
	}
	if err := os.RemoveAll(h.a.podRunDir(uid)); err != nil {
		return &fault{"SandboxError", err}
	}
	h.a.engine.forget(pod.UID, "")
	h.a.searches.forget(pod.UID, w.seen.IPs)
	w.seen.Sandbox, w.seen.IPs, w.seen.Containers, w.seen.Unmounted, w.seen.Removed = false, nil, nil, true, true
	return nil
}

// let lets the object go. A static pod has none that anybody would tell us about.
func (w *worker) let(ctx context.Context, pod *corev1.Pod) error {
	err := w.status.home.Delete(ctx, pod)
	if err == nil && w.static {
		w.vanished()
	}
	return err
}

func (w *worker) forgetFiles(pod *corev1.Pod) {
	if err := w.a.logs.Remove(pod); err != nil {
		w.a.event(pod, corev1.EventTypeWarning, "FailedLogCleanup", err.Error())
	}
}

func containerID(pod *corev1.Pod, name string, attempt int) string {
	return fmt.Sprintf("%s.%s.%d", pod.UID, name, attempt)
}

// targetOf finds the running container whose processes an ephemeral one is to see; "" when it asks for none, or sees
// them anyway.
func (h *hands) targetOf(w *worker, pod *corev1.Pod, name string) (string, error) {
	i := slices.IndexFunc(pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == name })
	shared := pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace
	if i < 0 || pod.Spec.EphemeralContainers[i].TargetContainerName == "" || shared || pod.Spec.HostPID {
		return "", nil
	}
	target := pod.Spec.EphemeralContainers[i].TargetContainerName
	for _, s := range w.seen.Containers {
		if s.Name == target && s.Phase == runtime.Running {
			return s.ID, nil
		}
	}
	return "", fmt.Errorf("unable to find target container %s: it does not run", target)
}

// podRunDir is what the agent keeps of a pod for itself. Earlier versions gave containers files of it: those that they have
// started still have them.
func (a *Agent) podRunDir(uid string) string { return filepath.Join(a.cfg.RunDir, "podfiles", uid) }
