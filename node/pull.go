package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/images"
	"ledge/node/podstate"
)

// pulling is an image on its way for one container. It goes on beside the worker, which looks after the rest of the
// pod meanwhile, and ends when nobody wants it any more.
type pulling struct {
	ref     string
	attempt int
	stop    context.CancelFunc

	// set by the goroutine that pulls, under the lock of who keeps it
	over bool
	out  images.Pulled
	err  error
}

// pulls are the images on their way for the containers of one pod.
type pulls struct {
	w      *worker
	silent map[string]silence // registries that did not answer, by image; for the worker's own goroutine

	mu sync.Mutex
	on map[string]*pulling // by container name
}

// resolve finds the image of a container's next attempt, by its pull policy, or begins to pull it.
func (h *hands) resolve(ctx context.Context, w *worker, pod *corev1.Pod, act podstate.Action) error {
	c := api.ContainerNamed(pod, act.Container)
	img, err := h.a.cfg.Images.Get(ctx, c.Image)
	silent := w.pulls.silent[c.Image]
	switch {
	case err == nil && (c.ImagePullPolicy != corev1.PullAlways || images.IsBuiltIn(img.Names)):
		w.found(act.Container, c.Image, act.Attempt, img)
		h.a.containerEvent(pod, c.Name, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine", c.Image))
		return nil
	case err == nil && time.Now().Before(silent.until()):
		w.found(act.Container, c.Image, act.Attempt, img)
		h.a.containerEvent(pod, c.Name, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.Image))
		h.usedAnyway(pod, c, silent.why)
		return nil
	case errors.Is(err, images.ErrInvalidName):
		return &fault{"InvalidImageName", said(fmt.Sprintf("Failed to apply default image tag %q: %v", c.Image, err))}
	case err != nil && !errors.Is(err, images.ErrNotFound):
		return &fault{"ErrImagePull", fmt.Errorf("find image %q: %w", c.Image, err)}
	case err != nil && c.ImagePullPolicy == corev1.PullNever:
		return &fault{"ErrImageNeverPull", said(fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image))}
	}
	w.pulls.pull(ctx, pod, c, act.Attempt)
	return nil
}

func (w *worker) found(container, ref string, attempt int, img images.Image) {
	delete(w.seen.Faults, container)
	w.seen.Images[container] = podstate.Image{ID: img.ID, Ref: ref, Attempt: attempt}
}

// pull begins to pull an image. lookAtPulls sees the end of it.
func (ps *pulls) pull(ctx context.Context, pod *corev1.Pod, c *corev1.Container, attempt int) {
	ctx, stop := context.WithCancel(ctx)
	p := &pulling{ref: c.Image, attempt: attempt, stop: stop}
	ps.mu.Lock()
	if old := ps.on[c.Name]; old != nil {
		old.stop()
	}
	ps.on[c.Name] = p
	ps.mu.Unlock()
	ps.w.a.containerEvent(pod, c.Name, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
	ps.w.helpers.Go(func() {
		defer stop()
		out, err := ps.w.a.hands.pullNow(ctx, pod, c)
		ps.mu.Lock()
		p.over, p.out, p.err = true, out, err
		ps.mu.Unlock()
		ps.w.poke()
	})
}

func (h *hands) pullNow(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (images.Pulled, error) {
	keys, err := h.pullSecrets(ctx, pod)
	if err != nil {
		return images.Pulled{}, err
	}
	return h.a.cfg.Images.Pull(ctx, images.PullRequest{Ref: c.Image, Keys: keys, IfMissing: c.ImagePullPolicy == corev1.PullIfNotPresent})
}

// pullSecrets reads the credentials that a pod brings. One that is missing may not be needed; one that cannot be read
// is a mistake.
func (h *hands) pullSecrets(ctx context.Context, pod *corev1.Pod) (images.Keyring, error) {
	var ring images.Keyring
	var lost []string
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		s, err := h.a.sources.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			lost = append(lost, ref.Name)
			continue
		}
		data, legacy := s.Data[corev1.DockerConfigJsonKey], false
		if s.Type == corev1.SecretTypeDockercfg {
			data, legacy = s.Data[corev1.DockerConfigKey], true
		}
		if len(data) == 0 {
			continue // of a type that holds none, as on Kubernetes
		}
		keys, err := images.ParseKeyring(data, legacy)
		if err != nil {
			return nil, fmt.Errorf("image pull secret %q: %w", ref.Name, err)
		}
		ring = append(ring, keys...)
	}
	if len(lost) > 0 {
		h.a.event(pod, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); "+
				"attempting to pull the image may not succeed.", strings.Join(lost, ", ")))
	}
	return ring, nil
}

