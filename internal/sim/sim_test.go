package sim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
	"ledge/api/batch"
	"ledge/api/policy"
	"ledge/internal/testrun"
)

// journal is the log of all boards: kept, counted, and printed only for a test that fails.
var journal = &journalHandler{count: map[string]int{}}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(journal))
	debug.SetGCPercent(400) // much is thrown away and little is kept
	os.Exit(m.Run())
}

type journalHandler struct {
	mu    sync.Mutex
	count map[string]int // warnings and errors by message
	lines []string
}

func (j *journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (j *journalHandler) WithAttrs([]slog.Attr) slog.Handler           { return j }
func (j *journalHandler) WithGroup(string) slog.Handler                { return j }

func (j *journalHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", r.Time.UTC().Format("02 15:04:05.000"), r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s=%v", a.Key, a.Value); return true })
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		j.count[r.Message]++
	}
	if j.lines = append(j.lines, b.String()); len(j.lines) > 2000 {
		j.lines = j.lines[1000:]
	}
	return nil
}

// take empties the journal and gives the number of warnings by message.
func (j *journalHandler) take(t *testing.T) map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t.Failed() {
		t.Logf("the board's log:\n%s", strings.Join(j.lines[max(0, len(j.lines)-200):], "\n"))
	}
	out := j.count
	j.count, j.lines = map[string]int{}, nil
	return out
}

// play runs fn with a board in a bubble and tells how long it took.
func play(t *testing.T, cfg Config, fn func(b *Board)) (warnings map[string]int) {
	t.Helper()
	began, simulated := time.Now(), time.Duration(0)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		fn(New(t, cfg))
		simulated = time.Since(start)
	})
	warnings = journal.take(t)
	t.Logf("%s simulated in %s, warnings %v", simulated.Round(time.Second), time.Since(began).Round(time.Millisecond), warnings)
	return warnings
}

// seed of the scripts: LEDGE_SEED, or always the same.
func seed(t *testing.T) uint64 {
	s := uint64(20260101)
	if text := os.Getenv("LEDGE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("LEDGE_SEED=%q: %v", text, err)
		}
		s = n
	}
	t.Logf("repeat with LEDGE_SEED=%d", s)
	return s
}

// long leaves a test that plays for a day out of short runs.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes 10 s and more")
	}
}

// TestQuietDay: on a board where nothing happens, nothing is written but what is held back for six hours each time
// (architecture: Leases are lazy; the budget is 1 MB a day, one such commit 50 to 100 KB at the device), nothing is said, and no pod is
// touched; nor is there anything to do for the controllers of what is at rest.
func TestQuietDay(t *testing.T) {
	long(t)
	if testrun.Raced {
		t.Skip("the race detector takes minutes for it, and sees all of it on a faulty day")
	}
	hours := 24
	warnings := play(t, Config{Seed: 1}, func(b *Board) {
		for i := range 20 {
			b.Apply(Pod(fmt.Sprintf("steady-%d", i), WantSteady, corev1.RestartPolicyAlways, "run"))
		}
		b.applyWorkloads()
		b.Settle(10 * time.Second)
		b.Pass(2 * time.Hour) // events of the start expire
		commits, beats, pods := b.Health().Commits, b.witness.Beats(), b.versions()
		b.Pass(time.Duration(hours) * time.Hour)
		b.Settle(0)
		if n := b.Health().Commits - commits; n < hours/6 || n > hours/6+1 {
			t.Errorf("%d commits in %d idle hours, one in six is due for lazy writes", n, hours)
		}
		if n := b.witness.Beats() - beats; n < hours*345 || n > hours*360+1 {
			t.Errorf("%d renewals in %d hours", n, hours)
		}
		for name, was := range pods {
			if is := b.versions()[name]; is != was {
				t.Errorf("pod %s was written in an idle day: revision %s, was %s", name, is, was)
			}
		}
	})
	if len(warnings) > 0 {
		t.Errorf("warnings on a quiet day: %v", warnings)
	}
}

// TestFaultyDay does what may happen to a board, one thing after the other.
func TestFaultyDay(t *testing.T) {
	long(t)
	day := 24 * time.Hour
	if testrun.Raced {
		day = 2 * time.Hour
	}
	play(t, Config{Seed: seed(t)}, func(b *Board) { b.Mischief(day) })
}

// TestWeek is seven such days; set LEDGE_LONG.
func TestWeek(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" {
		t.Skip("takes minutes: set LEDGE_LONG")
	}
	play(t, Config{Seed: seed(t)}, func(b *Board) { b.Mischief(7 * 24 * time.Hour) })
}

// applyWorkloads makes one of each that controllers look after, as the user: pods that stay, an autoscaler of some of them, a budget for
// them, and a CronJob that is due on a leap day.
func (b *Board) applyWorkloads() {
	b.t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	template := func(name string, does ...string) corev1.PodTemplateSpec {
		p := Pod(name, WantSteady, corev1.RestartPolicyAlways, does...)
		p.Labels["app"] = name
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	two, one := int32(2), intstr.FromInt32(1)
	work := template("tick", "exit=1s:0")
	work.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, c := range []struct {
		kind *api.Kind
		obj  api.Object
	}{
		{apps.Deployments, &appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: selector("web"),
			Template: template("web", "run")}}},
		{apps.StatefulSets, &appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Replicas: &two, Selector: selector("db"),
			Template: template("db", "run")}}},
		{apps.DaemonSets, &appsv1.DaemonSet{ObjectMeta: meta("eye"), Spec: appsv1.DaemonSetSpec{Selector: selector("eye"),
			Template: template("eye", "run")}}},
		{batch.CronJobs, &batchv1.CronJob{ObjectMeta: meta("tick"), Spec: batchv1.CronJobSpec{Schedule: "0 3 29 2 *",
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: work}}}}},
		{policy.PodDisruptionBudgets, &policyv1.PodDisruptionBudget{ObjectMeta: meta("web"), Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: selector("web"), MinAvailable: &one}}},
		{autoscaling.HorizontalPodAutoscalers, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta("web"),
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &two, MaxReplicas: 4,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
				Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
					Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
						Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewMilliQuantity(podLoad, resource.DecimalSI)}}}}}}},
	} {
		_, err := b.brain.user.Create(b.ctx, c.kind, c.obj, api.WriteOptions{})
		b.must(err, "make "+c.kind.Singular)
	}
}

func (b *Board) versions() map[string]string {
	out := map[string]string{}
	for _, p := range b.Pods() {
		out[p.Name] = p.ResourceVersion
	}
	return out
}

// TestHogs: pods that take all there is of memory or processes go, one after the other, and nobody else does, whatever else
// happens to the board meanwhile.
func TestHogs(t *testing.T) { // N-6.18, N-6.20, N-6.25, N-6.27, N-6.35
	long(t)
	if testrun.Raced {
		t.Skip("the race detector takes minutes for it; a faulty day has some of them")
	}
	play(t, Config{Seed: seed(t)}, func(b *Board) {
		m := newMischief(b)
		m.stock(0)
		b.Settle(recovery)
		for _, d := range deeds {
			if !strings.HasPrefix(d.name, "pods take all there is") {
				continue
			}
			b.Logf("%s", d.name)
			d.do(m)
			b.Settle(recovery)
		}
	})
}
