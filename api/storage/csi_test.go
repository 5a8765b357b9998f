package storage_test

import (
	"encoding/json"
	"strings"
	"testing"

	"ledge/api"
	"ledge/api/storage"
	"ledge/api/table"
)

// objectOf is an object of a kind as it is sent, with its defaults.
func objectOf(t *testing.T, kind *api.Kind, texts ...string) api.Object {
	t.Helper()
	obj := kind.New()
	for _, text := range texts {
		if err := json.Unmarshal([]byte(text), obj); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	obj.SetName("x")
	obj.SetResourceVersion("1")
	if kind.Namespaced {
		obj.SetNamespace("n")
	}
	kind.Default(obj)
	return obj
}

func wantError(t *testing.T, what string, err error, words string) {
	t.Helper()
	if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v, want %q", what, err, words)
	}
}

const (
	attached = `{"spec":{"attacher":"x.io","nodeName":"n","source":{"persistentVolumeName":"v"}}}`
	inline   = `{"spec":{"attacher":"x.io","nodeName":"n","source":{"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],` +
		`"csi":{"driver":"x.io","volumeHandle":"h"}}}}}`
	registered = `{"spec":{"drivers":[{"name":"x.io","nodeID":"one","topologyKeys":["x.io/zone"],"allocatable":{"count":3}}]}}`
	left       = `{"storageClassName":"c","capacity":"1Gi","nodeTopology":{"matchLabels":{"a":"b"}}}`
	gold       = `{"driverName":"x.io","parameters":{"iops":"100"}}`
)

// driver is a CSINode with one driver that says more.
func driver(more string) string {
	return `{"spec":{"drivers":[{"name":"x.io","nodeID":"one"` + more + `}]}}`
}

func source(more string) string { return `{"spec":{"source":{"inlineVolumeSpec":` + more + `}}}` }

