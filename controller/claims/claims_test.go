package claims_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
	"ledge/controller/claims"
)

var now = metav1.NewTime(time.Unix(1e9, 0))

func size(gi int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(fmt.Sprintf("%dGi", gi))}
}

func newClaim(name, class string, gi int) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name + "-1"),
		Finalizers: []string{api.ClaimProtection}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: size(gi)},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	api.PersistentVolumeClaims.Default(c)
	return c
}

func newVolume(name, class string, gi int) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: []string{api.VolumeProtection}},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: class, Capacity: size(gi), AccessModes: []corev1.PersistentVolumeAccessMode{
			corev1.ReadWriteOnce}, PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}}}
	api.PersistentVolumes.Default(v)
	return v
}

// cardVolume is what a board makes for a claim.
func cardVolume(c *corev1.PersistentVolumeClaim, node string) *corev1.PersistentVolume {
	v := newVolume(api.VolumeFor(c), api.ClassOfClaim(c), 1)
	v.Spec.Capacity, v.Spec.NFS, v.Spec.Local = c.Spec.Resources.Requests, nil, &corev1.LocalVolumeSource{Path: "/x"}
	v.Spec.NodeAffinity, v.Spec.PersistentVolumeReclaimPolicy = api.OnlyOn(node), corev1.PersistentVolumeReclaimDelete
	v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	v.Annotations = map[string]string{api.ProvisionedBy: api.CardProvisioner}
	v.Finalizers = append(v.Finalizers, api.CardFinalizer)
	return v
}

// store is a store as far as these steps see one.
type store struct {
	claims.State
}

func (s *store) carryOut(step claims.Step) {
	if step.Unless != nil && s.there(step.Unless) {
		return
	}
	obj := step.Object
	gone := step.Verb == claims.Delete && len(obj.GetFinalizers()) == 0 ||
		obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0
	if step.Verb == claims.Delete && !gone {
		obj = obj.DeepCopyObject().(api.Object)
		obj.SetDeletionTimestamp(&now)
	}
	if c, ok := obj.(*corev1.PersistentVolumeClaim); ok {
		s.Claims = put(s.Claims, c, gone)
	}
	if v, ok := obj.(*corev1.PersistentVolume); ok {
		s.Volumes = put(s.Volumes, v, gone)
	}
}

func put[T api.Object](list []T, obj T, gone bool) []T {
	list = slices.DeleteFunc(slices.Clone(list), func(o T) bool { return api.Key(o) == api.Key(obj) })
	if gone {
		return list
	}
	return append(list, obj)
}

func (s *store) there(a *claims.Absent) bool {
	is := func(o api.Object) bool {
		return o.GetName() == a.Name && o.GetNamespace() == a.Namespace && (a.UID == "" || a.UID == o.GetUID())
	}
	switch a.Kind {
	case api.PersistentVolumeClaims:
		return slices.ContainsFunc(s.Claims, func(o *corev1.PersistentVolumeClaim) bool { return is(o) })
	case api.PersistentVolumes:
		return slices.ContainsFunc(s.Volumes, func(o *corev1.PersistentVolume) bool { return is(o) })
	}
	return slices.ContainsFunc(s.Nodes, func(o *corev1.Node) bool { return is(o) })
}

// settle carries out steps until there are none.
func (s *store) settle(t *testing.T) []claims.Event {
	t.Helper()
	for range 20 {
		steps, events := claims.Next(s.State, now)
		if len(steps) == 0 {
			return events
		}
		for _, step := range steps {
			s.carryOut(step)
		}
	}
	steps, _ := claims.Next(s.State, now)
	t.Fatalf("it does not come to rest: %d steps, first %T %s", len(steps), steps[0].Object, steps[0].Object.GetName())
	return nil
}

