package local

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	apistorage "ledge/api/storage"
)

// N-13.8: a claim without a class gets the default one, which is made once for each store, and is held.
func TestDefaultClassOfClaims(t *testing.T) {
	c := withVolumes(t)
	ctx := t.Context()
	classOf := func(name string) *string {
		t.Helper()
		made, err := api.Create(ctx, c, api.PersistentVolumeClaims, newClaim(name, ""))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(made.Finalizers, []string{api.ClaimProtection}) || made.Status.Phase != corev1.ClaimPending {
			t.Errorf("%s: %v, %s", name, made.Finalizers, made.Status.Phase)
		}
		return made.Spec.StorageClassName
	}
	if got := classOf("early"); got == nil || *got != apistorage.CardClass {
		t.Errorf("a new store gives %v", got)
	}
	if _, err := c.Delete(ctx, apistorage.StorageClasses, "", apistorage.CardClass, api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	if got := classOf("later"); got != nil {
		t.Errorf("the class that somebody deleted is there again: %s", *got)
	}
}

// N-13.9: a bound claim of a class that lets claims grow may ask for more, and no other one.
func TestGrowingClaims(t *testing.T) {
	c := withVolumes(t)
	ctx := t.Context()
	fixed := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Provisioner: "x.io/y"}
	if _, err := api.Create(ctx, c, apistorage.StorageClasses, fixed); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, class string
		bound       bool
		want        string
	}{
		{"open", "local", false, "only bound persistent volume claims can be expanded"},
		{"bound", "local", true, ""},
		{"fixed", "fixed", true, "only dynamically provisioned pvc can be resized"},
		{"by hand", "", true, "only dynamically provisioned pvc can be resized"},
	} {
		claim := newClaim(strings.ReplaceAll(test.name, " ", "-"), "")
		claim.Spec.StorageClassName = &test.class
		claim, err := api.Create(ctx, c, api.PersistentVolumeClaims, claim)
		if err != nil {
			t.Fatal(err)
		}
		if test.bound {
			claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, size("1Gi")
			out, err := c.Update(ctx, api.PersistentVolumeClaims, claim, api.WriteOptions{Subresource: api.StatusSub})
			if err != nil {
				t.Fatal(err)
			}
			claim = out.(*corev1.PersistentVolumeClaim)
		}
		claim.Spec.Resources.Requests = size("2Gi")
		_, err = c.Update(ctx, api.PersistentVolumeClaims, claim, api.WriteOptions{})
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsForbidden(err) ||
			!strings.Contains(strings.ToLower(err.Error()), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
