package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/local"
	"ledge/api/storage"
	"ledge/controller/claims"
)

func wanted(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
}

func (r *rig) claimed(name string) *corev1.PersistentVolumeClaim {
	r.Helper()
	c, err := api.Get[*corev1.PersistentVolumeClaim](r.ctx, r.Client, api.PersistentVolumeClaims, "default", name)
	return must(r, c, err)
}

// board makes the volume of a claim that is selected for it.
func (r *rig) board(c *corev1.PersistentVolumeClaim) {
	r.Helper()
	node := c.Annotations[api.SelectedNode]
	if node == "" {
		r.Fatalf("no node is selected for %s: %v", c.Name, c.Annotations)
	}
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: api.VolumeFor(c),
		Annotations: map[string]string{api.ProvisionedBy: api.CardProvisioner}, Finalizers: []string{api.CardFinalizer}},
		Spec: corev1.PersistentVolumeSpec{Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, NodeAffinity: api.OnlyOn(node),
			StorageClassName: api.ClassOfClaim(c), PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/x"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}}}
	v, err := api.Create(r.ctx, r.Client, api.PersistentVolumes, v)
	must(r, v, err)
	synctest.Wait()
}

func hostnamed(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelHostname: n.Name} }

// TestClaims: from the first pod of a claim to the end of its volume, whatever write fails on the way.
func TestClaims(t *testing.T) {
	for _, broken := range []string{"", "update persistentvolumes", "update persistentvolumeclaims", "update status persistentvolumeclaims",
		"update status persistentvolumes", "update status pods"} {
		t.Run(broken, func(t *testing.T) {
			plane(t, Config{}, func(r *rig) {
				r.fail(broken)
				r.node("a", hostnamed)
				defer r.alive("a")()
				c, err := api.Create(r.ctx, r.Client, api.PersistentVolumeClaims, wanted("c"))
				must(r, c, err)
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "c", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
					Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}}
				pod, err = api.Create(r.ctx, r.Client, api.Pods, pod)
				must(r, pod, err)
				r.pass(10 * time.Second)
				r.fail("")
				r.pass(time.Minute)
				now, err := api.Get[*corev1.Pod](r.ctx, r.Client, api.Pods, "default", "p")
				if must(r, now, err); now.Spec.NodeName != "" || now.Status.NominatedNodeName != "a" {
					r.Fatalf("bound to %q, kept room on %q", now.Spec.NodeName, now.Status.NominatedNodeName)
				}
				r.fail(broken)
				r.board(r.claimed("c"))
				r.pass(10 * time.Second)
				r.fail("")
				r.pass(time.Minute)
				c = r.claimed("c")
				now, err = api.Get[*corev1.Pod](r.ctx, r.Client, api.Pods, "default", "p")
				if must(r, now, err); c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != api.VolumeFor(c) || now.Spec.NodeName != "a" {
					r.Fatalf("%s, volume %q, pod on %q", c.Status.Phase, c.Spec.VolumeName, now.Spec.NodeName)
				}
				writes := r.writes.Load()
				r.pass(time.Hour)
				if more := r.writes.Load() - writes; more > 0 {
					r.Errorf("%d writes in an hour at rest", more)
				}
				r.fail(broken)
				r.letGo(c, now)
			})
		})
	}
}

