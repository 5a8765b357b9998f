package node

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

func imageVolume(ref string, p corev1.PullPolicy) func(*corev1.Pod) {
	return volumeOf(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: ref, PullPolicy: p}})
}

// volumeMounted is where the image of a pod's volume stands; "" when it does not.
func (r *rig) volumeMounted(pod *corev1.Pod) string {
	return r.images.Mounts()[imageVolumeKey(pod, "v")]
}

// TestImageVolume: pulled when it is not here, mounted once for the pod and read-only in its containers, found again by
// the next agent, and gone with the pod.
func TestImageVolume(t *testing.T) {
	with(t, nil, func(r *rig) {
		var mu sync.Mutex
		mounts := map[string][]runtime.Mount{}
		r.engine = enginefake.New(enginefake.Config{Script: func(c runtime.Container) enginefake.Behaviour {
			mu.Lock()
			defer mu.Unlock()
			mounts[c.ID] = c.Mounts
			return enginefake.Behaviour{TermCode: 143}
		}})
		r.cfg.Engine = r.engine
		r.far()
		r.begin()
		p := r.pod("p", imageVolume(farImage, ""))
		r.pass(2 * time.Second)
		r.want("running", r.running(), "c.0")
		root := r.volumeMounted(p)
		m := mounts[containerID(p, "c", 0)][0]
		if root == "" || m.Target != "/v" || !m.ReadOnly || strings.Join(m.Options, " ") != "noexec nosuid nodev" {
			t.Errorf("the image stands at %q, mounted as %+v", root, m)
		}
		if got := r.events.of("Pulling"); len(got) != 1 || !strings.Contains(got[0], farImage) {
			t.Errorf("events %q", got)
		}
		r.begin() // another agent, the pod runs on
		r.pass(time.Second)
		if r.volumeMounted(p) != root || len(r.events.of("Pulling")) != 1 {
			t.Errorf("after a restart: %q, %q", r.volumeMounted(p), r.events.of("Pulling"))
		}
		if !r.engine.End(containerID(p, "c", 0), runtime.Exit{Code: 1}) {
			t.Fatal("nothing to end")
		}
		r.pass(2 * time.Second)
		r.want("running again", r.running(), "c.1")
		if len(mounts[containerID(p, "c", 1)]) == 0 {
			t.Error("the next attempt has no mounts")
		}
		r.delete("p", nil)
		r.pass(time.Minute)
		r.nothingLeft()
	})
}

// TestImageVolumeMissing: the pod waits and says for what; a slow pull is given up with the pod.
func TestImageVolumeMissing(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("never", imageVolume("example.com/none:v1", corev1.PullNever))
		r.pass(5 * time.Second)
		r.want("events", r.events.of("FailedMount"),
			`Warning FailedMount never: MountVolume.SetUp failed for volume "v" : image "example.com/none:v1" is not present with pull policy of Never`)
		if r.get("never").Status.Phase != corev1.PodPending {
			t.Errorf("it is %s", r.get("never").Status.Phase)
		}
		slow := &slowPulls{Store: r.cfg.Images, given: make(chan struct{}, 1)}
		r.end()
		r.cfg.Images = slow
		r.begin()
		r.pod("slow", imageVolume("example.com/slow:v1", corev1.PullIfNotPresent))
		r.pass(time.Minute)
		if len(slow.given) > 0 || r.get("slow").Status.Phase != corev1.PodPending {
			t.Error("the pull has ended")
		}
		r.delete("slow", new(int64))
		r.delete("never", new(int64))
		r.pass(time.Minute)
		if len(slow.given) != 1 {
			t.Error("the pull goes on without its pod")
		}
		r.nothingLeft()
	})
}

// slowPulls is a store whose pulls never end by themselves.
type slowPulls struct {
	images.Store
	given chan struct{}
}

func (s *slowPulls) Pull(ctx context.Context, _ images.PullRequest) (images.Pulled, error) {
	<-ctx.Done()
	s.given <- struct{}{}
	return images.Pulled{}, ctx.Err()
}