// lookAtPulls collects the results of ended pulls, and cancels pulls that the pod no longer needs.
func (ps *pulls) lookAtPulls(in podstate.Input) {
	unwanted := in.Gone || in.Stop != nil || in.Pod.DeletionTimestamp != nil
	ended := map[string]*pulling{}
	ps.w.seen.Pulling = map[string]string{}
	ps.mu.Lock()
	for name, p := range ps.on {
		c := api.ContainerNamed(in.Pod, name)
		switch {
		case p.over:
			delete(ps.on, name)
			ended[name] = p
		case unwanted || c == nil || c.Image != p.ref:
			p.stop()
		default:
			ps.w.seen.Pulling[name] = p.ref
		}
	}
	ps.mu.Unlock()
	for name, p := range ended {
		if c := api.ContainerNamed(in.Pod, name); c != nil && c.Image == p.ref && !unwanted {
			ps.pulled(in.Pod, c, p)
		}
	}
}

// pulled takes in the end of a pull. Without a network what is here is good enough, also where a kubelet would insist
// on asking: a board comes back after a power cut whether or not its uplink does.
func (ps *pulls) pulled(pod *corev1.Pod, c *corev1.Container, p *pulling) {
	switch {
	case p.err == nil:
		ps.w.found(c.Name, c.Image, p.attempt, p.out.Image)
		delete(ps.silent, c.Image)
		ps.w.a.containerEvent(pod, c.Name, corev1.EventTypeNormal, "Pulled", pulledText(c.Image, p.out))
	case errors.Is(p.err, context.Canceled):
	default:
		// The context of a pull that has ended is of no more use, and a store looks into memory here.
		img, err := ps.w.a.cfg.Images.Get(context.Background(), c.Image)
		if err == nil && errors.Is(p.err, images.ErrUnreachable) {
			ps.w.found(c.Name, c.Image, p.attempt, img)
			ps.silent[c.Image] = ps.silent[c.Image].again(time.Now(), cause(p))
			ps.w.a.hands.usedAnyway(pod, c, cause(p))
			return
		}
		ps.w.failed(pod, podstate.Resolve, c.Name, c.Name, &fault{"ErrImagePull", said(cause(p))})
	}
}

func (h *hands) usedAnyway(pod *corev1.Pod, c *corev1.Container, why string) {
	h.a.containerEvent(pod, c.Name, corev1.EventTypeWarning, "Pulled",
		fmt.Sprintf("Container image %q already present on machine is used: %s", c.Image, why))
}

// silence is a registry that did not answer while the image was here. For some time the pod's containers are started
// without asking it again: each try may take as long as a connection takes to fail, and a container in a crash loop is
// started for ever. Another pod asks at once.
type silence struct {
	count int
	at    time.Time
	why   string
}

// Each pause is four times the one before: pauses grow faster than those of a crash loop, so that there are always
// some starts between two tries.
const (
	silenceFirst = time.Minute
	silenceMost  = 30 * time.Minute
)

func (s silence) until() time.Time {
	if s.count == 0 {
		return time.Time{}
	}
	return s.at.Add(min(silenceFirst<<min(2*(s.count-1), 10), silenceMost))
}

// again notes one more try. What was long ago is forgotten.
func (s silence) again(now time.Time, why string) silence {
	if now.Sub(s.at) > 2*silenceMost {
		s.count = 0
	}
	return silence{s.count + 1, now, why}
}

// cause is why a pull failed, without what everybody who reads it knows.
func cause(p *pulling) string { return strings.TrimPrefix(p.err.Error(), "pull "+p.ref+": ") }

// pulledText is what a kubelet says after a pull.
func pulledText(ref string, p images.Pulled) string {
	short := func(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) }
	return fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.", ref, short(p.Took),
		short(p.Took+p.Waited), p.Image.Size)
}
