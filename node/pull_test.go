package node

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/scheduling"
	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/node/machine"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

const farImage = "registry.example/far:v1"

// far is a registry with one image, and how often it was asked for what.
func (r *rig) far() *it.Registry {
	reg := &it.Registry{}
	reg.Push(it.Sample(farImage))
	r.images.Registry = reg
	return reg
}

func imageOf(ref string, p corev1.PullPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = ref, p
	}
}

func (r *rig) waiting(pod string) corev1.ContainerStateWaiting {
	r.Helper()
	if w := r.get(pod).Status.ContainerStatuses[0].State.Waiting; w != nil {
		return *w
	}
	return corev1.ContainerStateWaiting{}
}

// TestPullEvents: what kubectl describe shows of a pull is what a kubelet says.
func TestPullEvents(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.far()
		r.begin()
		r.pod("p", imageOf(farImage, corev1.PullIfNotPresent))
		r.pass(time.Second)
		r.want("running", r.running(), "c.0")
		size := len("program "+farImage) + len("content")
		r.want("events", r.events.of("Pulling", "Pulled"), `Normal Pulling p: Pulling image "registry.example/far:v1"`,
			fmt.Sprintf(`Normal Pulled p: Successfully pulled image "registry.example/far:v1" in 0s (0s including waiting). Image size: %d bytes.`,
				size))
		r.pod("q", imageOf(farImage, corev1.PullIfNotPresent))
		r.pass(time.Second)
		r.want("second", r.events.of("Pulled")[1:], `Normal Pulled q: Container image "registry.example/far:v1" already present on machine`)
	})
}

// TestPullFails: ErrImagePull, then ImagePullBackOff, tried again after 10, 20, 40 ... 300 seconds (N-7.13, N-7.16).
func TestPullFails(t *testing.T) {
	with(t, nil, func(r *rig) {
		reg := r.far()
		var mu sync.Mutex
		broken := true
		var tries []time.Duration
		began := time.Now()
		reg.Fail = func(op, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, time.Since(began).Round(time.Second))
			if !broken {
				return nil
			}
			return errors.New("no route")
		}
		r.begin()
		r.pod("p", imageOf(farImage, corev1.PullAlways))
		r.pass(time.Second)
		if w := r.waiting("p"); w.Reason != "ErrImagePull" || !strings.Contains(w.Message, "no route") {
			t.Errorf("%+v", w)
		}
		r.pass(24 * time.Second) // the second pause is of 20 seconds; ten of them have passed
		if w := r.waiting("p"); w.Reason != "ImagePullBackOff" ||
			!strings.HasPrefix(w.Message, `Back-off pulling image "registry.example/far:v1": ErrImagePull: `) {
			t.Errorf("%+v", w)
		}
		r.want("events", r.events.of("Failed", "BackOff"), `Warning Failed p: Failed to pull image "registry.example/far:v1": no route`,
			"Warning Failed p: Error: ErrImagePull", `Normal BackOff p: Back-off pulling image "registry.example/far:v1"`,
			"Warning Failed p: Error: ImagePullBackOff")
		r.pass(15 * time.Minute)
		mu.Lock()
		var pauses []time.Duration
		for i := 1; i < len(tries); i++ {
			pauses = append(pauses, (tries[i]-tries[i-1])/time.Second)
		}
		broken = false
		mu.Unlock()
		if want := []time.Duration{10, 20, 40, 80, 160, 300}; len(pauses) < 6 || !slices.Equal(pauses[:6], want) {
			t.Errorf("pauses %v", pauses)
		}
		r.pass(6 * time.Minute)
		r.want("running", r.running(), "c.0")
	})
}