func (s *store) claim(name string) *corev1.PersistentVolumeClaim {
	for _, c := range s.Claims {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (s *store) volume(name string) *corev1.PersistentVolume {
	for _, v := range s.Volumes {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// shown is a claim or a volume in a word.
func (s *store) shown() string {
	var out []string
	for _, c := range s.Claims {
		out = append(out, fmt.Sprintf("%s=%s:%s", c.Name, c.Status.Phase, c.Spec.VolumeName))
	}
	for _, v := range s.Volumes {
		to := ""
		if v.Spec.ClaimRef != nil {
			to = v.Spec.ClaimRef.Name
		}
		out = append(out, fmt.Sprintf("%s=%s:%s", v.Name, v.Status.Phase, to))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// N-13.5: which claim gets which volume, and what it is told where it gets none.
func TestNext(t *testing.T) {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	named := func(c *corev1.PersistentVolumeClaim, v string) *corev1.PersistentVolumeClaim {
		c.Spec.VolumeName = v
		return c
	}
	kept := func(v *corev1.PersistentVolume, name string, uid types.UID) *corev1.PersistentVolume {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "n", Name: name, UID: uid}
		return v
	}
	type (
		cs = []*corev1.PersistentVolumeClaim
		vs = []*corev1.PersistentVolume
	)
	for what, test := range map[string]struct {
		claims  cs
		volumes vs
		want    string
		told    string
	}{
		"the smallest that is large enough": {cs{newClaim("c", "x", 2)}, vs{newVolume("a", "x", 1), newVolume("b", "x", 5), newVolume("d", "x", 3)},
			"a=Available: b=Available: c=Bound:d d=Bound:c", ""},
		"two claims, one volume": {cs{newClaim("c", "x", 1), newClaim("d", "x", 1)}, vs{newVolume("v", "x", 1)},
			"c=Bound:v d=Pending: v=Bound:c", `storageclass.storage.k8s.io "x" not found`},
		"another class": {cs{newClaim("c", "", 1)}, vs{newVolume("v", "x", 1)}, "c=Pending: v=Available:",
			"no persistent volumes available for this claim and no storage class is set"},
		"the one that is kept for it": {cs{newClaim("c", "x", 1)}, vs{newVolume("a", "x", 1), kept(newVolume("b", "x", 9), "c", "")},
			"a=Available: b=Bound:c c=Bound:b", ""},
		"one that is kept for another": {cs{newClaim("c", "x", 1)}, vs{kept(newVolume("b", "x", 9), "d", "")}, "b=Available:d c=Pending:",
			`storageclass.storage.k8s.io "x" not found`},
		"the one it names": {cs{named(newClaim("c", "x", 1), "b")}, vs{newVolume("a", "x", 1), newVolume("b", "x", 9)},
			"a=Available: b=Bound:c c=Bound:b", ""},
		"one too small": {cs{named(newClaim("c", "x", 2), "a")}, vs{newVolume("a", "x", 1)}, "a=Available: c=Pending:a",
			`Cannot bind to requested volume "a": requested PV is too small`},
		"somebody else's": {cs{named(newClaim("c", "x", 1), "a")}, vs{kept(newVolume("a", "x", 1), "d", "")}, "a=Available:d c=Pending:a",
			`volume "a" already bound to a different claim.`},
		"a class that waits": {cs{newClaim("c", "wait", 1)}, vs{newVolume("v", "wait", 1)}, "c=Pending: v=Available:",
			"waiting for first consumer to be created before binding"},
		"one that is kept does not wait": {cs{newClaim("c", "wait", 1)}, vs{kept(newVolume("v", "wait", 1), "c", "")}, "c=Bound:v v=Bound:c", ""},
		"the claim is gone":              {nil, vs{kept(newVolume("v", "x", 1), "c", "former")}, "v=Released:c", ""},
		"another claim of that name": {cs{newClaim("c", "none", 1)}, vs{kept(newVolume("v", "x", 1), "c", "former")},
			"c=Pending: v=Released:c", `storageclass.storage.k8s.io "none" not found`},
	} {
		s := &store{claims.State{Claims: test.claims, Volumes: test.volumes, Classes: []*storagev1.StorageClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "wait"}, Provisioner: storage.NoProvisioner, VolumeBindingMode: &wait}}}}
		events := s.settle(t)
		told := ""
		for _, e := range events {
			told += e.Message
		}
		if got := s.shown(); got != test.want || told != test.told {
			t.Errorf("%s: %s (%q), want %s (%q)", what, got, told, test.want, test.told)
		}
	}
}

// N-13.6: a card's volume comes for its claim and goes with it, held by the board until its directory is gone, unless the board is gone
// itself.
func TestCard(t *testing.T) {
	s := &store{claims.State{Claims: []*corev1.PersistentVolumeClaim{newClaim("c", "local", 1)}, Nodes: []*corev1.Node{{}},
		Classes: []*storagev1.StorageClass{storage.Card()}}}
	s.Nodes[0].Name = "n1"
	s.settle(t)
	chosen := s.claim("c").DeepCopy()
	chosen.Annotations = map[string]string{api.SelectedNode: "n1", api.StorageProvisioner: api.CardProvisioner}
	s.Claims = put(s.Claims, chosen, false)
	s.settle(t)
	s.Volumes = append(s.Volumes, cardVolume(s.claim("c"), "n1"))
	s.settle(t)
	c := s.claim("c")
	if has := c.Status.Capacity[corev1.ResourceStorage]; c.Status.Phase != corev1.ClaimBound || has.String() != "1Gi" {
		t.Fatalf("%s, %s", s.shown(), has.String())
	}
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}}
	s.Pods = []*corev1.Pod{user}
	s.carryOut(claims.Step{Verb: claims.Delete, Object: c})
	if s.settle(t); s.claim("c") == nil {
		t.Fatal("a claim that a pod uses is gone")
	}
	s.Pods = nil
	s.settle(t)
	v := s.volume(api.VolumeFor(c))
	if s.claim("c") != nil || v == nil || v.DeletionTimestamp == nil || !slices.Equal(v.Finalizers, []string{api.CardFinalizer}) {
		t.Fatalf("%s: the board has to let go: %v", s.shown(), v)
	}
	s.Nodes = nil
	if s.settle(t); len(s.Volumes) > 0 {
		t.Errorf("its board is gone: %s", s.shown())
	}
}

