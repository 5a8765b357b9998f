package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
)

// server answers like an API server that holds one node and its lease, and fails when told to.
type server struct {
	api.Client // anything else asked for is a bug of the Renewer and panics
	node       *corev1.Node
	lease      *coordinationv1.Lease
	rev        int
	began      time.Time
	log        []string // "10s update"
	fail       func(verb string) error
}

func newServer() *server {
	return &server{began: time.Now(), node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}}
}

func (s *server) did(verb string) error {
	s.log = append(s.log, fmt.Sprintf("%s %s", time.Since(s.began), verb))
	if s.fail != nil {
		return s.fail(verb)
	}
	return nil
}

func (s *server) Get(_ context.Context, k *api.Kind, namespace, name string) (api.Object, error) {
	if err := s.did("get " + k.Singular); err != nil {
		return nil, err
	}
	switch {
	case k == api.Nodes && s.node != nil && name == s.node.Name:
		return s.node.DeepCopy(), nil
	case k == coordination.Leases && s.lease != nil && namespace == "kube-node-lease" && name == s.lease.Name:
		return s.lease.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(k.GR(), name)
}

func (s *server) write(obj api.Object) api.Object {
	s.rev++
	s.lease = obj.(*coordinationv1.Lease).DeepCopy()
	s.lease.ResourceVersion = fmt.Sprint(s.rev)
	return s.lease.DeepCopy()
}

func (s *server) Create(_ context.Context, k *api.Kind, obj api.Object, _ api.WriteOptions) (api.Object, error) {
	if err := s.did("create"); err != nil {
		return nil, err
	}
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(k.GR(), obj.GetName())
	}
	return s.write(obj), nil
}

func (s *server) Update(_ context.Context, k *api.Kind, obj api.Object, _ api.WriteOptions) (api.Object, error) {
	if err := s.did("update"); err != nil {
		return nil, err
	}
	if s.lease == nil {
		return nil, apierrors.NewNotFound(k.GR(), obj.GetName())
	}
	if obj.GetResourceVersion() != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(k.GR(), obj.GetName(), errors.New("changed"))
	}
	return s.write(obj), nil
}

// renewing runs a Renewer against s for d.
func renewing(t *testing.T, s *server, d time.Duration, cfg RenewerConfig) {
	t.Helper()
	cfg.Client, cfg.Node = s, "n"
	r, err := NewRenewer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatalf("Run: %v", err)
	}
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestLeaseObject: N-2.1, N-2.3, N-2.7, N-2.9.
func TestLeaseObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		renewing(t, s, time.Second, RenewerConfig{})
		l := s.lease
		if l.Namespace != "kube-node-lease" || l.Name != "n" || *l.Spec.HolderIdentity != "n" || *l.Spec.LeaseDurationSeconds != 40 ||
			!l.Spec.RenewTime.Time.Equal(s.began) || l.Spec.AcquireTime != nil || l.Spec.LeaseTransitions != nil {
			t.Errorf("lease %+v", l.Spec)
		}
		want(t, s.log, "0s get lease", "0s get node", "0s create")
		if o := l.OwnerReferences; len(o) != 1 || o[0] != (metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-uid"}) {
			t.Errorf("owners %+v", o)
		}
		// A new process with another setting takes over the same lease; a missing owner is put back.
		s.log, s.lease.OwnerReferences = nil, nil
		s.began = time.Now()
		renewing(t, s, time.Second, RenewerConfig{Duration: 20 * time.Second})
		want(t, s.log, "0s get lease", "0s get node", "0s update")
		if *s.lease.Spec.LeaseDurationSeconds != 20 || len(s.lease.OwnerReferences) != 1 {
			t.Errorf("lease %+v", s.lease)
		}
	})
}

// TestRenewalPeriod: a quarter of the duration, stretched by up to 4 %, from memory without reading (N-2.2, N-2.4).
func TestRenewalPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var at []time.Time
		s.fail = func(verb string) error {
			if verb == "update" || verb == "create" {
				at = append(at, time.Now())
			} else if len(at) > 0 {
				t.Errorf("%s after the first renewal", verb)
			}
			return nil
		}
		renewing(t, s, time.Hour, RenewerConfig{})
		if len(at) < 346 || len(at) > 361 {
			t.Errorf("%d renewals in an hour", len(at))
		}
		varied := false
		for i := 1; i < len(at); i++ {
			gap := at[i].Sub(at[i-1])
			if gap < 10*time.Second || gap > 10400*time.Millisecond {
				t.Errorf("gap of %s", gap)
			}
			varied = varied || gap != at[1].Sub(at[0])
		}
		if !varied {
			t.Error("no jitter")
		}
	})
}