// TestPullPolicies: Always asks the registry for every start, IfNotPresent only for what is not here, Never never.
func TestPullPolicies(t *testing.T) {
	with(t, nil, func(r *rig) {
		reg := r.far()
		var asked atomic.Int32
		reg.Fail = func(string, string) error { asked.Add(1); return nil }
		r.begin()
		r.pod("never", imageOf(farImage, corev1.PullNever))
		r.pass(time.Second)
		if w := r.waiting("never"); w.Reason != "ErrImageNeverPull" || asked.Load() > 0 {
			t.Errorf("%+v, asked %d times", w, asked.Load())
		}
		r.want("never", r.events.of("ErrImageNeverPull", "Failed"),
			`Warning ErrImageNeverPull never: Container image "registry.example/far:v1" is not present with pull policy of Never`,
			"Warning Failed never: Error: ErrImageNeverPull")
		r.pod("missing", imageOf(farImage, corev1.PullIfNotPresent))
		r.pass(time.Second)
		first := asked.Load()
		r.pod("here", imageOf(farImage, corev1.PullIfNotPresent))
		r.pass(time.Second)
		if first == 0 || asked.Load() != first {
			t.Errorf("asked %d times, then %d", first, asked.Load()-first)
		}
		// The tag moves on: who asks gets the new one.
		newer := it.Sample(farImage, "registry.example/far:v2")
		reg.Push(newer)
		r.pod("always", imageOf(farImage, corev1.PullAlways))
		r.pass(time.Second)
		if got := r.get("always").Status.ContainerStatuses[0].ImageID; got != newer.ID() {
			t.Errorf("image %s", got)
		}
		// A name nobody can read: no registry is asked.
		r.pod("bad", imageOf("Not A Name", corev1.PullAlways))
		r.pass(time.Second)
		if w := r.waiting("bad"); w.Reason != "InvalidImageName" {
			t.Errorf("%+v", w)
		}
	})
}

// TestPullOffline: a board without an uplink starts what it has, whatever the policy (pain 21), and says so.
func TestPullOffline(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.far().Fail = func(string, string) error { return fmt.Errorf("dial: %w", images.ErrUnreachable) }
		r.addImage(farImage)
		r.begin()
		r.pod("p", imageOf(farImage, corev1.PullAlways))
		r.pass(time.Second)
		r.want("running", r.running(), "c.0")
		if e := r.events.of("Pulled"); len(e) != 1 || !strings.HasPrefix(e[0], "Warning Pulled p: Container image") {
			t.Errorf("%q", e)
		}
	})
}

// TestPullOfflineLoop: a registry that does not answer is not asked again at each start of a crash loop, at any stage of
// it. When it answers again the new image comes, and another pod asks at once.
func TestPullOfflineLoop(t *testing.T) {
	soon := time.Second
	with(t, map[string]enginefake.Behaviour{"c": {ExitAfter: &soon, Exit: runtime.Exit{Code: 1}}}, func(r *rig) {
		reg := r.far()
		var asked, answers atomic.Int32
		reg.Fail = func(string, string) error {
			asked.Add(1)
			if answers.Load() > 0 {
				return nil
			}
			return fmt.Errorf("dial: %w", images.ErrUnreachable)
		}
		r.addImage(farImage)
		r.begin()
		r.pod("p", imageOf(farImage, corev1.PullAlways))
		var before, began int32
		for _, stage := range []time.Duration{5 * time.Minute, 2 * time.Hour, 6 * time.Hour} {
			r.pass(stage)
			starts := r.get("p").Status.ContainerStatuses[0].RestartCount + 1
			if a, s := asked.Load()-before, starts-began; a == 0 || s < 2*a {
				t.Errorf("in %s it was asked %d times for %d starts", stage, a, s)
			}
			before, began = asked.Load(), starts
		}
		const backoff = `Normal BackOff p: Back-off pulling image "registry.example/far:v1"`
		told := r.events.of("BackOff", "Pulled")
		if at := slices.Index(told, backoff); at < 0 || !strings.HasPrefix(told[at+1], "Warning Pulled p: Container image") ||
			!strings.Contains(told[at+1], "dial: ") {
			t.Errorf("%q", told)
		}
		before = asked.Load()
		r.pod("q", imageOf(farImage, corev1.PullAlways))
		r.pass(time.Second / 2)
		if asked.Load() != before+1 {
			t.Error("another pod did not ask")
		}
		answers.Store(1)
		r.pass(time.Hour)
		if got := r.get("p").Status.ContainerStatuses[0].ImageID; got != it.Sample(farImage).ID() {
			t.Errorf("image %s", got)
		}
	})
}

// TestPullUnwanted: a pod that goes while its image comes does not wait for it, and neither does the agent.
func TestPullUnwanted(t *testing.T) {
	with(t, nil, func(r *rig) {
		reg := r.far()
		block := make(chan struct{})
		reg.Fail = func(op, _ string) error {
			if op == "blob" {
				<-block
			}
			return nil
		}
		r.begin()
		r.pod("p", imageOf(farImage, corev1.PullAlways), func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d", Image: image, Command: []string{"x"}})
		})
		r.pass(time.Second)
		r.want("the other container runs", r.running(), "d.0")
		if w := r.waiting("p"); w.Reason != "ContainerCreating" {
			t.Errorf("%+v", w)
		}
		r.delete("p", nil)
		close(block)
		r.pass(time.Minute)
		if !r.gone("p") {
			t.Error("the pod is still there")
		}
		r.nothingLeft()
	})
}