// TestGivenBack: a claim that was to lie on a board whose Node is deleted is chosen a place for again.
func TestGivenBack(t *testing.T) {
	c := newClaim("c", "local", 1)
	c.Annotations = map[string]string{api.SelectedNode: "gone"}
	s := &store{claims.State{Claims: []*corev1.PersistentVolumeClaim{c}, Classes: []*storagev1.StorageClass{storage.Card()}}}
	s.settle(t)
	if node, ok := s.claim("c").Annotations[api.SelectedNode]; ok {
		t.Errorf("it waits for %q", node)
	}
}

// TestEphemeral: a pod's own claim is made once, owned by the pod; one of that name that is not the pod's is not touched.
func TestEphemeral(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "p"}}
	for _, name := range []string{"mine", "theirs"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: newClaim("x", "x", 1).Spec}}}})
	}
	s := &store{claims.State{Pods: []*corev1.Pod{pod}, Claims: []*corev1.PersistentVolumeClaim{newClaim("p-theirs", "x", 1)}}}
	events := s.settle(t)
	mine := s.claim("p-mine")
	if len(s.Claims) != 2 || mine == nil || !metav1.IsControlledBy(mine, pod) || mine.Labels["a"] != "b" {
		t.Errorf("%s: %v", s.shown(), mine)
	}
	if !slices.ContainsFunc(events, func(e claims.Event) bool { return strings.Contains(e.Message, "pod is not owner") }) {
		t.Errorf("told %v", events)
	}
}

// N-13.7: whatever happens, and wherever it is cut off, no volume has two claims, a bound claim has one volume, what is bound is not
// deleted, and it comes to rest.
func TestNextAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 116))
		s := &store{claims.State{Classes: []*storagev1.StorageClass{storage.Card()}, Nodes: []*corev1.Node{{}, {}}}}
		s.Nodes[0].Name, s.Nodes[1].Name = "n1", "n2"
		for range 60 {
			s.happen(r)
			steps, _ := claims.Next(s.State, now)
			r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
			if len(steps) > 0 {
				steps = steps[:r.IntN(len(steps)+1)] // power may go here
			}
			for _, step := range steps {
				s.allowed(t, seed, step)
				s.carryOut(step)
			}
		}
		s.settle(t)
		s.whole(t, seed)
	}
}

