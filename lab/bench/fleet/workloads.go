package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/rest"
	"ledge/brain/played"
	"ledge/lab/bench/measure"
)

// side is one of the control planes that are compared. Both have boards of the same sort, which run nothing and are not counted.
type side struct {
	name   string
	client *rest.Client
	pids   func() []int
	disk   string            // block device that only its data is on
	turns  map[string][]cost // by what was done
}

// cost is what doing something once took.
type cost struct {
	Seconds    float64 `json:"seconds"`
	WrittenKiB float64 `json:"writtenKiB"`
	CPU        float64 `json:"cpuSeconds"`
}

// standing is what a control plane takes that has nothing to do.
type standing struct {
	CPU        float64 `json:"cpuPercent"`
	PSS        float64 `json:"pssMiB"`
	WrittenKiB float64 `json:"writtenKiB"`
}

const (
	boardsOfWorkloads = 4
	restingWorkloads  = 100
	rolled            = 10 // pods of the rollout
	calm              = 3 * time.Second
)

// workloads measures both planes, or ledge's alone where the other is not built.
func (b *bench) workloads(ctx context.Context, out, page string) (err error) {
	if os.Getuid() != 0 {
		return errors.New("a node needs root")
	}
	b.load = measure.Load()
	if b.ledge, err = filepath.Abs(b.ledge); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "ledge-bench-workloads-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, played.Unmount(b.dir), os.RemoveAll(b.dir)) }()
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	var close []func() error
	defer func() {
		stop()
		err = errors.Join(err, g.Wait())
		for _, f := range slices.Backward(close) {
			err = errors.Join(err, f())
		}
	}()
	var sides []*side
	skipped := ""
	for _, open := range []func(context.Context, *errgroup.Group) (*side, func() error, error){b.openLedge, b.openOriginal} {
		s, end, err := open(ctx, g)
		if end != nil {
			close = append(close, end)
		}
		if errors.Is(err, errNotBuilt) {
			skipped = err.Error()
			fmt.Fprintln(os.Stderr, "  skipped:", skipped)
			continue
		}
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	quiet, busy, err := b.compare(ctx, sides)
	if err != nil {
		return err
	}
	return b.tell(sides, quiet, busy, skipped, out, page)
}

// compare has the sides do nothing at the same time, without Deployments and with them, and then the same in turns. What is at rest comes
// first: who has worked keeps memory for long.
func (b *bench) compare(ctx context.Context, sides []*side) (quiet, busy []standing, err error) {
	fmt.Fprintf(os.Stderr, "  waiting %s for what begins with a start to be over\n", b.warm)
	if err := measure.Sleep(ctx, b.warm); err != nil { // such as the image of the program, and the first copy of the store
		return nil, nil, err
	}
	if quiet, err = b.stand(ctx, sides); err != nil {
		return nil, nil, err
	}
	for i := range restingWorkloads {
		for _, s := range inTurn(sides, i) {
			if _, err := api.Create(ctx, s.client, apps.Deployments, deployment(resting(i), 1)); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, s := range sides {
		for i := range restingWorkloads {
			if err := s.reaches(ctx, resting(i), 1); err != nil {
				return nil, nil, err
			}
		}
	}
	if busy, err = b.stand(ctx, sides); err != nil {
		return nil, nil, err
	}
	for _, s := range sides {
		var names []string
		for i := range restingWorkloads {
			names = append(names, resting(i))
		}
		if err := s.remove(ctx, names...); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range []struct{ replicas, turns int }{{1, 7}, {10, 5}, {50, 3}} {
		for turn := range c.turns {
			for _, s := range inTurn(sides, turn) {
				if err := s.turn(ctx, fmt.Sprintf("d-%d-%d", c.replicas, turn), int32(c.replicas)); err != nil {
					return nil, nil, fmt.Errorf("%s, %d replicas: %w", s.name, c.replicas, err)
				}
			}
		}
	}
	return quiet, busy, nil
}

func resting(i int) string { return fmt.Sprintf("rest-%d", i) }

// inTurn has another begin each time: what the machine does beside it shall hit both.
func inTurn(sides []*side, turn int) []*side {
	out := slices.Clone(sides)
	if turn%2 == 1 {
		slices.Reverse(out)
	}
	return out
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	app, no, grace := map[string]string{"app": name}, false, int64(1)
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{label: "yes"}, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: imageName, Command: []string{"/app"},
				ImagePullPolicy: corev1.PullNever}}}}}}
}

