package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/storage"
	"ledge/node/downward"
	"ledge/node/volume"
)

// sources are the ConfigMaps and Secrets that the pods of this board name: each is followed by one watch of one
// object while a pod names it, and nothing else is ever read. A node identity may do exactly that, here and on
// Kubernetes.
type sources struct {
	client  api.Client
	changed func(types.UID) // a pod that names something that has changed
	wake    chan struct{}   // capacity 1

	mu   sync.Mutex
	held map[sourceKey]*source
}

// sourceKey names one object.
type sourceKey struct {
	kind            *api.Kind
	namespace, name string
}

func (k sourceKey) String() string { return fmt.Sprintf("%s %q", k.kind.Singular, k.name) }

type source struct {
	view *api.View[api.Object]
	pods map[types.UID]bool
	stop context.CancelFunc // set while it is followed
}

func newSources(c api.Client, changed func(types.UID)) *sources {
	return &sources{client: c, changed: changed, wake: make(chan struct{}, 1), held: map[sourceKey]*source{}}
}

// hold says what a pod names; release that it is gone. Run does the rest.
func (s *sources) hold(pod *corev1.Pod) {
	for _, key := range namedBy(pod) {
		s.mu.Lock()
		src := s.held[key]
		if src == nil {
			sel := api.Selection{Namespace: key.namespace, Fields: fields.OneTermEqualSelector("metadata.name", key.name)}
			src = &source{view: api.NewView[api.Object](s.client, key.kind, sel), pods: map[types.UID]bool{}}
			s.held[key] = src
		}
		src.pods[pod.UID] = true
		s.mu.Unlock()
	}
	s.poke()
}

func (s *sources) release(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, src := range s.held {
		delete(src.pods, uid)
	}
	s.poke()
}

func (s *sources) poke() {
	nudge(s.wake)
}

// Run follows what is held until ctx ends.
func (s *sources) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for {
		s.mu.Lock()
		for key, src := range s.held {
			switch {
			case len(src.pods) == 0:
				if src.stop != nil {
					src.stop()
				}
				delete(s.held, key)
			case src.stop == nil:
				var one context.Context
				one, src.stop = context.WithCancel(ctx)
				g.Go(func() error { return src.view.Run(one) })
				g.Go(func() error { return s.tell(one, src) })
			}
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-s.wake:
		}
	}
}

// tell pokes the pods that name an object whenever it has changed.
func (s *sources) tell(ctx context.Context, src *source) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-src.view.Changed():
		}
		s.mu.Lock()
		pods := make([]types.UID, 0, len(src.pods))
		for uid := range src.pods {
			pods = append(pods, uid)
		}
		s.mu.Unlock()
		for _, uid := range pods {
			s.changed(uid)
		}
	}
}

// patience is how long a worker waits to see an object for the first time. The worker is notified when the object
// appears, so this can be short.
const patience = 2 * time.Second

// get is an object as last seen. One that is not there is a Kubernetes "not found".
func (s *sources) get(ctx context.Context, kind *api.Kind, namespace, name string) (api.Object, error) {
	key := sourceKey{kind, namespace, name}
	s.mu.Lock()
	src := s.held[key]
	s.mu.Unlock()
	if src == nil {
		return nil, fmt.Errorf("ledge bug: %s is not followed", key)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-src.view.Synced():
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, fmt.Errorf("failed to sync %s cache: timed out waiting for the condition", kind.Singular)
	}
	if obj, ok := src.view.Get(namespace, name); ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(kind.GR(), name)
}

// ConfigMap and Secret are get with the type of what is asked for.
func (s *sources) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	obj, err := s.get(ctx, api.ConfigMaps, namespace, name)
	if err != nil {
		return nil, plainly(err, api.ConfigMaps, name)
	}
	return obj.(*corev1.ConfigMap), nil
}

func (s *sources) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	obj, err := s.get(ctx, api.Secrets, namespace, name)
	if err != nil {
		return nil, plainly(err, api.Secrets, name)
	}
	return obj.(*corev1.Secret), nil
}