// happen is what others do.
func (s *store) happen(r *rand.Rand) {
	classes := []string{"local", "x", ""}
	name := string(rune('a' + r.IntN(4)))
	switch r.IntN(8) {
	case 0:
		if s.claim(name) == nil {
			c := newClaim(name, classes[r.IntN(3)], 1+r.IntN(3))
			c.UID = types.UID(fmt.Sprintf("%s-%d", name, r.IntN(1e6)))
			s.Claims = append(s.Claims, c)
		}
	case 1:
		if v := "v" + name; s.volume(v) == nil {
			s.Volumes = append(s.Volumes, newVolume(v, classes[1+r.IntN(2)], 1+r.IntN(4)))
		}
	case 2, 3:
		if c := s.claim(name); c != nil && c.Spec.VolumeName == "" && api.ClassOfClaim(c) == "local" && c.DeletionTimestamp == nil {
			next := c.DeepCopy()
			next.Annotations = map[string]string{api.SelectedNode: s.Nodes[r.IntN(2)].Name}
			s.Claims = put(s.Claims, next, false)
			if v := cardVolume(next, next.Annotations[api.SelectedNode]); s.volume(v.Name) == nil && r.IntN(2) == 0 {
				s.Volumes = append(s.Volumes, v)
			}
		}
	case 4:
		if c := s.claim(name); c != nil && c.DeletionTimestamp == nil {
			s.carryOut(claims.Step{Verb: claims.Delete, Object: c})
		}
	case 5:
		if len(s.Volumes) > 0 {
			if v := s.Volumes[r.IntN(len(s.Volumes))]; v.DeletionTimestamp == nil {
				s.carryOut(claims.Step{Verb: claims.Delete, Object: v})
			}
		}
	case 6: // a board lets go
		for _, v := range s.Volumes {
			if v.DeletionTimestamp != nil && slices.Contains(v.Finalizers, api.CardFinalizer) {
				next := v.DeepCopy()
				next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == api.CardFinalizer })
				s.Volumes = put(s.Volumes, next, len(next.Finalizers) == 0)
				return
			}
		}
	case 7: // a claim is made anew under its name, so that its volume is a former one's
		if c := s.claim(name); c != nil && r.IntN(4) == 0 {
			s.Claims = put(s.Claims, c, true)
		}
	}
}

// allowed: nobody takes away what a claim has.
func (s *store) allowed(t *testing.T, seed uint64, step claims.Step) {
	t.Helper()
	v, ok := step.Object.(*corev1.PersistentVolume)
	if !ok {
		return
	}
	for _, c := range s.Claims {
		if c.Spec.VolumeName != v.Name || c.Annotations[api.BindCompleted] == "" {
			continue
		}
		was := s.volume(v.Name)
		mine := was != nil && was.Spec.ClaimRef != nil && was.Spec.ClaimRef.UID == c.UID
		if mine && (step.Verb == claims.Delete || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID) {
			t.Fatalf("seed %d: the volume of claim %s is taken away: %s", seed, c.Name, s.shown())
		}
	}
}

// whole looks at what has come to rest.
func (s *store) whole(t *testing.T, seed uint64) {
	t.Helper()
	owner := map[string]string{}
	for _, c := range s.Claims {
		if c.Status.Phase != corev1.ClaimBound {
			continue
		}
		v := s.volume(c.Spec.VolumeName)
		if v == nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID || v.Status.Phase != corev1.VolumeBound {
			t.Fatalf("seed %d: claim %s is bound to what is not its own: %s", seed, c.Name, s.shown())
		}
		if other := owner[v.Name]; other != "" {
			t.Fatalf("seed %d: %s and %s have one volume", seed, c.Name, other)
		}
		owner[v.Name] = c.Name
	}
	for _, v := range s.Volumes {
		if v.Status.Phase == corev1.VolumeBound && owner[v.Name] == "" && s.claim(v.Spec.ClaimRef.Name).DeletionTimestamp == nil {
			t.Fatalf("seed %d: volume %s is bound to nobody: %s", seed, v.Name, s.shown())
		}
	}
}

