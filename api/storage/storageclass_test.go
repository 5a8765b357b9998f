package storage_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/storage"
)

// N-13.2: what classes may say, and what may become of them.
func TestStorageClasses(t *testing.T) {
	terms := func(values ...string) []corev1.TopologySelectorTerm {
		return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: values}}}}
	}
	retain := corev1.PersistentVolumeReclaimRetain
	recycle := corev1.PersistentVolumeReclaimRecycle
	later := storagev1.VolumeBindingMode("Later")
	for what, test := range map[string]struct {
		change     func(c *storagev1.StorageClass)
		want, next string // as a new one, as a change of the card's class
	}{
		"provisioner": {func(c *storagev1.StorageClass) { c.Provisioner = "" }, "provisioner: Required", "provisioner: Required"},
		"other":       {func(c *storagev1.StorageClass) { c.Provisioner = "other.io/x" }, "", "provisioner: Invalid"},
		"no name":     {func(c *storagev1.StorageClass) { c.Provisioner = "a b" }, "provisioner: Invalid", "provisioner: Invalid"},
		"empty key":   {func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"": "x"} }, "parameters: Invalid", "parameters: Invalid"},
		"too large": {func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"a": strings.Repeat("x", 256<<10)} },
			"parameters: Too long", "parameters: Too long"},
		"parameters": {func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"disk": "b"} }, "", "parameters: Invalid"},
		"policy":     {func(c *storagev1.StorageClass) { c.ReclaimPolicy = &retain }, "", "reclaimPolicy: Invalid"},
		"at once":    {func(c *storagev1.StorageClass) { c.VolumeBindingMode = nil }, "volumeBindingMode: Invalid", "volumeBindingMode: Invalid"},
		"recycle":    {func(c *storagev1.StorageClass) { c.ReclaimPolicy = &recycle }, "reclaimPolicy: Unsupported", "reclaimPolicy: Unsupported"},
		"mode": {func(c *storagev1.StorageClass) { c.VolumeBindingMode = &later },
			"volumeBindingMode: Unsupported", "volumeBindingMode: Unsupported"},
		"topology": {func(c *storagev1.StorageClass) { c.AllowedTopologies = terms("a", "b") }, "", ""},
		"none of them": {func(c *storagev1.StorageClass) { c.AllowedTopologies = terms() },
			"allowedTopologies[0].matchLabelExpressions[0].values: Required", "allowedTopologies[0]"},
		"twice": {func(c *storagev1.StorageClass) { c.AllowedTopologies = terms("a", "a") },
			"allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate", "allowedTopologies[0]"},
		"may not grow":  {func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = nil }, "", ""},
		"mount options": {func(c *storagev1.StorageClass) { c.MountOptions = []string{"noatime"} }, "", ""},
	} {
		c, old := storage.Card(), storage.Card()
		c.ResourceVersion, old.ResourceVersion = "1", "1"
		test.change(c)
		storage.StorageClasses.Default(c)
		for want, err := range map[string]error{"new|" + test.want: storage.StorageClasses.Validate(c),
			"changed|" + test.next: storage.StorageClasses.ValidateUpdate(c, old, "")} {
			_, words, _ := strings.Cut(want, "|")
			if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
}

// N-13.4: of several defaults the newest counts, and of those the first by name.
func TestDefaultClass(t *testing.T) {
	class := func(name string, age time.Duration, is string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name,
			CreationTimestamp: metav1.Time{Time: time.Unix(1e9, 0).Add(-age)},
			Annotations:       map[string]string{api.DefaultClass: is}}}
	}
	all := []*storagev1.StorageClass{class("old", time.Hour, "true"), class("b", 0, "true"), class("a", 0, "true"),
		class("newest", -time.Hour, "false")}
	if got := storage.Default(all); got == nil || got.Name != "a" {
		t.Errorf("the default is %v", got)
	}
	if got := storage.Default(all[3:]); got != nil {
		t.Errorf("the default is %v", got)
	}
	if c := storage.Card(); !storage.IsDefault(c) || !storage.Waits(c) || !storage.Grows(c) {
		t.Error("the card's class is not what it is to be")
	}
}
