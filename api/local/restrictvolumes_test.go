package local

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/kinds"
	apistorage "ledge/api/storage"
	"ledge/storage"
)

// withVolumes is a client of a store that has claims.
func withVolumes(t *testing.T) *Client {
	t.Helper()
	all := *kinds.All
	for _, k := range []*api.Kind{api.PersistentVolumeClaims, api.PersistentVolumes, apistorage.StorageClasses} {
		if !slices.Contains(all.Kept, k) {
			all.Kept = append(slices.Clone(all.Kept), k)
		}
	}
	s, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true, RingSize: 512, Rehearse: true, Kinds: &all})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := New(Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func size(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
}

func newClaim(name, node string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size("1Gi")}}}
	if node != "" {
		c.Annotations = map[string]string{api.SelectedNode: node}
	}
	return c
}

// cardVolume is the volume that a board makes for a claim.
func cardVolume(c *corev1.PersistentVolumeClaim, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: api.VolumeFor(c), Annotations: map[string]string{api.ProvisionedBy: api.CardProvisioner},
			Finalizers: []string{api.VolumeProtection, api.CardFinalizer}},
		Spec: corev1.PersistentVolumeSpec{Capacity: size("1Gi"), AccessModes: c.Spec.AccessModes, NodeAffinity: api.OnlyOn(node),
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/var/lib/ledge/claims/x"}},
			StorageClassName:       api.ClassOfClaim(c), PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID}}}
}

// N-13.1: a node makes, measures and lets go of the volumes of claims that are selected for it, and touches no others.
func TestNodeRestrictionOfVolumes(t *testing.T) {
	c := withVolumes(t)
	ctx, n1, n2 := t.Context(), asNode(t, "n1"), asNode(t, "n2")
	mine, err := api.Create(ctx, c, api.PersistentVolumeClaims, newClaim("mine", "n1"))
	if err != nil {
		t.Fatal(err)
	}
	open, err := api.Create(ctx, c, api.PersistentVolumeClaims, newClaim("open", ""))
	if err != nil {
		t.Fatal(err)
	}
	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	volume := func(change func(v *corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := cardVolume(mine, "n1")
		change(v)
		return v
	}
	for what, v := range map[string]*corev1.PersistentVolume{
		"a volume on another node":    volume(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = api.OnlyOn("n2") }),
		"a volume of another name":    volume(func(v *corev1.PersistentVolume) { v.Name = "data" }),
		"a volume for any claim":      volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }),
		"a volume for a former claim": volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "gone" }),
		"a volume of another class":   volume(func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "gold" }),
		"a volume without finalizer":  volume(func(v *corev1.PersistentVolume) { v.Finalizers = nil }),
		"a volume by somebody else":   volume(func(v *corev1.PersistentVolume) { v.Annotations = nil }),
		"a volume nobody chose":       cardVolume(open, "n1"),
	} {
		_, err := api.Create(n1, c, api.PersistentVolumes, v)
		forbidden(what, err)
	}
	_, err = api.Create(n2, c, api.PersistentVolumes, volume(func(*corev1.PersistentVolume) {}))
	forbidden("the volume of another node", err)
	v, err := api.Create(n1, c, api.PersistentVolumes, volume(func(*corev1.PersistentVolume) {}))
	if err != nil {
		t.Fatalf("its own volume: %v", err)
	}

	restrictedUpdates(t, c, mine, open, v)
}

