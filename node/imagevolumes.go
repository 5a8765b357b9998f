package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
)

// errOnItsWay: what an action needs is being fetched; the worker is poked when it is there.
var errOnItsWay = errors.New("on its way")

// imageVolumes are the volumes of one pod that are images. They belong to its worker.
type imageVolumes struct {
	roots map[string]string // of those that are mounted, by volume

	mu    sync.Mutex
	pulls map[string]*pulling // by volume
}

// imageVolumeKey is under which an image is mounted for a volume. No container's ID has two dots in a row.
func imageVolumeKey(pod *corev1.Pod, volume string) string {
	return string(pod.UID) + "..volume." + volume
}

// mountImages mounts the images that are volumes of the pod, each once for all of its containers, and pulls those
// that are not here.
func (w *worker) mountImages(ctx context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image == nil || w.images.roots[v.Name] != "" {
			continue
		}
		id, err := w.imageOf(ctx, pod, v)
		if errors.Is(err, errOnItsWay) {
			return err
		}
		root := ""
		if err == nil {
			root, err = w.a.cfg.Images.Mount(ctx, id, imageVolumeKey(pod, v.Name))
		}
		if err != nil {
			return &fault{"FailedMount", fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)}
		}
		if w.images.roots == nil {
			w.images.roots = map[string]string{}
		}
		w.images.roots[v.Name] = root
	}
	return nil
}

// imageOf is the image a volume is of: the one that is mounted since before this process, or by its pull policy.
func (w *worker) imageOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (id string, err error) {
	if id, err = w.mountedImage(ctx, imageVolumeKey(pod, v.Name)); err != nil || id != "" {
		return id, err
	}
	w.images.mu.Lock()
	p := w.images.pulls[v.Name]
	over := p != nil && p.over
	if over {
		delete(w.images.pulls, v.Name)
	}
	w.images.mu.Unlock()
	img, here := w.a.cfg.Images.Get(ctx, v.Image.Reference)
	switch {
	case p != nil && !over:
		return "", errOnItsWay
	case over && p.err == nil:
		return p.out.Image.ID, nil
	case over && here == nil && errors.Is(p.err, images.ErrUnreachable):
		return img.ID, nil // without a network what is here is good enough
	case over:
		return "", fmt.Errorf("failed to pull image %q: %s", v.Image.Reference, cause(p))
	case here == nil && (v.Image.PullPolicy != corev1.PullAlways || images.IsBuiltIn(img.Names)):
		return img.ID, nil
	case here != nil && !errors.Is(here, images.ErrNotFound):
		return "", here
	case here != nil && v.Image.PullPolicy == corev1.PullNever:
		return "", fmt.Errorf("image %q is not present with pull policy of Never", v.Image.Reference)
	}
	w.pullVolume(ctx, pod, v)
	return "", errOnItsWay
}

// mountedImage finds what stands under a key; "" when nothing does.
func (w *worker) mountedImage(ctx context.Context, key string) (string, error) {
	all, err := w.a.cfg.Images.List(ctx)
	if err != nil {
		return "", err
	}
	for _, img := range all {
		if slices.Contains(img.UsedBy, key) {
			return img.ID, nil
		}
	}
	return "", nil
}

func (w *worker) pullVolume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) {
	ctx, stop := context.WithCancel(ctx)
	p := &pulling{ref: v.Image.Reference, stop: stop}
	w.images.mu.Lock()
	if w.images.pulls == nil {
		w.images.pulls = map[string]*pulling{}
	}
	w.images.pulls[v.Name] = p
	w.images.mu.Unlock()
	w.a.event(pod, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", p.ref))
	w.helpers.Go(func() {
		defer stop()
		as := &corev1.Container{Image: p.ref, ImagePullPolicy: v.Image.PullPolicy}
		out, err := w.a.hands.pullNow(ctx, pod, as)
		if err == nil {
			w.a.event(pod, corev1.EventTypeNormal, "Pulled", pulledText(p.ref, out))
		}
		w.images.mu.Lock()
		p.over, p.out, p.err = true, out, err
		w.images.mu.Unlock()
		w.poke()
	})
}

// stopImages ends pulls that nobody waits for any more.
func (w *worker) stopImages() {
	w.images.mu.Lock()
	defer w.images.mu.Unlock()
	for _, p := range w.images.pulls {
		p.stop()
	}
}

// unmountImages undoes mountImages.
func (w *worker) unmountImages(ctx context.Context, pod *corev1.Pod) error {
	w.stopImages()
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image != nil {
			if err := w.a.cfg.Images.Unmount(ctx, imageVolumeKey(pod, v.Name)); err != nil {
				return fmt.Errorf("unmount volume %s: %w", v.Name, err)
			}
			delete(w.images.roots, v.Name)
		}
	}
	return nil
}
