package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// playedHome answers writes with one error, or takes them, and has one pod.
type playedHome struct {
	podHome
	err error
	has *corev1.Pod
}

func (h playedHome) UpdateStatus(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	out := pod.DeepCopy()
	out.ResourceVersion = "2"
	return out, h.err
}

func (h playedHome) Get(context.Context, string, string) (*corev1.Pod, error) {
	if h.has == nil {
		return nil, apierrors.NewNotFound(api.Pods.GR(), "p")
	}
	return h.has, nil
}

// playedOwner notes what it is told.
type playedOwner struct{ told []string }

func (o *playedOwner) written(p *corev1.Pod) { o.told = append(o.told, "written "+p.ResourceVersion) }
func (o *playedOwner) offer(p *corev1.Pod)   { o.told = append(o.told, "offer "+p.ResourceVersion) }
func (o *playedOwner) vanished()             { o.told = append(o.told, "vanished") }

// TestStatusWriter: what each answer to a write means for the pod.
func TestStatusWriter(t *testing.T) {
	pod := func(uid types.UID, version string) *corev1.Pod {
		p := aPod("p")
		p.UID, p.ResourceVersion = uid, version
		return p
	}
	conflict := apierrors.NewConflict(api.Pods.GR(), "p", errors.New("changed"))
	for what, c := range map[string]struct {
		home   playedHome
		status corev1.PodStatus
		goesOn bool
		silent bool
		told   string
	}{
		"taken":       {playedHome{}, corev1.PodStatus{Phase: corev1.PodRunning}, true, false, "written 2"},
		"nothing new": {playedHome{err: errors.New("not to be asked")}, corev1.PodStatus{}, true, false, ""},
		"gone": {playedHome{err: apierrors.NewNotFound(api.Pods.GR(), "p")}, corev1.PodStatus{Phase: corev1.PodRunning},
			false, false, "vanished"},
		"changed": {playedHome{err: conflict, has: pod("u", "7")}, corev1.PodStatus{Phase: corev1.PodRunning}, false, false,
			"offer 7"},
		"another of that name": {playedHome{err: conflict, has: pod("other", "7")}, corev1.PodStatus{Phase: corev1.PodRunning}, false, false,
			"vanished"},
		"gone since":               {playedHome{err: conflict}, corev1.PodStatus{Phase: corev1.PodRunning}, false, false, "vanished"},
		"conflict without change":  {playedHome{err: conflict, has: pod("u", "1")}, corev1.PodStatus{Phase: corev1.PodRunning}, true, true, ""},
		"an API that is elsewhere": {playedHome{err: errors.New("no route")}, corev1.PodStatus{Phase: corev1.PodRunning}, true, true, ""},
	} {
		owner := &playedOwner{}
		w := statusWriter{home: c.home, owner: owner}
		if got := w.write(t.Context(), pod("u", "1"), c.status); got != c.goesOn || strings.Join(owner.told, " ") != c.told {
			t.Errorf("%s: %v and %q, want %v and %q", what, got, owner.told, c.goesOn, c.told)
		}
		if rest := w.rest(resync); (rest == firstSilence) != c.silent || !c.silent && rest != resync {
			t.Errorf("%s: rests %s", what, rest)
		}
	}
	w := statusWriter{home: playedHome{err: errors.New("no route")}, owner: &playedOwner{}}
	var rests []time.Duration
	for range 6 {
		w.write(t.Context(), pod("u", "1"), corev1.PodStatus{Phase: corev1.PodRunning})
		rests = append(rests, w.rest(resync)/time.Second)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if rests[i] != want {
			t.Errorf("rests %v seconds", rests)
		}
	}
}