// letGo deletes a claim, then its pod, and wants the volume gone when its board lets go.
func (r *rig) letGo(c *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	r.Helper()
	if _, err := r.Client.Delete(r.ctx, api.PersistentVolumeClaims, c.Namespace, c.Name, api.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.pass(time.Minute)
	r.claimed("c") // a pod uses it
	if _, err := r.Client.Delete(r.ctx, api.Pods, pod.Namespace, pod.Name, force()); err != nil {
		r.Fatal(err)
	}
	r.pass(10 * time.Second)
	r.fail("")
	r.pass(time.Minute)
	if _, err := r.Client.Get(r.ctx, api.PersistentVolumeClaims, c.Namespace, c.Name); !apierrors.IsNotFound(err) {
		r.Fatalf("the claim is there still: %v", err)
	}
	v, err := api.Get[*corev1.PersistentVolume](r.ctx, r.Client, api.PersistentVolumes, "", c.Spec.VolumeName)
	if must(r, v, err); v.DeletionTimestamp == nil || len(v.Finalizers) != 1 || v.Status.Phase != corev1.VolumeReleased {
		r.Fatalf("%s, %v", v.Status.Phase, v.Finalizers)
	}
	v.Finalizers = nil
	_, err = api.Update(r.ctx, r.Client, api.PersistentVolumes, v)
	must(r, v, err)
	if _, err := r.Client.Get(r.ctx, api.PersistentVolumes, "", v.Name); !apierrors.IsNotFound(err) {
		r.Errorf("the volume is there still: %v", err)
	}
}

// TestClaimsOfStatefulSets: each pod gets its claim, finds it again, and leaves it when the policy says so.
func TestClaimsOfStatefulSets(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("a", hostnamed)
		defer r.alive("a")()
		two, labels := int32(2), map[string]string{"app": "web"}
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.StatefulSetSpec{
			Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: wanted("").Spec}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}}}}}}
		set, err := api.Create(r.ctx, r.Client, apps.StatefulSets, set)
		must(r, set, err)
		r.pass(5 * time.Second)
		for _, name := range []string{"data-web-0", "data-web-1"} {
			c := r.claimed(name)
			if c.Labels["app"] != "web" || len(c.OwnerReferences) > 0 {
				t.Errorf("%s: %v %v", name, c.Labels, c.OwnerReferences)
			}
			r.board(c)
		}
		r.pass(5 * time.Second)
		for _, name := range []string{"web-0", "web-1"} {
			p, err := api.Get[*corev1.Pod](r.ctx, r.Client, api.Pods, "default", name)
			if must(r, p, err); p.Spec.NodeName != "a" {
				t.Errorf("%s is on %q", name, p.Spec.NodeName)
			}
		}
		set, err = api.Get[*appsv1.StatefulSet](r.ctx, r.Client, apps.StatefulSets, "default", "web")
		must(r, set, err)
		one := int32(1)
		set.Spec.Replicas = &one
		set, err = api.Update(r.ctx, r.Client, apps.StatefulSets, set)
		must(r, set, err)
		r.pass(5 * time.Second)
		_, _ = r.Client.Delete(r.ctx, api.Pods, "default", "web-1", force()) // as its agent does
		if err := r.Client.(*local.Client).Collect(r.ctx); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		if _, err := r.Client.Get(r.ctx, api.PersistentVolumeClaims, "default", "data-web-1"); !apierrors.IsNotFound(err) {
			t.Errorf("the claim of a pod that is not wanted any more: %v", err)
		}
		if c := r.claimed("data-web-0"); c.DeletionTimestamp != nil {
			t.Error("the claim of a pod that stays is going")
		}
	})
}

// TestClassesOfDisks: whatever a board says of its disks, the classes stay few, and one that an admin deletes stays deleted.
func TestClassesOfDisks(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("a", hostnamed)
		defer r.alive("a")()
		label := func(names ...string) {
			n := r.getNode("a")
			n.Labels = map[string]string{corev1.LabelHostname: "a"}
			for _, name := range names {
				n.Labels[api.DiskLabel+name] = "true"
			}
			_, err := api.Update(r.ctx, r.Client, api.Nodes, n)
			must(r, n, err)
			r.pass(time.Minute)
		}
		classes := func() (out []string) {
			list, err := r.Client.List(r.ctx, storage.StorageClasses, api.ListOptions{})
			if err != nil {
				r.Fatal(err)
			}
			for _, o := range list.Items {
				if name := o.GetName(); name != storage.CardClass {
					out = append(out, name)
				}
			}
			return out
		}
		for round := range 6 {
			var names []string
			for i := range 20 {
				names = append(names, fmt.Sprintf("x%d-%d", round, i))
			}
			label(names...)
			if got := classes(); len(got) != 16 {
				r.Errorf("after change %d: %d classes", round, len(got))
			}
		}
		label("usb", "ssd")
		if got := classes(); fmt.Sprint(got) != "[ssd usb]" {
			r.Errorf("%v", got)
		}
		_, err := r.Client.Delete(r.ctx, storage.StorageClasses, "", "usb", api.DeleteOptions{})
		must(r, r.getNode("a"), err)
		r.pass(time.Minute)
		label("usb", "ssd", "more")
		if got := classes(); fmt.Sprint(got) != "[more ssd]" {
			r.Errorf("after its deletion: %v", got)
		}
		label()
		if got := classes(); len(got) > 0 {
			r.Errorf("left: %v", got)
		}
	})
}

// TestTellOnce: two things that are wrong with one object are told once each.
func TestTellOnce(t *testing.T) {
	told := &counted{}
	c := &Claims{events: told, told: map[said]bool{}}
	about := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
	both := []claims.Event{{About: about, Reason: "DiskClassTaken", Message: "usb"}, {About: about, Reason: "DiskClassTaken", Message: "ssd"}}
	for range 10 {
		c.tell(both)
	}
	if c.tell(both[:1]); told.n != 2 {
		t.Errorf("%d events", told.n)
	}
	if c.tell(both); told.n != 3 {
		t.Errorf("%d events", told.n)
	}
}

type counted struct {
	Recorder
	n int
}

func (c *counted) Event(api.Object, string, string, string) { c.n++ }