// turn makes a Deployment, has one of ten pods replace them all, and deletes it.
func (s *side) turn(ctx context.Context, name string, replicas int32) error {
	if err := s.count(ctx, fmt.Sprintf("create -> %d available", replicas), func() error {
		_, err := api.Create(ctx, s.client, apps.Deployments, deployment(name, replicas))
		return err
	}, name, replicas); err != nil {
		return err
	}
	if replicas == rolled {
		if err := s.count(ctx, fmt.Sprintf("rollout of %d pods", replicas), func() error {
			_, err := s.client.Patch(ctx, apps.Deployments, "default", name, api.Patch{Type: "application/merge-patch+json",
				Data: []byte(`{"spec":{"template":{"metadata":{"annotations":{"bench":"again"}}}}}`)}, api.WriteOptions{})
			return err
		}, name, replicas); err != nil {
			return err
		}
	}
	return s.remove(ctx, name)
}

// remove deletes Deployments, and waits until there are no pods.
func (s *side) remove(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := s.client.Delete(ctx, apps.Deployments, "default", name,
			api.DeleteOptions{Propagation: metav1.DeletePropagationBackground}); err != nil {
			return err
		}
	}
	return s.until(ctx, "the pods are gone", func() (bool, error) {
		list, err := s.client.List(ctx, api.Pods, api.ListOptions{Selection: api.Selection{Namespace: "default"}})
		return err == nil && len(list.Items) == 0, err
	})
}

// count does something to a Deployment and notes what it took until all of its pods are new and available; of bytes and processor
// time also what comes soon after.
func (s *side) count(ctx context.Context, what string, do func() error, name string, replicas int32) error {
	written, cpu, err := s.spent()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return err
	}
	if err := s.reaches(ctx, name, replicas); err != nil {
		return err
	}
	c := cost{Seconds: time.Since(begin).Seconds()}
	if err := measure.Sleep(ctx, calm); err != nil {
		return err
	}
	writtenThen, cpuThen, err := s.spent()
	if err != nil {
		return err
	}
	c.WrittenKiB, c.CPU = float64(writtenThen-written)/1024, cpuThen-cpu
	s.turns[what] = append(s.turns[what], c)
	fmt.Fprintf(os.Stderr, "  %s, %s: %+v\n", s.name, what, c)
	return nil
}

// reaches waits until a Deployment is as it is to be, as a watcher is told.
func (s *side) reaches(ctx context.Context, name string, replicas int32) error {
	ctx, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	w, err := s.client.Watch(ctx, apps.Deployments, api.WatchOptions{Selection: api.Selection{Namespace: "default",
		Fields: fields.OneTermEqualSelector("metadata.name", name)}})
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		e, err := w.Next()
		if err != nil {
			return fmt.Errorf("watch deployment %s: %w", name, err)
		}
		d, ok := e.Object.(*appsv1.Deployment)
		if !ok {
			continue
		}
		if t := &d.Status; t.ObservedGeneration == d.Generation && t.Replicas == replicas && t.UpdatedReplicas == replicas &&
			t.AvailableReplicas == replicas {
			return nil
		}
	}
}

func (s *side) until(ctx context.Context, what string, is func() (bool, error)) error {
	var last error
	for end := time.Now().Add(settleTime); time.Now().Before(end); {
		ok, err := is()
		if ok {
			return nil
		}
		last = err
		if err := measure.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.Join(fmt.Errorf("%s: not within %s: %s", s.name, settleTime, what), last)
}

func (s *side) spent() (written int64, cpu float64, err error) {
	syscall.Sync()
	if _, cpu, err = measure.Spent(s.pids()...); err != nil {
		return 0, 0, err
	}
	text, err := os.ReadFile(filepath.Join("/sys/block", s.disk, "stat"))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 7 {
		return 0, 0, fmt.Errorf("the statistics of %s are short", s.disk)
	}
	sectors, err := strconv.ParseInt(fields[6], 10, 64)
	return 512 * sectors, cpu, err
}

// stand measures what all sides take for the same while in which nobody asks for anything.
func (b *bench) stand(ctx context.Context, sides []*side) ([]standing, error) {
	if err := measure.Rest(ctx); err != nil {
		return nil, err
	}
	out := make([]standing, len(sides))
	for _, sign := range []float64{-1, 1} {
		for i, s := range sides {
			written, cpu, err := s.spent()
			if err != nil {
				return nil, err
			}
			out[i].WrittenKiB += sign * float64(written) / 1024
			out[i].CPU += sign * 100 * cpu / b.watch.Seconds()
			if out[i].PSS, _, err = measure.PSS(s.pids()...); err != nil {
				return nil, err
			}
		}
		if sign < 0 {
			if err := measure.Sleep(ctx, b.watch); err != nil {
				return nil, err
			}
		}
	}
	fmt.Fprintf(os.Stderr, "  at rest: %+v\n", out)
	return out, nil
}