// N-13.14: what objects of these kinds may say.
func TestCSIKinds(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, test := range []struct {
		kind       *api.Kind
		text, more string
		want       string
	}{
		{storage.CSIDrivers, `{}`, `{}`, ""},
		{storage.CSIDrivers, `{}`, `{"spec":{"fsGroupPolicy":"Some"}}`, "spec.fsGroupPolicy: Unsupported"},
		{storage.CSIDrivers, `{}`, `{"spec":{"fsGroupPolicy":""}}`, "spec.fsGroupPolicy: Unsupported"},
		{storage.CSIDrivers, `{}`, `{"spec":{"volumeLifecycleModes":["Ephemeral","Persistent"]}}`, ""},
		{storage.CSIDrivers, `{}`, `{"spec":{"volumeLifecycleModes":["Sometimes"]}}`, "spec.volumeLifecycleModes: Unsupported"},
		{storage.CSIDrivers, `{}`, `{"spec":{"tokenRequests":[{"audience":"a","expirationSeconds":600},{"audience":""}]}}`, ""},
		{storage.CSIDrivers, `{}`, `{"spec":{"tokenRequests":[{"audience":"a"},{"audience":"a"}]}}`, "spec.tokenRequests[1].audience: Duplicate"},
		{storage.CSIDrivers, `{}`, `{"spec":{"tokenRequests":[{"audience":"a","expirationSeconds":599}]}}`,
			"spec.tokenRequests[0].expirationSeconds: Invalid"},
		{storage.CSIDrivers, `{}`, `{"spec":{"tokenRequests":[{"audience":"a","expirationSeconds":4294967297}]}}`,
			"spec.tokenRequests[0].expirationSeconds: Invalid"},
		{storage.CSIDrivers, `{}`, `{"spec":{"nodeAllocatableUpdatePeriodSeconds":9}}`, "spec.nodeAllocatableUpdatePeriodSeconds: Invalid"},
		{storage.CSIDrivers, `{}`, `{"spec":{"serviceAccountTokenInSecrets":true}}`, "spec.serviceAccountTokenInSecrets: Invalid"},

		{storage.CSINodes, `{}`, `{}`, ""},
		{storage.CSINodes, registered, `{}`, ""},
		{storage.CSINodes, driver(`,"name":""`), `{}`, "spec.drivers[0].name: Required"},
		{storage.CSINodes, driver(`,"name":"a_b"`), `{}`, "spec.drivers[0].name: Invalid"},
		{storage.CSINodes, driver(`,"name":"` + strings.Repeat("a", 64) + `"`), `{}`, "spec.drivers[0].name: Too long"},
		{storage.CSINodes, driver(`,"nodeID":""`), `{}`, "spec.drivers[0].nodeID: Required"},
		{storage.CSINodes, driver(`,"nodeID":"` + long + `"`), `{}`, "must be 256 characters or less"},
		{storage.CSINodes, driver(`,"allocatable":{"count":-1}`), `{}`, "spec.drivers[0].allocatable.count: Invalid"},
		{storage.CSINodes, driver(`,"topologyKeys":["a b"]`), `{}`, "spec.drivers[0]: Invalid"},
		{storage.CSINodes, driver(`,"topologyKeys":[""]`), `{}`, "spec.drivers[0]: Required"},
		{storage.CSINodes, driver(`,"topologyKeys":["a","a"]`), `{}`, "spec.drivers[0]: Duplicate"},
		{storage.CSINodes, `{"spec":{"drivers":[{"name":"x.io","nodeID":"a"},{"name":"x.io","nodeID":"b"}]}}`, `{}`,
			"spec.drivers[1].name: Duplicate"},

		{storage.CSIStorageCapacities, left, `{}`, ""},
		{storage.CSIStorageCapacities, left, `{"storageClassName":""}`, "storageClassName: Invalid"},
		{storage.CSIStorageCapacities, left, `{"capacity":"-1"}`, "capacity: Invalid"},
		{storage.CSIStorageCapacities, left, `{"nodeTopology":{"matchLabels":{"a b":""}}}`, "nodeTopology.matchLabels: Invalid"},

		{storage.VolumeAttachments, attached, `{}`, ""},
		{storage.VolumeAttachments, attached, `{"spec":{"attacher":""}}`, "spec.attacher: Required"},
		{storage.VolumeAttachments, attached, `{"spec":{"nodeName":""}}`, "spec.nodeName: Invalid"},
		{storage.VolumeAttachments, attached, `{"spec":{"source":{"persistentVolumeName":null}}}`, "spec.source: Required"},
		{storage.VolumeAttachments, attached, `{"spec":{"source":{"persistentVolumeName":""}}}`, "spec.source.persistentVolumeName: Required"},
		{storage.VolumeAttachments, attached, `{"spec":{"source":{"persistentVolumeName":"../x"}}}`, "spec.source.persistentVolumeName: Invalid"},
		{storage.VolumeAttachments, attached, source(`{}`), "spec.source: Forbidden"},
		{storage.VolumeAttachments, attached, `{"status":{"attachError":{"message":"` + strings.Repeat("x", 1025) + `"}}}`,
			"status.attachError.message: Too long"},
		{storage.VolumeAttachments, attached, `{"status":{"detachError":{"errorCode":-1}}}`, "status.detachError.errorCode: Invalid"},
		{storage.VolumeAttachments, attached, `{"status":{"attachmentMetadata":{"a":"` + strings.Repeat("x", 256<<10) + `"}}}`,
			"status.attachmentMetadata: Too long"},
		{storage.VolumeAttachments, inline, `{}`, ""},
		{storage.VolumeAttachments, inline, source(`{"persistentVolumeReclaimPolicy":"Retain","volumeMode":"Filesystem"}`), ""},
		{storage.VolumeAttachments, inline, source(`{"csi":null}`), "spec.source.inlineVolumeSpec.csi: Required"},
		{storage.VolumeAttachments, inline, source(`{"csi":{"driver":""}}`), "spec.source.inlineVolumeSpec.csi.driver: Required"},
		{storage.VolumeAttachments, inline, source(`{"accessModes":[]}`), "spec.source.inlineVolumeSpec.accessModes: Required"},
		{storage.VolumeAttachments, inline, source(`{"capacity":{"storage":"1Gi"}}`), "spec.source.inlineVolumeSpec.capacity: Forbidden"},
		{storage.VolumeAttachments, inline, source(`{"claimRef":{"name":"c"}}`), "spec.source.inlineVolumeSpec.claimRef: Forbidden"},
		{storage.VolumeAttachments, inline, source(`{"storageClassName":"c"}`), "spec.source.inlineVolumeSpec.storageClassName: Forbidden"},
		{storage.VolumeAttachments, inline, source(`{"nodeAffinity":{}}`), "spec.source.inlineVolumeSpec.nodeAffinity: Forbidden"},
		{storage.VolumeAttachments, inline, source(`{"volumeMode":"Block"}`), "spec.source.inlineVolumeSpec.volumeMode: Forbidden"},
		{storage.VolumeAttachments, inline, source(`{"persistentVolumeReclaimPolicy":"Delete"}`),
			"spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden"},
		{storage.VolumeAttachments, inline, source(`{"volumeAttributesClassName":"c"}`),
			"spec.source.inlineVolumeSpec.volumeAttributesClassName: Forbidden"},
		{storage.VolumeAttachments, inline, source(`{"rbd":{"image":"i"}}`), "spec.source.inlineVolumeSpec.rbd: Forbidden"},
		{storage.VolumeAttachments, inline, source(`{"hostPath":{"path":"/x"}}`), "may not specify more than 1 volume type"},

		{storage.VolumeAttributesClasses, gold, `{}`, ""},
		{storage.VolumeAttributesClasses, gold, `{"driverName":""}`, "driverName: Required"},
		{storage.VolumeAttributesClasses, gold, `{"driverName":"a b"}`, "driverName: Invalid"},
		{storage.VolumeAttributesClasses, gold, `{"parameters":null}`, "parameters: Required"},
		{storage.VolumeAttributesClasses, gold, `{"parameters":{"":"x"}}`, "parameters: Invalid"},
		{storage.VolumeAttributesClasses, gold, `{"parameters":{"a":"` + strings.Repeat("x", 256<<10) + `"}}`, "parameters: Too long"},
	} {
		obj := objectOf(t, test.kind, test.text, test.more)
		obj.SetResourceVersion("")
		wantError(t, test.kind.Name+" "+test.text+" with "+test.more, test.kind.Validate(obj), test.want)
	}
}

