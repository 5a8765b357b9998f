package api_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
)

const (
	claim  = `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`
	volume = `{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"}}`
)

// object is a sample of a kind with what else is said of its spec.
func object(t *testing.T, kind *api.Kind, spec, more string) api.Object {
	t.Helper()
	obj := kind.New()
	for _, text := range []string{spec, more} {
		if err := json.Unmarshal([]byte(`{"spec":`+text+`}`), obj); err != nil {
			t.Fatal(err)
		}
	}
	obj.SetName("x")
	if kind.Namespaced {
		obj.SetNamespace("n")
	}
	kind.Default(obj)
	return obj
}

// refusal is the field that an error names first, and its words.
func refusal(err error) string {
	var status *apierrors.StatusError
	if err == nil || !errors.As(err, &status) || status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 {
		return ""
	}
	c := status.ErrStatus.Details.Causes[0]
	return c.Field + ": " + c.Message
}

// N-13.2: what claims and volumes may say.
func TestVolumeKinds(t *testing.T) {
	for _, test := range []struct {
		kind       *api.Kind
		spec, more string
		want       string
	}{
		{api.PersistentVolumeClaims, claim, `{}`, ""},
		{api.PersistentVolumeClaims, claim, `{"accessModes":[]}`, "spec.accessModes: Required"},
		{api.PersistentVolumeClaims, claim, `{"accessModes":["Any"]}`, "spec.accessModes: Unsupported value"},
		{api.PersistentVolumeClaims, claim, `{"accessModes":["ReadWriteOncePod","ReadOnlyMany"]}`, "spec.accessModes: Forbidden"},
		{api.PersistentVolumeClaims, claim, `{"accessModes":["ReadWriteOncePod"],"storageClassName":"","volumeMode":"Block"}`, ""},
		{api.PersistentVolumeClaims, claim, `{"resources":{"requests":{"storage":"0"}}}`, "spec.resources[storage]: Invalid"},
		{api.PersistentVolumeClaims, claim, `{"resources":{"requests":{"storage":"100m"}}}`, "spec.resources[storage]: Invalid"},
		{api.PersistentVolumeClaims, claim, `{"resources":{"requests":{"storage":"900Pi"}}}`, ""}, // in thousandths more than 63 bits
		{api.PersistentVolumeClaims, claim, `{"resources":{"requests":{"storage":"9Ei"}}}`, ""},   // as the largest number, as on Kubernetes
		{api.PersistentVolumeClaims, claim, `{"resources":{"requests":{"storage":"1.5"}}}`,
			`spec.resources[storage]: Invalid value: "1500m": must be an integer`},
		{api.PersistentVolumeClaims, claim, `{"resources":{"requests":{"storage":"10E"}}}`,
			`spec.resources[storage]: Invalid value: "10E": must be at most 9223372036854775807`},
		{api.PersistentVolumeClaims, `{"accessModes":["ReadWriteOnce"]}`, `{}`, "spec.resources[storage]: Required"},
		{api.PersistentVolumeClaims, claim, `{"storageClassName":"../x"}`, "spec.storageClassName: Invalid"},
		{api.PersistentVolumeClaims, claim, `{"volumeMode":"Tape"}`, "spec.volumeMode: Unsupported"},
		{api.PersistentVolumeClaims, claim, `{"selector":{"matchLabels":{"a b":"c"}}}`, "spec.selector.matchLabels: Invalid"},
		{api.PersistentVolumeClaims, claim, `{"dataSource":{"kind":"PersistentVolumeClaim","name":"d"}}`,
			"spec.dataSource: Forbidden: not supported by ledge yet"},
		{api.PersistentVolumeClaims, claim, `{"volumeAttributesClassName":"gold"}`, "spec.volumeAttributesClassName: Forbidden"},

		{api.PersistentVolumes, volume, `{}`, ""},
		{api.PersistentVolumes, volume, `{"capacity":{"cpu":"1"}}`, "spec.capacity: Unsupported"},
		{api.PersistentVolumes, volume, `{"capacity":{"storage":"-1"}}`, "spec.capacity[storage]: Invalid"},
		{api.PersistentVolumes, volume, `{"capacity":{"storage":"900Pi"}}`, ""},
		{api.PersistentVolumes, volume, `{"persistentVolumeReclaimPolicy":"Recycle"}`, "spec.persistentVolumeReclaimPolicy: Unsupported"},
		{api.PersistentVolumes, volume, `{"nfs":{"server":"s","path":"/p"}}`, "spec.nfs: Forbidden: may not specify more than 1"},
		{api.PersistentVolumes, volume, `{"hostPath":null}`, "spec: Required value: must specify a volume type"},
		{api.PersistentVolumes, volume, `{"hostPath":{"path":"/a/../b"}}`, "spec.hostPath.path: Invalid"},
		{api.PersistentVolumes, volume, `{"hostPath":null,"nfs":{"server":"s","path":"p"}}`, "spec.nfs.path: Invalid"},
		{api.PersistentVolumes, volume, `{"hostPath":null,"local":{"path":"/p"}}`, "spec.nodeAffinity: Required"},
		{api.PersistentVolumes, volume, `{"nodeAffinity":{}}`, "spec.nodeAffinity.required: Required"},
		{api.PersistentVolumes, volume, `{"hostPath":null,"csi":{"driver":"d"}}`, "spec.csi.volumeHandle: Required"},
		{api.PersistentVolumes, volume, `{"hostPath":null,"csi":{"driver":"d","volumeHandle":"h"}}`, ""},
		{api.PersistentVolumes, volume, `{"hostPath":null,"rbd":{"monitors":["m"],"image":"i"}}`, "spec.rbd: Forbidden: not supported by ledge yet"},
	} {
		err := test.kind.Validate(object(t, test.kind, test.spec, test.more))
		if got := refusal(err); !strings.HasPrefix(got, test.want) || (test.want == "") != (err == nil) {
			t.Errorf("%s %s: %q, want %q", test.kind, test.more, got, test.want)
		}
	}
}

