package quota

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/kinds"
)

func bounds(name, hard string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}}
	q.Spec.Hard = corev1.ResourceList{}
	for pair := range strings.SplitSeq(hard, ",") {
		name, amount, _ := strings.Cut(pair, "=")
		q.Spec.Hard[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return q
}

func podOf(name, cpu string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
	}
	return p
}

func used(s *Space, quota string, now time.Time) map[string]string {
	out := map[string]string{}
	for name, q := range s.Status(now)[quota].Used {
		out[string(name)] = q.String()
	}
	return out
}

// What a pod takes at each point of its life.
func TestLifeOfAPod(t *testing.T) {
	s := NewSpace(kinds.All, []*corev1.ResourceQuota{bounds("q", "pods=9,count/pods=9,cpu=9,count/widgets.example.com=1,made.up.example.com/x=1")})
	now := time.Unix(1e9, 0)
	want := func(what, text string) {
		t.Helper()
		if got := fmt.Sprint(used(s, "q", now)); got != "map["+text+"]" {
			t.Errorf("%s: %s, want %s", what, got, text)
		}
	}
	want("nothing", "count/pods:0 cpu:0 pods:0")
	p := podOf("p", "1500m")
	s.Apply(api.Pods, nil, p)
	want("made", "count/pods:1 cpu:1500m pods:1")
	dying := p.DeepCopy()
	grace := int64(30)
	dying.DeletionTimestamp, dying.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(30 * time.Second)}, &grace
	s.Apply(api.Pods, p, dying)
	want("it is to end", "count/pods:1 cpu:1500m pods:1")
	if next := s.Next(now); !next.Equal(now.Add(time.Minute)) {
		t.Error("it is given up at", next)
	}
	now = now.Add(61 * time.Second)
	want("it should have ended", "count/pods:1 cpu:0 pods:0")
	if err := s.Check(api.Pods, podOf("o", "9"), nil, now); err != nil {
		t.Error("what it had is free:", err)
	}
	ended := dying.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	s.Apply(api.Pods, dying, ended)
	want("it has ended", "count/pods:1 cpu:0 pods:0")
	s.Apply(api.Pods, ended, nil)
	want("it is gone", "count/pods:0 cpu:0 pods:0")
	if len(s.ending) != 0 || !s.Next(now).IsZero() {
		t.Error("something of it is remembered")
	}
}

// A Space that was told of every change comes to the same as one that counts what is there, whatever came when; and nothing that it
// lets in brings it beyond a bound (N-13.13).
func TestNothingDrifts(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	quotas := []*corev1.ResourceQuota{bounds("all", "pods=7,count/pods=9,cpu=4,limits.memory=1Gi"), bounds("best", "pods=3"), bounds("late", "pods=2,cpu=2")}
	quotas[1].Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	quotas[2].Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	s, there, now := NewSpace(kinds.All, quotas), map[string]*corev1.Pod{}, time.Unix(1e9, 0)
	for step := range 3000 {
		now = now.Add(time.Duration(r.IntN(20)) * time.Second)
		name := fmt.Sprint("p", r.IntN(12))
		old, next := there[name], podOf(name, []string{"", "250m", "1", "100m"}[r.IntN(4)])
		if old != nil {
			next = old.DeepCopy()
		}
		switch r.IntN(5) {
		case 0:
			next.Spec.ActiveDeadlineSeconds = new(int64)
		case 1:
			next.Status.Phase = corev1.PodSucceeded
		case 2:
			grace := int64(10)
			next.DeletionTimestamp, next.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(10 * time.Second)}, &grace
		case 3:
			next = nil
		}
		switch {
		case next == nil && old == nil:
			continue
		case next == nil:
			s.Apply(api.Pods, old, nil)
			delete(there, name)
		default:
			before := api.Object(nil)
			if old != nil {
				before = old
			}
			if s.Check(api.Pods, next, before, now) != nil {
				continue
			}
			s.Apply(api.Pods, before, next)
			there[name] = next
		}
		counted := NewSpace(kinds.All, quotas)
		for _, p := range there {
			counted.Apply(api.Pods, nil, p)
		}
		for _, q := range quotas {
			told, is := used(s, q.Name, now), used(counted, q.Name, now)
			if fmt.Sprint(told) != fmt.Sprint(is) {
				t.Fatalf("seed %d, step %d: %s says %v, there is %v", seed, step, q.Name, told, is)
			}
			for name, hard := range q.Spec.Hard {
				if have := s.Status(now)[q.Name].Used[name]; have.Cmp(hard) > 0 {
					t.Fatalf("seed %d, step %d: %s has %s of %s", seed, step, q.Name, have.String(), hard.String())
				}
			}
		}
	}
}