// TestDiskClasses: boards say which disks they have, and each gets its class once; a class of that name that is another's stays as it is.
func TestDiskClasses(t *testing.T) {
	const most = 16
	node := func(name string, disks ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		for _, d := range disks {
			n.Labels[api.DiskLabel+d] = "true"
		}
		return n
	}
	other := storage.OnDisk("nfs")
	other.Provisioner = "example.com/nfs"
	many := node("c")
	for i := range 3 * most {
		many.Labels[fmt.Sprint(api.DiskLabel, "d", i)] = "true"
	}
	system := &corev1.Namespace{}
	s := claims.State{Nodes: []*corev1.Node{node("a", "usb", "nfs", "Bad_Name", "x.y", "local"), node("b", "usb")},
		Classes: []*storagev1.StorageClass{other}, System: system}
	steps, events := claims.Next(s, metav1.Now())
	if len(steps) != 1 || steps[0].Verb != claims.Create || steps[0].Object.GetName() != "usb" || len(events) != 1 || events[0].Reason != "DiskClassTaken" {
		t.Errorf("%v %v", steps, events)
	}
	class := steps[0].Object.(*storagev1.StorageClass)
	if err := storage.StorageClasses.Validate(class); err != nil {
		t.Error(err)
	}
	if !storage.MayBeMadeFor(class, s.Nodes[0]) || storage.MayBeMadeFor(class, node("d")) {
		t.Error("the class does not tell boards with the disk from those without")
	}
	if steps, _ := claims.Next(claims.State{Nodes: []*corev1.Node{many}, System: system}, metav1.Now()); len(steps) != most {
		t.Errorf("one board made %d classes", len(steps))
	}

	// The rest of its life. next carries out what is to be done, and says what that was.
	class.UID = "u"
	s.Classes = append(s.Classes, class)
	next := func() (out string) {
		steps, _ := claims.Next(s, metav1.Now())
		for _, step := range steps {
			switch o := step.Object.(type) {
			case *corev1.Namespace:
				s.System = o
				out += "note " + o.Annotations[claims.ClassesMade] + ";"
			case *storagev1.StorageClass:
				out += fmt.Sprint(map[claims.Verb]string{claims.Create: "make ", claims.Delete: "delete "}[step.Verb], o.Name, ";")
			}
		}
		return out
	}
	with, without := s.Nodes, []*corev1.Node{node("a")}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class.Name}}
	changed := class.DeepCopy()
	changed.Annotations = map[string]string{api.DefaultClass: "true"}
	for i, step := range []struct {
		nodes  []*corev1.Node
		claims []*corev1.PersistentVolumeClaim
		class  *storagev1.StorageClass
		want   string
	}{
		{with, nil, class, "note usb;"},
		{with, nil, class, ""},
		{with, nil, nil, ""}, // somebody has deleted it
		{with, nil, class, ""},
		{without, []*corev1.PersistentVolumeClaim{claim}, class, ""},
		{without, nil, changed, ""}, // somebody makes something of it
		{without, nil, class, "delete usb;"},
		{without, nil, nil, "note ;"},
		{with, nil, nil, "make usb;"},
		{with, nil, class, "note usb;"},
		{with, nil, nil, ""},
	} {
		s.Nodes, s.Claims, s.Classes = step.nodes, step.claims, []*storagev1.StorageClass{other}
		if step.class != nil {
			s.Classes = append(s.Classes, step.class)
		}
		if got := next(); got != step.want {
			t.Errorf("%d: %q, want %q", i, got, step.want)
		}
	}

	// Boards that say of themselves whatever they like.
	var boards []*corev1.Node
	for i := range 8 {
		n := node(fmt.Sprint("n", i))
		for j := range most {
			n.Labels[fmt.Sprint(api.DiskLabel, "d", i, "-", j)] = "true"
		}
		boards = append(boards, n)
	}
	steps, events = claims.Next(claims.State{Nodes: boards, System: system}, metav1.Now())
	if len(steps) != 64 || len(events) != 64 || events[0].Reason != "DiskClassesFull" {
		t.Errorf("%d classes, %d events", len(steps), len(events))
	}
}