// N-13.3: what may become of a claim and a volume.
func TestVolumeChanges(t *testing.T) {
	bound := func(c *corev1.PersistentVolumeClaim) {
		c.Status.Phase = corev1.ClaimBound
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	}
	for _, test := range []struct {
		kind         *api.Kind
		before, more string
		bound        bool
		want         string
	}{
		{api.PersistentVolumeClaims, `{}`, `{"volumeName":"v"}`, false, ""},
		{api.PersistentVolumeClaims, `{"volumeName":"v"}`, `{"volumeName":"w"}`, false, "spec: Forbidden: spec is immutable"},
		{api.PersistentVolumeClaims, `{}`, `{"storageClassName":"c"}`, false, ""},
		{api.PersistentVolumeClaims, `{"storageClassName":"b"}`, `{"storageClassName":"c"}`, false, "spec: Forbidden: spec is immutable"},
		{api.PersistentVolumeClaims, `{}`, `{"resources":{"requests":{"storage":"2Gi"}}}`, false, "spec: Forbidden: spec is immutable"},
		{api.PersistentVolumeClaims, `{}`, `{"resources":{"requests":{"storage":"2Gi"}}}`, true, ""},
		{api.PersistentVolumeClaims, `{"resources":{"requests":{"storage":"3Gi"}}}`, `{"resources":{"requests":{"storage":"2Gi"}}}`, true, ""},
		{api.PersistentVolumeClaims, `{"resources":{"requests":{"storage":"3Gi"}}}`, `{"resources":{"requests":{"storage":"1Gi"}}}`, true,
			"spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"},
		{api.PersistentVolumeClaims, `{}`, `{"volumeMode":"Block"}`, true, "spec: Forbidden"},
		{api.PersistentVolumes, `{}`, `{"hostPath":{"path":"/y"}}`, false, "spec.persistentvolumesource: Forbidden"},
		{api.PersistentVolumes, `{}`, `{"volumeMode":"Block"}`, false, "volumeMode: Invalid"},
		{api.PersistentVolumes, `{}`, `{"capacity":{"storage":"2Gi"},"persistentVolumeReclaimPolicy":"Delete"}`, false, ""},
	} {
		spec := claim
		if test.kind == api.PersistentVolumes {
			spec = volume
		}
		old, obj := object(t, test.kind, spec, test.before), object(t, test.kind, spec, test.more)
		for _, o := range []api.Object{old, obj} {
			o.SetResourceVersion("1")
			if c, ok := o.(*corev1.PersistentVolumeClaim); ok && test.bound {
				bound(c)
			}
		}
		err := test.kind.ValidateUpdate(obj, old, "")
		if got := refusal(err); !strings.HasPrefix(got, test.want) || (test.want == "") != (err == nil) {
			t.Errorf("%s %s -> %s: %q, want %q", test.kind, test.before, test.more, got, test.want)
		}
	}
}

// TestVolumesPlace: a volume says which node it lies on, and a pod which claims it uses.
func TestVolumesPlace(t *testing.T) {
	v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: api.OnlyOn("n1")}}
	if got := api.NodeOfVolume(v); got != "n1" {
		t.Errorf("it lies on %q", got)
	}
	v.Spec.NodeAffinity.Required.NodeSelectorTerms = append(v.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{})
	if got := api.NodeOfVolume(v); got != "" {
		t.Errorf("with a choice it lies on %q", got)
	}
	pod := &corev1.Pod{}
	pod.Name = "p"
	named := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: named("c")}, {Name: "b", VolumeSource: named("c")}, {Name: "e",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}, {Name: "d"}}
	if got := strings.Join(api.ClaimsOf(pod), " "); got != "c p-e" {
		t.Errorf("it uses %s", got)
	}
}