// Amounts that no number of 64 bits holds are added and compared as they are.
func TestEnormousAmounts(t *testing.T) {
	s := NewSpace(kinds.All, []*corev1.ResourceQuota{bounds("q", "cpu=9223372036854775807,count/pods=1e18")})
	for i := range 3 {
		s.Apply(api.Pods, nil, podOf(fmt.Sprint("p", i), "8e18"))
	}
	if got := used(s, "q", time.Now())["cpu"]; got != "24e18" {
		t.Error("three times 8e18 are", got)
	}
	if err := s.Check(api.Pods, podOf("x", "1"), nil, time.Now()); err == nil || !strings.Contains(err.Error(), "used: cpu=24e18, limited: cpu=9223372036854775807") {
		t.Error(err)
	}
}

// BenchmarkCheck is one pod and as many quotas as are said, which are about all that a pod takes.
func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{1, 10, MostOf} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var quotas []*corev1.ResourceQuota
			for i := range n {
				quotas = append(quotas, bounds(fmt.Sprint("q", i), "pods=1000000,count/pods=1000000,requests.cpu=1M,limits.cpu=1M,requests.memory=1Pi,limits.memory=1Pi"))
			}
			s, p := NewSpace(kinds.All, quotas), podOf("p", "1m")
			p.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("1Mi")
			p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
			for b.Loop() {
				if err := s.Check(api.Pods, p, nil, time.Time{}); err != nil {
					b.Fatal(err)
				}
				s.Apply(api.Pods, nil, p)
			}
		})
	}
}

// What claims take, together and by class, and when their size is another one.
func TestClaims(t *testing.T) {
	now, fast := time.Unix(1e9, 0), "fast"
	classes := bounds("attributes", "requests.storage=1Gi")
	classes.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"gold"}}}}
	s := NewSpace(kinds.All, []*corev1.ResourceQuota{bounds("q", "persistentvolumeclaims=2,requests.storage=10Gi,"+
		"fast.storageclass.storage.k8s.io/requests.storage=4Gi,fast.storageclass.storage.k8s.io/persistentvolumeclaims=1"), classes})
	claim := func(name, size string, class *string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: class, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(size)}}}}
	}
	check := func(obj, old api.Object, words string) {
		t.Helper()
		err := s.Check(api.PersistentVolumeClaims, obj, old, now)
		if words == "" && err != nil || words != "" && (err == nil || err.Error() != words) {
			t.Errorf("got %v, want %s", err, words)
		}
	}
	check(claim("a", "5Gi", &fast), nil, "exceeded quota: q, requested: fast.storageclass.storage.k8s.io/requests.storage=5Gi, "+
		"used: fast.storageclass.storage.k8s.io/requests.storage=0, limited: fast.storageclass.storage.k8s.io/requests.storage=4Gi")
	a := claim("a", "3Gi", &fast)
	s.Apply(api.PersistentVolumeClaims, nil, a)
	check(claim("b", "1Gi", &fast), nil, "exceeded quota: q, requested: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1, "+
		"used: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1, limited: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1")
	check(claim("b", "8Gi", nil), nil, "exceeded quota: q, requested: requests.storage=8Gi, used: requests.storage=3Gi, limited: requests.storage=10Gi")
	check(claim("a", "4Gi", &fast), a, "")
	check(claim("a", "5Gi", &fast), a, "exceeded quota: q, requested: fast.storageclass.storage.k8s.io/requests.storage=2Gi, "+
		"used: fast.storageclass.storage.k8s.io/requests.storage=3Gi, limited: fast.storageclass.storage.k8s.io/requests.storage=4Gi")
	gold, b := "gold", claim("b", "2Gi", nil)
	b.Spec.VolumeAttributesClassName = &gold
	check(b, nil, "exceeded quota: attributes, requested: requests.storage=2Gi, used: requests.storage=0, limited: requests.storage=1Gi")
	grown := a.DeepCopy()
	grown.Status.AllocatedResources = corev1.ResourceList{"storage": resource.MustParse("4Gi")}
	s.Apply(api.PersistentVolumeClaims, a, grown)
	if got := used(s, "q", now)["requests.storage"]; got != "4Gi" {
		t.Error("a claim that is given 4Gi takes", got)
	}
	limits := []*corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePersistentVolumeClaim,
		Min: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, Max: corev1.ResourceList{"storage": resource.MustParse("2Gi")}}}}}}
	for size, want := range map[string]string{"2Gi": "<nil>", "1Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
		"3Gi": "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"} {
		if err := Bound(api.PersistentVolumeClaims, claim("c", size, nil), limits); fmt.Sprint(err) != want {
			t.Error(err)
		}
	}
}
