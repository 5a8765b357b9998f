package brain

import (
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/shutdown"
	"ledge/storage"
)

// TestResumeOncePerBoot: N-5.32, and architecture: Bare pods come back. With resumePods: false pods stay as the shutdown left them.
func TestResumeOncePerBoot(t *testing.T) {
	for _, off := range []bool{false, true} {
		s, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
		must(t, err)
		defer s.Close()
		client, err := local.New(local.Config{Store: s})
		must(t, err)
		r := resumer{client: client, node: "n", off: off}
		anew := false
		boot := func(id string) (bool, error) { return booted(s.Table("settings"), id, anew, r.resume) }
		if again, err := boot("boot 1"); err != nil || again {
			t.Fatalf("the first boot of all: %v %v", again, err)
		}
		stop := func(name string) {
			t.Helper()
			p, err := api.Get[*corev1.Pod](t.Context(), client, api.Pods, "default", name)
			must(t, err)
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, shutdown.StopReason, shutdown.StopMessage
			_, err = api.UpdateStatus(t.Context(), client, api.Pods, p)
			must(t, err)
		}
		phase := func() corev1.PodPhase {
			t.Helper()
			p, err := api.Get[*corev1.Pod](t.Context(), client, api.Pods, "default", "p")
			must(t, err)
			return p.Status.Phase
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}}
		p.Spec.NodeName, p.Spec.Containers = "n", []corev1.Container{{Name: "c", Image: "i"}}
		_, err = api.Create(t.Context(), client, api.Pods, p)
		must(t, err)
		stop("p")
		back := map[bool]corev1.PodPhase{false: corev1.PodPending, true: corev1.PodFailed}[off]
		for i, step := range []struct {
			boot  string
			again bool
			want  corev1.PodPhase
		}{{"boot 1", false, corev1.PodFailed}, {"boot 2", true, back}, {"boot 2", false, back}} {
			if again, err := boot(step.boot); err != nil || again != step.again || phase() != step.want {
				t.Errorf("resumePods %v, step %d: %v %v, the pod is %s, want %s", !off, i, again, err, phase(), step.want)
			}
		}
		stop("p")
		if _, err := boot("boot 2"); err != nil || phase() != corev1.PodFailed {
			t.Errorf("another start of the same boot: %v, %s", err, phase())
		}
		anew = true
		if again, err := boot("boot 2"); err != nil || again || phase() != back {
			t.Errorf("resumePods %v, after a reset in the same boot: %v %v, the pod is %s, want %s", !off, again, err, phase(), back)
		}
	}
}

// TestBoardsTurnReady: pods of another board come back once each time it turns Ready, and a look that changes nothing else is
// none; whether they do at all is the configuration's to say.
func TestBoardsTurnReady(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	boards := readiness{}
	for i, look := range []struct {
		a, b corev1.ConditionStatus
		want []string
	}{{yes, no, []string{"a"}}, {yes, yes, []string{"b"}}, {yes, yes, nil}, {unknown, no, nil}, {yes, yes, []string{"a", "b"}}} {
		if got := boards.turned([]*corev1.Node{node("a", look.a), node("b", look.b)}); !slices.Equal(got, look.want) {
			t.Errorf("look %d: %v, want %v", i, got, look.want)
		}
	}
	off := false
	for _, set := range []*bool{nil, &off} {
		b := &Brain{plane: &plane{}}
		b.File.ResumePods = set
		if r := b.resumer("far"); r.node != "far" || r.off != (set == &off) {
			t.Errorf("%+v", r)
		}
	}
}