// TestNoLeaseBeforeNode: N-2.3.
func TestNoLeaseBeforeNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.node = nil
		renewing(t, s, 5*time.Second, RenewerConfig{})
		want(t, s.log, "0s get lease", "0s get node") // not again before the next round
		if s.lease != nil {
			t.Error("a lease before its node")
		}
	})
}

// TestFiveTries: N-2.5, N-2.6.
func TestFiveTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		hooks := 0
		renewing(t, s, time.Second, RenewerConfig{})
		s.log, s.began = nil, time.Now()
		s.fail = func(verb string) error {
			if verb == "update" {
				return apierrors.NewInternalError(errors.New("disk"))
			}
			return nil
		}
		r := &Renewer{cfg: RenewerConfig{Client: s, Node: "n", Duration: 40 * time.Second, Failing: func() { hooks++ }}, last: s.lease}
		if err := r.sync(t.Context()); err == nil || !apierrors.IsInternalError(errors.Unwrap(err)) {
			t.Errorf("err %v", err)
		}
		// Five from memory, then ensured by a read, then five more; all without waiting.
		u := "0s update"
		want(t, s.log, u, u, u, u, u, "0s get lease", u, u, u, u, u)
		if hooks != 8 {
			t.Errorf("the hook ran %d times, want from the second failure of each five", hooks)
		}
	})
}

// TestConflict re-reads and counts as one try (N-2.5).
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		renewing(t, s, time.Second, RenewerConfig{})
		old := s.lease.DeepCopy()
		s.write(s.lease) // somebody else wrote
		s.log, s.began = nil, time.Now()
		r := &Renewer{cfg: RenewerConfig{Client: s, Node: "n", Duration: 40 * time.Second}, last: old}
		if err := r.sync(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, s.log, "0s update", "0s get lease", "0s update")
	})
}

// TestEnsureBackoff: 200 ms doubling to 7 s, without end (N-2.6); and a server that comes back is used at once.
func TestEnsureBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		up := false
		s.fail = func(string) error {
			if !up {
				return apierrors.NewServiceUnavailable("down")
			}
			return nil
		}
		renewing(t, s, 30*time.Second, RenewerConfig{})
		g := " get lease"
		want(t, s.log, "0s"+g, "200ms"+g, "600ms"+g, "1.4s"+g, "3s"+g, "6.2s"+g, "12.6s"+g, "19.6s"+g, "26.6s"+g)
		up = true
		s.log, s.began = nil, time.Now()
		renewing(t, s, time.Second, RenewerConfig{})
		want(t, s.log, "0s get lease", "0s get node", "0s create")
	})
}

// TestDeletedLease is made again (N-2.4 falls back to N-2.6).
func TestDeletedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.fail = func(verb string) error {
			if verb == "update" && time.Since(s.began) < 11*time.Second {
				s.lease = nil
			}
			return nil
		}
		renewing(t, s, 12*time.Second, RenewerConfig{})
		if s.lease == nil {
			t.Errorf("not made again: %q", s.log)
		}
	})
}

// TestHungServer: one request that never answers must not hold up the next renewal for ever.
func TestHungServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r, err := NewRenewer(RenewerConfig{Client: &hung{server: s, for1st: 1}, Node: "n"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if err := r.Run(ctx); err != nil || s.lease == nil {
			t.Errorf("lease %v, err %v", s.lease, err)
		}
	})
}

type hung struct {
	*server
	for1st int
}

func (h *hung) Get(ctx context.Context, k *api.Kind, ns, name string) (api.Object, error) {
	if h.for1st > 0 {
		h.for1st--
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.server.Get(ctx, k, ns, name)
}

// TestRenewerConfig refuses what cannot work.
func TestRenewerConfig(t *testing.T) {
	for _, cfg := range []RenewerConfig{{}, {Client: &server{}}, {Client: &server{}, Node: "n", Duration: time.Millisecond}} {
		if _, err := NewRenewer(cfg); err == nil {
			t.Errorf("%+v accepted", cfg)
		}
	}
}