// N-13.14: what may become of them.
func TestCSIChanges(t *testing.T) {
	for _, test := range []struct {
		kind      *api.Kind
		old, more string
		sub, want string
	}{
		{storage.CSIDrivers, `{}`, `{"spec":{"attachRequired":false}}`, "", "spec.attachedRequired: Invalid"},
		{storage.CSIDrivers, `{}`, `{"spec":{"volumeLifecycleModes":["Ephemeral"]}}`, "", "spec.volumeLifecycleModes: Invalid"},
		{storage.CSIDrivers, `{}`, `{"spec":{"podInfoOnMount":true,"storageCapacity":true,"fsGroupPolicy":"File","seLinuxMount":true}}`, "", ""},
		{storage.CSINodes, registered, `{"spec":{"drivers":[]}}`, "", ""},
		{storage.CSINodes, registered, `{"spec":{"drivers":[{"name":"y.io","nodeID":"two"}]}}`, "", ""},
		{storage.CSINodes, driver(``), driver(`,"allocatable":{"count":4}`), "", ""},
		{storage.CSINodes, driver(``), driver(`,"nodeID":"two"`), "", "spec.drivers: Invalid"},
		{storage.CSINodes, registered, `{}`, "status", ""},
		{storage.CSINodes, registered, `{"status":{"storageHealth":[{"name":"x.io"}]}}`, "status",
			"status.storageHealth: Forbidden: not supported by ledge yet"},
		{storage.CSIStorageCapacities, left, `{"capacity":"2Gi","maximumVolumeSize":"1Gi"}`, "", ""},
		{storage.CSIStorageCapacities, left, `{"storageClassName":"d"}`, "", "storageClassName: Invalid"},
		{storage.CSIStorageCapacities, left, `{"nodeTopology":null}`, "", "nodeTopology: Invalid"},
		{storage.VolumeAttachments, attached, `{"spec":{"nodeName":"m"}}`, "", "spec: Invalid"},
		{storage.VolumeAttachments, attached, `{"status":{"attached":true,"attachmentMetadata":{"a":"b"}}}`, "status", ""},
		{storage.VolumeAttachments, attached, `{"status":{"attachError":{"errorCode":-1}}}`, "status", "status.attachError.errorCode: Invalid"},
		{storage.VolumeAttributesClasses, gold, `{"driverName":"y.io"}`, "", "driverName: Forbidden: updates to driverName are forbidden."},
		{storage.VolumeAttributesClasses, gold, `{"parameters":{"iops":"200"}}`, "", "parameters: Forbidden"},
	} {
		old, obj := objectOf(t, test.kind, test.old), objectOf(t, test.kind, test.old, test.more)
		wantError(t, test.kind.Name+" "+test.more, test.kind.ValidateUpdate(obj, old, test.sub), test.want)
	}
}