// missing is an object that does not exist, in the words a kubelet has for it.
type missing struct{ what, name string }

func (m missing) Error() string { return fmt.Sprintf("%s %q not found", m.what, m.name) }

func (m missing) Is(target error) bool { return target == volume.ErrNotFound }

func plainly(err error, kind *api.Kind, name string) error {
	if apierrors.IsNotFound(err) {
		return missing{kind.Singular, name}
	}
	return err
}

// podSource is where the volumes of one pod take their files from.
type podSource struct {
	a   *Agent
	pod *corev1.Pod
}

var _ volume.Source = podSource{}

// ConfigMap implements volume.Source.
func (s podSource) ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	return s.a.sources.ConfigMap(ctx, s.pod.Namespace, name)
}

// Secret implements volume.Source.
func (s podSource) Secret(ctx context.Context, name string) (*corev1.Secret, error) {
	return s.a.sources.Secret(ctx, s.pod.Namespace, name)
}

// Token implements volume.Source.
func (s podSource) Token(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
	return s.a.tokens.get(ctx, s.pod, p)
}

// Facts implements volume.Source.
func (s podSource) Facts() downward.Facts { return s.a.board().Facts(s.pod, nil) }

// Claimed implements volume.Source, in a kubelet's words. A node identity may ask for a claim and its volume by name, and no more.
func (s podSource) Claimed(ctx context.Context, vol *corev1.Volume) (*corev1.PersistentVolume, error) {
	name := api.ClaimName(s.pod, vol)
	of := func(err error) error { return fmt.Errorf("error processing PVC %s/%s: %w", s.pod.Namespace, name, err) }
	o, err := s.a.cfg.Client.Get(ctx, api.PersistentVolumeClaims, s.pod.Namespace, name)
	if err != nil {
		return nil, of(fmt.Errorf("failed to fetch PVC from API server: %w", err))
	}
	c := o.(*corev1.PersistentVolumeClaim)
	switch {
	case vol.Ephemeral != nil && !metav1.IsControlledBy(c, s.pod):
		return nil, of(fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name, s.pod.Namespace, s.pod.Name))
	case c.DeletionTimestamp != nil:
		return nil, of(said("can't start pod because PVC is being deleted"))
	case c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName == "":
		return nil, of(said("PVC is not bound"))
	}
	if o, err = s.a.cfg.Client.Get(ctx, api.PersistentVolumes, "", c.Spec.VolumeName); err != nil {
		return nil, of(fmt.Errorf("failed to fetch PV %s from API server: %w", c.Spec.VolumeName, err))
	}
	v := o.(*corev1.PersistentVolume)
	switch r := v.Spec.ClaimRef; {
	case r == nil:
		return nil, of(fmt.Errorf("found PV object %s with nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", v.Name))
	case r.UID != c.UID:
		return nil, of(fmt.Errorf("found PV object %s with a pv.Spec.ClaimRef.UID %s that does not point to claim UID %s", v.Name, r.UID, c.UID))
	}
	if err := s.a.reaches(v); err != nil {
		return nil, fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q : %w", v.Name, err)
	}
	return v, nil
}

// reaches says why a volume cannot be used on this board. A pod may have come here past the scheduler, and the same path is on every board.
func (a *Agent) reaches(v *corev1.PersistentVolume) error {
	if v.Spec.NodeAffinity == nil {
		return nil
	}
	self, ok := a.self.Get("", a.cfg.Name)
	switch {
	case !ok:
		return fmt.Errorf("error retrieving node: node %q not found", a.cfg.Name)
	case !storage.Reaches(v, self):
		return said("no matching NodeSelectorTerms")
	}
	return nil
}

// namedBy are the ConfigMaps and Secrets that a pod names, each once.
func namedBy(pod *corev1.Pod) []sourceKey {
	configMaps, secrets := api.References(pod)
	var out []sourceKey
	for _, name := range configMaps {
		out = append(out, sourceKey{api.ConfigMaps, pod.Namespace, name})
	}
	for _, name := range secrets {
		out = append(out, sourceKey{api.Secrets, pod.Namespace, name})
	}
	return out
}
