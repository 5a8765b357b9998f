package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/node/machine"
)

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: volumes made of objects are in memory")
	}
}

func volumeOf(s corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}
}

// holding is what a file in the pod's volume v says; "" when it is not there.
func (r *rig) holding(pod, file string) string {
	r.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "run/config", string(r.get(pod).UID), "v", file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Fatal(err)
	}
	return string(data)
}

// TestVolumesFollow what they are made of while the pod runs, at once.
func TestVolumesFollow(t *testing.T) {
	needsRoot(t)
	with(t, nil, func(r *rig) {
		r.config("c", map[string]string{"k": "v"})
		r.begin()
		r.pod("p", volumeOf(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("c")}}))
		r.pod("q", volumeOf(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}))
		r.pass(time.Second)
		if r.holding("p", "k") != "v" || r.holding("q", "labels") != "" || r.get("p").Status.Phase != corev1.PodRunning {
			t.Errorf("%q %q", r.holding("p", "k"), r.holding("q", "labels"))
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "w", "l": "x"}}
		if _, err := api.Update(r.Context(), r.Client, api.ConfigMaps, cm); err != nil {
			t.Fatal(err)
		}
		q := r.get("q")
		q.Labels = map[string]string{"a": "1"}
		if _, err := api.Update(r.Context(), r.Client, api.Pods, q); err != nil {
			t.Fatal(err)
		}
		r.pass(10 * time.Millisecond)
		if r.holding("p", "k") != "w" || r.holding("p", "l") != "x" || r.holding("q", "labels") != `a="1"` {
			t.Errorf("%q %q %q", r.holding("p", "k"), r.holding("p", "l"), r.holding("q", "labels"))
		}
		// What has gone stays in the volume, and the pod's owner is told once.
		if _, err := r.Delete(r.Context(), api.ConfigMaps, "default", "c", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(10 * time.Minute)
		if r.holding("p", "k") != "w" {
			t.Errorf("%q", r.holding("p", "k"))
		}
		r.want("events", r.events.of("FailedMount"), `Warning FailedMount p: MountVolume.SetUp failed for volume "v" : configmap "c" not found`)
		for _, name := range []string{"p", "q"} {
			r.delete(name, nil)
		}
		r.pass(time.Minute)
		r.nothingLeft()
	})
}

// TestVolumeWaits: a pod whose volume cannot be made waits, says why, and begins as soon as it can.
func TestVolumeWaits(t *testing.T) {
	needsRoot(t)
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p", volumeOf(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
		r.pass(20 * time.Minute)
		if r.get("p").Status.Phase != corev1.PodPending || waiting(r.get("p")) != "ContainerCreating: " {
			t.Errorf("%s %s", r.get("p").Status.Phase, waiting(r.get("p")))
		}
		r.want("events", r.events.of("FailedMount"), `Warning FailedMount p: MountVolume.SetUp failed for volume "v" : secret "s" not found`)
		r.secretOf("s", map[string]string{"k": "v"})
		r.pass(time.Second)
		if r.get("p").Status.Phase != corev1.PodRunning || r.holding("p", "k") != "v" {
			t.Errorf("%s %q", r.get("p").Status.Phase, r.holding("p", "k"))
		}
		r.delete("p", nil)
		r.pass(time.Minute)
		r.nothingLeft()
	})
}

// TestVolumesAfterRestart: an agent that was away brings volumes up to date.
func TestVolumesAfterRestart(t *testing.T) {
	needsRoot(t)
	with(t, nil, func(r *rig) {
		r.config("c", map[string]string{"k": "v"})
		r.begin()
		r.pod("p", volumeOf(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("c")}}))
		r.pod("gone", volumeOf(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("c")}}))
		r.pass(time.Second)
		r.end()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "w"}}
		if _, err := api.Update(r.Context(), r.Client, api.ConfigMaps, cm); err != nil {
			t.Fatal(err)
		}
		r.delete("gone", new(int64))
		before := r.running()
		r.begin()
		r.pass(time.Second)
		if r.holding("p", "k") != "w" || len(before) != 2 || len(r.running()) != 1 {
			t.Errorf("%q %v %v", r.holding("p", "k"), before, r.running())
		}
		r.delete("p", nil)
		r.pass(time.Minute)
		r.nothingLeft()
	})
}

// TestScratchLimit: a pod whose scratch space on disk outgrows its limit is evicted, others are not (N-6.34).
func TestScratchLimit(t *testing.T) {
	with(t, behaviours{"c": {IgnoreTERM: true}}, func(r *rig) {
		limit := resource.MustParse("1Mi")
		limited := volumeOf(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}})
		put, _ := r.statics()
		put("s.yaml", strings.Replace(staticPod, "spec:\n", "spec:\n  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]\n", 1))
		r.begin()
		r.pod("small", limited)
		r.pod("big", limited)
		r.pod("free", volumeOf(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}))
		r.pass(time.Minute)
		fill := func(pod string, n int) {
			t.Helper()
			p, err := r.agent.podNamed(r.Context(), "default", pod)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(r.dir, "data/volumes", string(p.UID), "v", "deep")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, n), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fill("small", 900<<10)
		for _, name := range []string{"big", "s-n", "free"} {
			fill(name, 1100<<10)
		}
		r.pass(20 * time.Second)
		for name, want := range map[string]corev1.PodPhase{"small": corev1.PodRunning, "s-n": corev1.PodRunning, "free": corev1.PodRunning,
			"big": corev1.PodFailed} {
			if got := r.get(name).Status; got.Phase != want {
				t.Errorf("%s is %s: %s", name, got.Phase, got.Message)
			}
		}
		const message = `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `
		if st := r.get("big").Status; st.Reason != "Evicted" || st.Message != message {
			t.Errorf("%s: %q", st.Reason, st.Message)
		}
		r.want("events", r.events.of("Evicted"), "Warning Evicted big: "+message)
		if exists(filepath.Join(r.dir, "data/volumes", string(r.get("big").UID))) {
			t.Error("its volumes are still there")
		}
	})
}

