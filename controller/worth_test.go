package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/controller/workload"
)

// Each pod of this list is worth less than the next, for one reason at a time.
func TestInOrderOfWorth(t *testing.T) {
	now := time.Unix(1e9, 0)
	order := []string{"unbound", "phase=Pending", "phase=Unknown", "", "ready=1h cost=-1", "ready=1h cost=words on=full", "ready=2h on=full",
		"ready=1m", "ready=5m restarts=4", "ready=5m restarts=1 age=1m", "ready=5m restarts=1", "ready=5m restarts=1", "ready=1s cost=3"}
	var pods []*corev1.Pod
	for i, words := range order {
		pods = append(pods, likePod(fmt.Sprintf("%02d", i), now, words))
	}
	want, company := podNames(pods), map[string]int{}
	for _, p := range pods {
		company[p.Spec.NodeName]++
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		workload.InOrderOfWorth(pods, company, now)
		if got := podNames(pods); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}
