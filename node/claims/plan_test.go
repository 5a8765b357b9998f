package claims

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/storage"
)

const path = "/data/claims/"

func claimOf(uid, size string, with ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := storage.CardClass
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c-" + uid, UID: types.UID(uid),
		Annotations: map[string]string{api.SelectedNode: "a"}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}}
	for _, f := range with {
		f(c)
	}
	return c
}

func bound(capacity string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = api.VolumeFor(c), corev1.ClaimBound
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
	}
}

func volumeOf(uid, size string, with ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + uid,
		Annotations: map[string]string{api.ProvisionedBy: api.CardProvisioner},
		Finalizers:  []string{api.VolumeProtection, api.CardFinalizer}},
		Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: storage.CardClass,
			NodeAffinity: api.OnlyOn("a"), ClaimRef: &corev1.ObjectReference{UID: types.UID(uid)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path + "pvc-" + uid}}}}
	for _, f := range with {
		f(v)
	}
	return v
}

func ending(v *corev1.PersistentVolume) {
	v.DeletionTimestamp, v.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{api.CardFinalizer}
}

func retained(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

func dir(uid string, limit int64) Dir { return Dir{Name: "pvc-" + uid, Sized: limit > 0, Limit: limit} }

const mib = 1 << 20

// TestPlan: what a board does for each state that a power cut, a person or a control plane can leave.
func TestPlan(t *testing.T) { // N-13.10
	empty, gone, kept := dir("1", mib), dir("1", mib), dir("1", mib)
	empty.Empty, gone.Gone, kept.Kept = true, true, true
	block := corev1.PersistentVolumeBlock
	for what, c := range map[string]struct {
		dirs    []Dir
		volumes []*corev1.PersistentVolume
		claims  []*corev1.PersistentVolumeClaim
		want    string
	}{
		"nothing": {want: ""},
		"held by nothing": {[]Dir{dir("1", 0)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi")},
			[]*corev1.PersistentVolumeClaim{claimOf("1", "1Mi", bound("1Mi"))}, "mark pvc-1: nothing holds it to its size on this board: its " +
				"directory was made before its file system could ('ledge doctor' says what to do)"},
		"a claim":             {claims: []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi")}, want: "make pvc-1 1048576, offer pvc-1 1048576"},
		"cut before the name": {[]Dir{empty}, nil, []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi")}, "make pvc-1 1048576, offer pvc-1 1048576"},
		"cut before binding":  {[]Dir{empty}, []*corev1.PersistentVolume{volumeOf("1", "1Mi")}, []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi")}, ""},
		"bound": {[]Dir{dir("1", mib)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi")},
			[]*corev1.PersistentVolumeClaim{claimOf("1", "1Mi", bound("1Mi"))}, ""},
		"bound, and its volume not heard of yet": {[]Dir{empty}, nil, []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi", bound("1Mi"))}, ""},
		"bound, its volume gone and its data not": {[]Dir{dir("1", mib)}, nil, []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi", bound("1Mi"))},
			"stray pvc-1"},
		"bound, its number lost its bound": {[]Dir{dir("1", 5)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi")}, nil, "resize pvc-1 1048576"},
		"bound, on a disk without sizes":   {[]Dir{dir("1", 0)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi")}, nil, ""},
		"grows": {[]Dir{dir("1", mib)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi")},
			[]*corev1.PersistentVolumeClaim{claimOf("1", "2Mi", bound("1Mi"))}, "resize pvc-1 2097152, grow pvc-1 2097152, tell pvc-1 2097152"},
		"grows, cut after the number": {[]Dir{dir("1", 2*mib)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi")},
			[]*corev1.PersistentVolumeClaim{claimOf("1", "2Mi", bound("1Mi"))}, "resize pvc-1 2097152, grow pvc-1 2097152, tell pvc-1 2097152"},
		"grows, cut after the volume": {[]Dir{dir("1", 2*mib)}, []*corev1.PersistentVolume{volumeOf("1", "2Mi")},
			[]*corev1.PersistentVolumeClaim{claimOf("1", "2Mi", bound("1Mi"))}, "tell pvc-1 2097152"},
		"grows beyond the disk": {[]Dir{dir("1", mib)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi")},
			[]*corev1.PersistentVolumeClaim{claimOf("1", "2Gi", bound("1Mi"))}, "refuse pvc-1: it asks for 2Gi, and the whole disk of this board has 1Gi"},
		"another's claim of that name": {[]Dir{dir("1", mib)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.UID = "other"
		})}, []*corev1.PersistentVolumeClaim{claimOf("1", "2Mi", bound("1Mi"))}, ""},
		"deleted, and in use": {[]Dir{dir("1", mib)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending, func(v *corev1.PersistentVolume) {
			v.Finalizers = append(v.Finalizers, api.VolumeProtection)
		})}, nil, ""},
		"deleted":                      {[]Dir{dir("1", mib)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending)}, nil, "remove pvc-1"},
		"deleted, renamed aside":       {[]Dir{gone}, []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending)}, nil, ""},
		"deleted, removed":             {nil, []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending)}, nil, "free pvc-1"},
		"deleted, its data is to stay": {[]Dir{dir("1", mib)}, []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending, retained)}, nil, "keep pvc-1, free pvc-1"},
		"kept, cut before the object":  {[]Dir{kept}, []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending, retained)}, nil, "free pvc-1"},
		"kept":                         {[]Dir{kept}, nil, nil, ""},
		"a volume without a directory": {nil, []*corev1.PersistentVolume{volumeOf("1", "1Mi")}, nil, "lost pvc-1"},
		"a directory nobody knows":     {[]Dir{dir("1", mib)}, nil, nil, "stray pvc-1"},
		"an empty one nobody knows":    {[]Dir{empty}, nil, nil, "remove pvc-1"},
		"a plane from a backup":        {[]Dir{dir("1", mib)}, nil, []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi")}, "make pvc-1 1048576, offer pvc-1 1048576"},
		"deleted before it was made": {claims: []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi", func(c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		})}},
		"beyond the disk": {claims: []*corev1.PersistentVolumeClaim{claimOf("1", "2Gi")},
			want: "refuse pvc-1: it asks for 2Gi, and the whole disk of this board has 1Gi"},
		"a device": {claims: []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block })},
			want: "refuse pvc-1: volume mode Block is not what the card's own class has: it makes directories"},
		"a uid that leads out": {claims: []*corev1.PersistentVolumeClaim{claimOf("/../../etc", "1Mi")},
			want: `refuse pvc-/../../etc: its uid "/../../etc" makes no name for a directory`},
		"a class of somebody else": {claims: []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi", func(c *corev1.PersistentVolumeClaim) {
			other := "other"
			c.Spec.StorageClassName = &other
		})}},
		"a class that is not there": {claims: []*corev1.PersistentVolumeClaim{claimOf("1", "1Mi", func(c *corev1.PersistentVolumeClaim) {
			none := "none"
			c.Spec.StorageClassName = &none
		})}},
		"a volume that points elsewhere": {volumes: []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending, func(v *corev1.PersistentVolume) {
			v.Spec.Local.Path = "/etc"
		})}},
		"a volume with a name that leads out": {volumes: []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending, func(v *corev1.PersistentVolume) {
			v.Name, v.Spec.Local.Path = "../../etc", path+"../../etc"
		})}},
		"a person's own volume": {volumes: []*corev1.PersistentVolume{volumeOf("1", "1Mi", ending, func(v *corev1.PersistentVolume) {
			v.Annotations = nil
		})}},
	} {
		other := storage.Card()
		other.Provisioner = "example.com/other"
		got := shown(Plan(World{Dirs: c.dirs, Volumes: c.volumes, Claims: c.claims, Room: 1 << 30,
			Path:    func(n string) string { return path + n },
			Classes: map[string]*storagev1.StorageClass{storage.CardClass: storage.Card(), "other": other}}))
		if got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

func shown(steps []Step) string {
	var out []string
	for _, s := range steps {
		text := fmt.Sprintf("%s %s", s.Do, s.Name)
		if s.Bytes > 0 {
			text += fmt.Sprint(" ", s.Bytes)
		}
		if s.Why != "" {
			text += ": " + s.Why
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestPlanIsBounded: so many and no more.
func TestPlanIsBounded(t *testing.T) {
	var w World
	w.Room, w.Path = 1<<40, func(n string) string { return path + n }
	w.Classes = map[string]*storagev1.StorageClass{storage.CardClass: storage.Card()}
	for i := range most + 10 {
		w.Claims = append(w.Claims, claimOf(fmt.Sprint(i), "1Mi"))
	}
	made := 0
	for _, s := range Plan(w) {
		if s.Do == Make {
			made++
		}
	}
	if made != most {
		t.Errorf("made %d", made)
	}
}
