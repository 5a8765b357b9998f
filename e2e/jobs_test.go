package e2e

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"ledge/internal/testrun"
)

// fifty is a Job of fifty pods. One whose end nobody saw counts as failed, and is made again.
const fifty = `apiVersion: batch/v1
kind: Job
metadata: {name: fifty}
spec:
  completions: 50
  parallelism: 8
  completionMode: Indexed
  backoffLimitPerIndex: 50
  template:
    metadata: {labels: {app: fifty}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: ledge.local/self, args: ["echo", "done"]}]
`

// TestJobThroughKills: however brain and keeper are killed, every pod of a Job is counted once, and every index done.
func TestJobThroughKills(t *testing.T) {
	testrun.OnHost(t)
	kills := 3
	if os.Getenv("LEDGE_LONG") != "" {
		kills = 50
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 50))
	b := newBoard(t)
	b.serve()
	for kills > 0 {
		b.apply(fifty)
		for over := false; !over; over = b.jobOver() {
			if kills == 0 {
				b.eventually("the job ends", func() error {
					if b.jobOver() {
						return nil
					}
					return errors.New(b.ledge("get", "jobs"))
				})
				break
			}
			time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond)
			kills--
			if random.IntN(3) > 0 && b.keeperPID() != 0 {
				b.killKeeper()
			}
			if random.IntN(3) > 0 {
				_ = b.signal(syscall.SIGKILL) // its verdict is the kill
				b.serve()
			}
		}
		b.counted()
		b.must("delete", "job", "fifty")
		b.eventually("its pods are gone", func() error {
			if list := b.ledge("get", "pods", "-o", "name"); list != "" {
				return errors.New(list)
			}
			return nil
		})
	}
}

// job is the Job fifty.
func (b *testBoard) job() (j batchv1.Job) {
	b.t.Helper()
	must(b.t, json.Unmarshal([]byte(b.must("get", "job", "fifty", "-o", "json")), &j))
	return j
}

func (b *testBoard) jobOver() bool {
	for _, c := range b.job().Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// counted compares what the Job says with the pods that there are.
func (b *testBoard) counted() {
	b.t.Helper()
	var pods corev1.PodList
	must(b.t, json.Unmarshal([]byte(b.must("get", "pods", "-o", "json")), &pods))
	phases, done := map[corev1.PodPhase]int{}, map[string]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		phases[p.Status.Phase]++
		if p.Status.Phase == corev1.PodSucceeded {
			done[p.Annotations[batchv1.JobCompletionIndexAnnotation]] = true
		}
		if len(p.Finalizers) > 0 {
			b.t.Errorf("pod %s is still held by %v", p.Name, p.Finalizers)
		}
	}
	s := b.job().Status
	if int(s.Succeeded) != 50 || len(done) != 50 || s.CompletedIndexes != "0-49" || int(s.Failed) != phases[corev1.PodFailed] {
		b.t.Errorf("the job counts %d and %d, indexes %s; the pods are %v, of %d indexes", s.Succeeded, s.Failed, s.CompletedIndexes, phases,
			len(done))
	}
	b.t.Logf("%d succeeded, %d failed", s.Succeeded, s.Failed)
}
