package apitest

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/storage"
)

var attachmentCases = []Case{{"Attachment", testAttachment}}

// testAttachment: a driver that attaches a volume writes the status and nothing else; the spec stays as it is (N-13.14).
func testAttachment(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := samples[storage.VolumeAttachments](e).(*storagev1.VolumeAttachment)
	in.Name, in.Status.Attached = e.ns+"-attachment", true
	a := e.create(in).(*storagev1.VolumeAttachment)
	t.Cleanup(func() { _, _ = c.Delete(e.ctx, storage.VolumeAttachments, "", in.Name, api.DeleteOptions{}) })
	if a.Status.Attached {
		t.Error("a new one says that it is attached")
	}
	changed := a.DeepCopy()
	changed.Spec.NodeName, changed.Status.Attached = "another", true
	a, err := api.UpdateStatus(e.ctx, c, storage.VolumeAttachments, changed)
	e.must(err)
	if !a.Status.Attached || a.Spec.NodeName != in.Spec.NodeName {
		t.Errorf("after its status was written: %+v", a)
	}
	same := a.DeepCopy()
	same.Labels, same.Status.Attached = map[string]string{"apitest": "x"}, false
	if a = e.update(same).(*storagev1.VolumeAttachment); !a.Status.Attached || a.Labels["apitest"] != "x" {
		t.Errorf("after its labels were written: %+v", a)
	}
	for field, change := range map[string]func(*storagev1.VolumeAttachment){
		"spec":                     func(a *storagev1.VolumeAttachment) { a.Spec.NodeName = "another" },
		"metadata.resourceVersion": func(a *storagev1.VolumeAttachment) { a.ResourceVersion = "" },
	} {
		bad := a.DeepCopy()
		change(bad)
		_, err := c.Update(e.ctx, storage.VolumeAttachments, bad, api.WriteOptions{})
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
	}
	code := int32(-1)
	a.Status.AttachError = &storagev1.VolumeError{ErrorCode: &code}
	_, err = api.UpdateStatus(e.ctx, c, storage.VolumeAttachments, a)
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "status.attachError.errorCode")
}
