package scheduler_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/storage"
	"ledge/scheduler"
)

// disks is a small world of claims and volumes.
type disks struct {
	claims  map[string]*corev1.PersistentVolumeClaim
	volumes []*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
}

func newDisks() *disks {
	hand := storage.Card()
	hand.Name, hand.Provisioner = "hand", storage.NoProvisioner
	zoned := storage.Card()
	zoned.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
		Key: corev1.LabelHostname, Values: []string{"b"}}}}}
	return &disks{map[string]*corev1.PersistentVolumeClaim{}, nil, map[string]*storagev1.StorageClass{"local": storage.Card(), "hand": hand,
		"zoned": zoned, "now": {Provisioner: "x.io/y"}}}
}

func (d *disks) claim(name, class string, change func(*corev1.PersistentVolumeClaim)) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "1"}}
	c.Spec.StorageClassName, c.Spec.Resources.Requests = &class, gib(1)
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	if change != nil {
		change(c)
	}
	d.claims[name] = c
}

func gib(n int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(n<<30, resource.BinarySI)}
}

func (d *disks) volume(name, class, node string) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Status.Phase = corev1.VolumeAvailable
	v.Spec.StorageClassName, v.Spec.Capacity, v.Spec.NodeAffinity = class, gib(1), api.OnlyOn(node)
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	d.volumes = append(d.volumes, v)
}

func boundTo(volume string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Annotations = volume, map[string]string{api.BindCompleted: "yes"}
	}
}

func (d *disks) cluster(pods ...*corev1.Pod) *scheduler.Cluster {
	var nodes []*corev1.Node
	for _, name := range []string{"a", "b"} {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}}})
	}
	return scheduler.NewCluster(nodes, pods, scheduler.Config{Volumes: scheduler.Volumes{
		Claim:   func(_, name string) *corev1.PersistentVolumeClaim { return d.claims[name] },
		Class:   func(name string) *storagev1.StorageClass { return d.classes[name] },
		Volumes: d.volumes}})
}

func using(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	return p
}

// N-10.27: a pod goes where its volumes are or can be made, and is told in Kubernetes' words why it goes nowhere.
func TestVolumes(t *testing.T) {
	once := func(c *corev1.PersistentVolumeClaim) {
		boundTo("v")(c)
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	on := func(p *corev1.Pod, node string) *corev1.Pod { p.Spec.NodeName = node; return p }
	for what, test := range map[string]struct {
		make  func(d *disks)
		there *corev1.Pod
		want  string // a node and what to write, or words
	}{
		"where its volume is": {func(d *disks) { d.volume("v", "local", "b"); d.claim("c", "local", boundTo("v")) }, nil, "b"},
		"its volumes are on two boards": {func(d *disks) {
			d.volume("v", "local", "b")
			d.volume("w", "local", "a")
			d.claim("c", "local", boundTo("v"))
			d.claim("d", "local", boundTo("w"))
		}, nil, "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."},
		"a volume that is gone": {func(d *disks) { d.claim("c", "local", boundTo("v")) }, nil,
			"2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)."},
		"none of that name":         {func(*disks) {}, nil, `0/2 nodes are available: persistentvolumeclaim "c" not found.`},
		"not bound":                 {func(d *disks) { d.claim("c", "now", nil) }, nil, "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."},
		"a class that is not there": {func(d *disks) { d.claim("c", "none", nil) }, nil, "pod has unbound immediate PersistentVolumeClaims."},
		"made where it goes":        {func(d *disks) { d.claim("c", "zoned", nil) }, nil, "b make c"},
		"being made": {func(d *disks) {
			d.claim("c", "local", func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{api.SelectedNode: "a"} })
		}, nil, "a wait"},
		"made by hand": {func(d *disks) { d.volume("v", "hand", "b"); d.claim("c", "hand", nil) }, nil, "b take v"},
		"none by hand": {func(d *disks) { d.claim("c", "hand", nil) }, nil, "2 node(s) didn't find available persistent volumes to bind."},
		"going": {func(d *disks) {
			d.claim("c", "local", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })
		}, nil, `persistentvolumeclaim "c" is being deleted.`},
		"lost": {func(d *disks) {
			d.claim("c", "local", func(c *corev1.PersistentVolumeClaim) { boundTo("v")(c); c.Status.Phase = corev1.ClaimLost })
		}, nil, `persistentvolumeclaim "c" bound to non-existent persistentvolume "v".`},
		"one pod only": {func(d *disks) { d.volume("v", "local", "b"); d.claim("c", "local", once) }, on(using("other", "c"), "b"),
			"2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod."},
		"one pod, and it is that": {func(d *disks) { d.volume("v", "local", "b"); d.claim("c", "local", once) }, on(using("other", "d"), "b"), "b"},
	} {
		d := newDisks()
		test.make(d)
		names := []string{"c"}
		if d.claims["d"] != nil {
			names = append(names, "d")
		}
		pod := using("p", names...)
		var c *scheduler.Cluster
		if test.there != nil {
			c = d.cluster(test.there)
		} else {
			c = d.cluster()
		}
		node, err := c.Place(pod)
		got := node
		if err != nil {
			var fit *scheduler.FitError
			if !errors.As(err, &fit) || len(c.Victims(pod, fit).Victims) > 0 {
				t.Errorf("%s: %v, and somebody has to go", what, err)
			}
			got = err.Error()
		} else if choices, wait := c.Choices(pod, node); wait {
			if len(choices) == 0 {
				got += " wait"
			}
			for _, ch := range choices {
				if ch.Volume != nil {
					got += " take " + ch.Volume.Name
				} else {
					got += " make " + ch.Claim.Name
				}
			}
		}
		if !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
}

// TestVolumesAreTakenOnce: two pods that are placed on one snapshot do not get one volume.
func TestVolumesAreTakenOnce(t *testing.T) {
	d := newDisks()
	d.volume("v", "hand", "a")
	d.claim("c", "hand", nil)
	d.claim("d", "hand", func(c *corev1.PersistentVolumeClaim) { c.UID = "2" })
	cluster := d.cluster()
	first := using("p", "c")
	node, err := cluster.Place(first)
	if err != nil {
		t.Fatal(err)
	}
	if choices, _ := cluster.Choices(first, node); len(choices) != 1 {
		t.Fatalf("chosen: %v", choices)
	}
	if _, err := cluster.Place(using("q", "d")); err == nil {
		t.Error("the volume was given twice")
	}
}