// What nobody said of a driver is what Kubernetes says; its generation counts changes, and a new one has none.
func TestCSIDriverDefaults(t *testing.T) {
	d := objectOf(t, storage.CSIDrivers, `{}`)
	d.SetGeneration(7)
	storage.CSIDrivers.Fresh(d)
	got, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	const want = `"spec":{"attachRequired":true,"podInfoOnMount":false,"volumeLifecycleModes":["Persistent"],"storageCapacity":false,` +
		`"fsGroupPolicy":"ReadWriteOnceWithFSType","requiresRepublish":false,"seLinuxMount":false,"preventPodSchedulingIfMissing":false}`
	if !strings.Contains(string(got), want) || d.GetGeneration() != 0 {
		t.Errorf("%s", got)
	}
	if !storage.CSIDrivers.OtherSpec(objectOf(t, storage.CSIDrivers, `{"spec":{"podInfoOnMount":true}}`), d) {
		t.Error("another spec is no other generation")
	}
	for text, want := range map[string]int{`{}`: 0, `{"spec":{"tokenRequests":[{"audience":"a"}]}}`: 1,
		`{"spec":{"tokenRequests":[{"audience":"a"}],"serviceAccountTokenInSecrets":false}}`: 0} {
		if got := storage.CSIDrivers.Warnings(objectOf(t, storage.CSIDrivers, text)); len(got) != want {
			t.Errorf("%s: warnings %q, want %d", text, got, want)
		}
	}
}

// Who makes an attachment says nothing of its status, and who says how it is changes nothing else.
func TestAttachmentHalves(t *testing.T) {
	old := objectOf(t, storage.VolumeAttachments, attached)
	is := objectOf(t, storage.VolumeAttachments, attached, `{"spec":{"nodeName":"m"},"status":{"attached":true}}`)
	for sub, want := range map[string]string{"": "m false", "status": "n true"} {
		obj := is.DeepCopyObject().(api.Object)
		storage.VolumeAttachments.Keep(obj, old, sub)
		cells, _ := storage.VolumeAttachments.Row(obj, table.Look{})
		if got := cells[3].(string) + map[bool]string{true: " true", false: " false"}[cells[4].(bool)]; got != want {
			t.Errorf("%q: %s, want %s", sub, got, want)
		}
	}
	storage.VolumeAttachments.Fresh(is)
	if cells, _ := storage.VolumeAttachments.Row(is, table.Look{}); cells[4] != false {
		t.Error("a new one says that it is attached")
	}
}
