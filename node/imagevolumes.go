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
	w     *worker
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
func (iv *imageVolumes) mountImages(ctx context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image == nil || iv.roots[v.Name] != "" {
			continue
		}
		id, err := iv.imageOf(ctx, pod, v)
		if errors.Is(err, errOnItsWay) {
			return err
		}
		root := ""
		if err == nil {
			root, err = iv.w.a.cfg.Images.Mount(ctx, id, imageVolumeKey(pod, v.Name))
		}
		if err != nil {
			return &fault{"FailedMount", fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)}
		}
		if iv.roots == nil {
			iv.roots = map[string]string{}
		}
		iv.roots[v.Name] = root
	}
	return nil
}

// imageOf is the image a volume is of: the one that is mounted since before this process, or by its pull policy.
func (iv *imageVolumes) imageOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (id string, err error) {
	if id, err = iv.mountedImage(ctx, imageVolumeKey(pod, v.Name)); err != nil || id != "" {
		return id, err
	}
	iv.mu.Lock()
	p := iv.pulls[v.Name]
	over := p != nil && p.over
	if over {
		delete(iv.pulls, v.Name)
	}
	iv.mu.Unlock()
	img, here := iv.w.a.cfg.Images.Get(ctx, v.Image.Reference)
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
	iv.pullVolume(ctx, pod, v)
	return "", errOnItsWay
}

// mountedImage finds what stands under a key; "" when nothing does.
func (iv *imageVolumes) mountedImage(ctx context.Context, key string) (string, error) {
	all, err := iv.w.a.cfg.Images.List(ctx)
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

func (iv *imageVolumes) pullVolume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) {
	ctx, stop := context.WithCancel(ctx)
	p := &pulling{ref: v.Image.Reference, stop: stop}
	iv.mu.Lock()
	if iv.pulls == nil {
		iv.pulls = map[string]*pulling{}
	}
	iv.pulls[v.Name] = p
	iv.mu.Unlock()
	iv.w.a.event(pod, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", p.ref))
	iv.w.helpers.Go(func() {
		defer stop()
		as := &corev1.Container{Image: p.ref, ImagePullPolicy: v.Image.PullPolicy}
		out, err := iv.w.a.hands.pullNow(ctx, pod, as)
		if err == nil {
			iv.w.a.event(pod, corev1.EventTypeNormal, "Pulled", pulledText(p.ref, out))
		}
		iv.mu.Lock()
		p.over, p.out, p.err = true, out, err
		iv.mu.Unlock()
		iv.w.poke()
	})
}

// stopImages ends pulls that nobody waits for any more.
func (iv *imageVolumes) stopImages() {
	iv.mu.Lock()
	defer iv.mu.Unlock()
	for _, p := range iv.pulls {
		p.stop()
	}
}

// unmountImages undoes mountImages.
func (iv *imageVolumes) unmountImages(ctx context.Context, pod *corev1.Pod) error {
	iv.stopImages()
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image != nil {
			if err := iv.w.a.cfg.Images.Unmount(ctx, imageVolumeKey(pod, v.Name)); err != nil {
				return fmt.Errorf("unmount volume %s: %w", v.Name, err)
			}
			delete(iv.roots, v.Name)
		}
	}
	return nil
}