// restrictedUpdates is the half of changes.
func restrictedUpdates(t *testing.T, c *Client, mine, open *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
	ctx, n1, n2 := t.Context(), asNode(t, "n1"), asNode(t, "n2")
	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	update := func(as context.Context, obj api.Object, sub string) error {
		kind, err := c.store.Kinds().Of(obj)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Update(as, kind, obj, api.WriteOptions{Subresource: sub, DryRun: true})
		return err
	}
	larger := v.DeepCopy()
	larger.Spec.Capacity = size("2Gi")
	if err := update(n1, larger, ""); err != nil {
		t.Errorf("its size: %v", err)
	}
	forbidden("the size of another node's volume", update(n2, larger, ""))
	other := v.DeepCopy()
	other.Spec.ClaimRef = nil
	forbidden("another claim", update(n1, other, ""))
	forbidden("a finalizer of what stays", update(n1, func() api.Object { o := v.DeepCopy(); o.Finalizers = nil; return o }(), ""))
	phase := v.DeepCopy()
	phase.Status.Phase = corev1.VolumeBound
	forbidden("its phase", update(n1, phase, api.StatusSub))

	conditions := mine.DeepCopy()
	conditions.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing,
		Status: corev1.ConditionTrue}}
	if err := update(n1, conditions, api.StatusSub); err != nil {
		t.Errorf("a condition of a claim: %v", err)
	}
	forbidden("a condition of another node's claim", update(n2, conditions, api.StatusSub))
	binding := mine.DeepCopy()
	binding.Status.Phase = corev1.ClaimBound
	forbidden("a claim's phase", update(n1, binding, api.StatusSub))
	binding = mine.DeepCopy()
	binding.Spec.VolumeName = v.Name
	forbidden("a claim's volume", update(n1, binding, ""))
	taken := open.DeepCopy()
	taken.Annotations = map[string]string{api.SelectedNode: "n1"}
	forbidden("choosing itself", update(n1, taken, ""))
	back := mine.DeepCopy()
	back.Annotations = nil
	if err := update(n1, back, ""); err != nil {
		t.Errorf("giving a claim back: %v", err)
	}

	_, err := c.Delete(n1, api.PersistentVolumes, "", v.Name, api.DeleteOptions{})
	forbidden("deleting its volume", err)
	if _, err := c.Delete(ctx, api.PersistentVolumes, "", v.Name, api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	going, err := api.Get[*corev1.PersistentVolume](ctx, c, api.PersistentVolumes, "", v.Name)
	if err != nil {
		t.Fatal(err)
	}
	going.Finalizers = slices.DeleteFunc(going.Finalizers, func(f string) bool { return f == api.CardFinalizer })
	if err := update(n1, going, ""); err != nil {
		t.Errorf("letting go: %v", err)
	}
	going.Finalizers = nil
	forbidden("letting go for others", update(n1, going, ""))
}

// TestNodeUses: a node reads the claims that are selected for it or that its pods name, and their volumes.
func TestNodeUses(t *testing.T) {
	c := withVolumes(t)
	ctx := t.Context()
	chosen, err := api.Create(ctx, c, api.PersistentVolumeClaims, newClaim("chosen", "n1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Create(ctx, c, api.PersistentVolumeClaims, newClaim("named", "")); err != nil {
		t.Fatal(err)
	}
	share := cardVolume(newClaim("named", ""), "n1")
	share.Name, share.Spec.NodeAffinity, share.Spec.Local = "share", nil, nil
	share.Spec.NFS = &corev1.NFSVolumeSource{Server: "s", Path: "/p"}
	for _, v := range []*corev1.PersistentVolume{cardVolume(chosen, "n1"), share} {
		if _, err := api.Create(ctx, c, api.PersistentVolumes, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		node      string
		kind      *api.Kind
		namespace string
		name      string
		want      bool
	}{
		{"n1", api.PersistentVolumeClaims, "default", "chosen", true},
		{"n2", api.PersistentVolumeClaims, "default", "chosen", false},
		{"n1", api.PersistentVolumeClaims, "default", "named", false},
		{"n1", api.PersistentVolumeClaims, "default", "none", false},
		{"n1", api.PersistentVolumes, "", api.VolumeFor(chosen), true},
		{"n2", api.PersistentVolumes, "", api.VolumeFor(chosen), false},
		{"n1", api.PersistentVolumes, "", "share", false},
	} {
		got, err := c.NodeUses(test.node, test.kind, test.namespace, test.name)
		if err != nil || got != test.want {
			t.Errorf("%s uses %s %s: %v (%v)", test.node, test.kind.Singular, test.name, got, err)
		}
	}
}