// TestPullSecrets: the credentials a pod names are read, of both kinds; one that is missing is told and not fatal.
func TestPullSecrets(t *testing.T) {
	with(t, nil, func(r *rig) {
		keys := &keySpy{Registry: r.far()}
		r.images.Registry = keys
		auth := base64.StdEncoding.EncodeToString([]byte("me:pw"))
		for name, s := range map[string]corev1.Secret{
			"new": {Type: corev1.SecretTypeDockerConfigJson,
				Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example":{"auth":"` + auth + `"}}}`)}},
			"old": {Type: corev1.SecretTypeDockercfg,
				Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"https://registry.example/v1/":{"username":"him","password":"x"}}`)}},
			"bad": {Type: corev1.SecretTypeOpaque, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("secret text")}},
		} {
			s.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: name}
			if _, err := api.Create(r.Context(), r.Client, api.Secrets, &s); err != nil {
				t.Fatal(err)
			}
		}
		with := func(names ...string) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				for _, n := range names {
					p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: n})
				}
			}
		}
		r.begin()
		r.pod("p", imageOf(farImage, corev1.PullAlways), with("new", "none", "old"))
		r.pass(time.Minute)
		r.want("running", r.running(), "c.0")
		want := []images.Credential{{Username: "me", Password: "pw"}, {Username: "him", Password: "x"}}
		if got := keys.last().For("registry.example", "far"); !slices.Equal(got, want) {
			t.Errorf("%d credentials", len(got))
		}
		r.want("told", r.events.of("FailedToRetrieveImagePullSecret"),
			"Warning FailedToRetrieveImagePullSecret p: Unable to retrieve some image pull secrets (none); "+
				"attempting to pull the image may not succeed.")
		r.pod("q", imageOf(farImage, corev1.PullAlways), with("bad"))
		r.pass(time.Second)
		if w := r.waiting("q"); w.Reason != "ErrImagePull" || !strings.Contains(w.Message, `image pull secret "bad"`) ||
			strings.Contains(w.Message, "secret text") {
			t.Errorf("%+v", w)
		}
	})
}

type keySpy struct {
	images.Registry
	mu   sync.Mutex
	keys images.Keyring
}

func (k *keySpy) last() images.Keyring {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys
}

func (k *keySpy) Manifest(ctx context.Context, ref images.Reference, keys images.Keyring) (images.Document, error) {
	k.mu.Lock()
	k.keys = keys
	k.mu.Unlock()
	return k.Registry.Manifest(ctx, ref, keys)
}

// TestPullAgainAfterLoss: an image that turns out damaged when it is mounted is pulled again by itself.
func TestPullAgainAfterLoss(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.far()
		lost := false
		r.images.Fail = func(op, _ string) error {
			if op == "mount" && !lost {
				lost = true
				if err := r.images.Remove(r.Context(), farImage); err != nil {
					t.Error(err)
				}
				return images.ErrNotFound
			}
			return nil
		}
		r.begin()
		r.pod("p", imageOf(farImage, corev1.PullIfNotPresent))
		r.pass(time.Minute)
		synctest.Wait()
		r.want("running", r.running(), "c.0")
		if n := len(r.events.of("Pulling")); n != 2 {
			t.Errorf("pulled %d times", n)
		}
	})
}

// TestDiskPressureFreesImages of N-6.23: unused images go when the disk is short, those in use and pinned ones stay.
func TestDiskPressureFreesImages(t *testing.T) {
	with(t, nil, func(r *rig) {
		reg := r.far()
		r.begin()
		r.pod("p", imageOf(farImage, corev1.PullIfNotPresent), class(scheduling.SystemNodeCritical)) // or it would have to go as well
		r.pass(time.Second)
		other := it.Sample(farImage)
		other.Config.Cmd = []string{"other"}
		other.Names = []string{"registry.example/unused:v1"}
		reg.Push(other)
		if _, err := r.images.Pull(r.Context(), images.PullRequest{Ref: other.Names[0]}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		has := func(ref string) bool {
			_, err := r.images.Get(r.Context(), ref)
			return err == nil
		}
		if !has(other.Names[0]) {
			t.Fatal("removed without need")
		}
		r.board.change(func(s *machine.Sample) {
			s.ImageFS.Available = s.ImageFS.Capacity / 100
			s.NodeFS.Available = s.ImageFS.Available
		})
		r.pass(time.Minute)
		if has(other.Names[0]) || !has(farImage) || !has(image) {
			t.Errorf("unused %v, in use %v, pinned %v", has(other.Names[0]), has(farImage), has(image))
		}
		r.want("running", r.running(), "c.0")
	})
}

// TestCollectTells of N-6.24: when unused images are not enough, the Node's events say so in a kubelet's words, each time.
func TestCollectTells(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pass(12 * time.Minute)
		if got := r.events.of("FreeDiskSpaceFailed"); len(got) > 0 {
			t.Errorf("with room: %q", got)
		}
		r.end()
		r.images.Short = 1000
		r.begin()
		r.pass(12 * time.Minute)
		const says = "Warning FreeDiskSpaceFailed n: Failed to garbage collect required amount of images. Attempted to free 1000 bytes, " +
			"but only found 0 bytes eligible to free."
		r.want("full", r.events.of("FreeDiskSpaceFailed"), says, says)
	})
}

// slowRegistry takes seven seconds for each blob.
type slowRegistry struct{ images.Registry }

func (s slowRegistry) Blob(ctx context.Context, req images.BlobRequest) (images.BlobStream, error) {
	time.Sleep(7 * time.Second)
	return s.Registry.Blob(ctx, req)
}

// TestImageMetrics: what /metrics says of images has a kubelet's names and labels.
func TestImageMetrics(t *testing.T) {
	with(t, nil, func(r *rig) {
		reg := r.far()
		r.begin()
		page := func() map[string]string {
			media, text, ok, err := r.agent.Page(r.Context(), "/metrics")
			if !ok || err != nil || !strings.HasPrefix(media, "text/plain; version=0.0.4") {
				t.Fatalf("%s, %v, %v", media, ok, err)
			}
			out := map[string]string{}
			for line := range strings.Lines(string(text)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				out[name] = value
			}
			return out
		}
		if _, ok := page()["kubelet_image_pull_duration_seconds_count"]; ok {
			t.Error("pulls before the first")
		}
		r.images.Registry = slowRegistry{reg}
		r.pod("p", imageOf(farImage, corev1.PullAlways), class(scheduling.SystemNodeCritical)) // a full disk shall not evict it
		r.pod("bad", imageOf("registry.example/none:v1", corev1.PullAlways), class(scheduling.SystemNodeCritical))
		r.pass(time.Minute)
		r.want("running", r.running(), "c.0")
		r.board.change(func(s *machine.Sample) {
			s.ImageFS.Available = s.ImageFS.Capacity / 100
			s.NodeFS.Available = s.ImageFS.Available
		})
		other := it.Sample("registry.example/unused:v1")
		other.Config.Cmd = []string{"other"}
		reg.Push(other)
		if _, err := r.images.Pull(r.Context(), images.PullRequest{Ref: other.Names[0]}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		got := page()
		failed, _ := strconv.Atoi(got[`kubelet_runtime_operations_errors_total{operation_type="pull_image"}`])
		for name, want := range map[string]string{
			`kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes="0-10MB",le="10"}`:   "0",
			`kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes="0-10MB",le="60"}`:   "2",
			`kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes="0-10MB",le="3600"}`: "2",
			`kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes="0-10MB",le="+Inf"}`: "2",
			`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"}`:            "2",
			// three blobs each: the config and two layers
			`kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="0-10MB"}`: "42",
			`kubelet_runtime_operations_total{operation_type="pull_image"}`:         strconv.Itoa(2 + failed),
			`kubelet_image_garbage_collected_total{reason="age"}`:                   "0",
			`kubelet_image_garbage_collected_total{reason="space"}`:                 "1",
		} {
			if got[name] != want {
				t.Errorf("%s is %q, want %q", name, got[name], want)
			}
		}
		if failed < 2 || got["ledge_image_pull_bytes_total"] == "0" || got["ledge_image_garbage_collected_bytes_total"] == "0" {
			t.Errorf("%d failed; %v", failed, got)
		}
	})
}