// tokenPod has a token of its own in its volume v.
func tokenPod(p *corev1.Pod) {
	seconds := int64(600)
	volumeOf(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault", ExpirationSeconds: &seconds}}}}})(p)
}

// tokenOffice answers requests for tokens, and counts them; the rest is the API's.
type tokenOffice struct {
	api.Client

	mu    sync.Mutex
	asked []authenticationv1.TokenRequest
	err   error
}

// closes has requests fail, or with nil be answered again.
func (o *tokenOffice) closes(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *tokenOffice) requests() []authenticationv1.TokenRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

func (o *tokenOffice) Create(ctx context.Context, k *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	r, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return o.Client.Create(ctx, k, obj, opts)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return nil, o.err
	}
	o.asked = append(o.asked, *r)
	out := r.DeepCopy()
	out.Status.Token = fmt.Sprint("token ", len(o.asked))
	out.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second))
	return out, nil
}

// TestTokenRenewal: a token is asked for once, for its pod and audience, and again when four fifths of its life are
// over; while the API is away the old one stays for as long as it is good.
func TestTokenRenewal(t *testing.T) {
	needsRoot(t)
	with(t, nil, func(r *rig) {
		office := &tokenOffice{Client: r.cfg.Client}
		r.cfg.Client = office
		r.begin()
		p := r.pod("p", tokenPod)
		r.pass(7*time.Minute + 50*time.Second)
		if r.holding("p", "token") != "token 1" || len(office.requests()) != 1 {
			t.Errorf("%q after %d requests", r.holding("p", "token"), len(office.requests()))
		}
		if a := office.requests()[0]; a.Namespace != "default" || a.Name != "default" || a.Spec.BoundObjectRef.UID != p.UID ||
			a.Spec.BoundObjectRef.Name != "p" ||
			len(a.Spec.Audiences) != 1 || a.Spec.Audiences[0] != "vault" {
			t.Errorf("%+v", a)
		}
		r.pass(90 * time.Second) // it is looked at each minute, and renewed after eight
		if r.holding("p", "token") != "token 2" || len(office.requests()) != 2 {
			t.Errorf("%q after %d requests", r.holding("p", "token"), len(office.requests()))
		}
		office.closes(errors.New("away"))
		r.pass(8 * time.Minute)
		r.want("events while the old one is good", r.events.of("FailedMount"))
		r.pass(2 * time.Minute)
		r.want("events", r.events.of("FailedMount"),
			`Warning FailedMount p: MountVolume.SetUp failed for volume "v" : failed to fetch token: away`)
		if r.holding("p", "token") != "token 2" || r.get("p").Status.Phase != corev1.PodRunning {
			t.Errorf("%q", r.holding("p", "token"))
		}
		office.closes(nil)
		r.pass(time.Minute + time.Second)
		if r.holding("p", "token") != "token 3" {
			t.Errorf("%q", r.holding("p", "token"))
		}
		r.delete("p", nil)
		r.pass(time.Minute)
		if n := len(r.agent.tokens.held); n != 0 {
			t.Errorf("%d tokens are still held", n)
		}
		r.nothingLeft()
	})
}

// TestTokenFresh: renewed in time, and when the clock was set.
func TestTokenFresh(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		left time.Duration
		want bool
	}{{time.Hour, true}, {13 * time.Minute, true}, {12 * time.Minute, false}, {0, false}, {-time.Hour, false},
		{50 * 365 * 24 * time.Hour, false}} {
		if got := (heldToken{life: time.Hour, expires: now.Add(c.left)}).fresh(now); got != c.want {
			t.Errorf("with %v left: %v", c.left, got)
		}
	}
}

// TestSwapWarning: secrets in memory are told to be at risk only where there is swap on a disk and no way around it (N-8.14).
func TestSwapWarning(t *testing.T) {
	for _, c := range []struct {
		disk bool
		can  bool
		want int
	}{{false, false, 0}, {false, true, 0}, {true, true, 0}, {true, false, 1}} {
		events := &playedEvents{}
		a := &Agent{cfg: Config{Name: "n", Events: events}}
		a.warnOfSwap(machine.Sample{SwapTotal: 1 << 30, SwapOnDisk: c.disk}, c.can)
		if got := events.of("PossibleMemoryBackedVolumesOnDisk"); len(got) != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
