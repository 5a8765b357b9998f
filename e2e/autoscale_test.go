package e2e

import (
	"strings"
	"sync"
	"testing"
)

// A pod of burn uses all the CPU that it may, twice of what it asks for, until somebody tells it to stop.
const burningDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: burn}
spec:
  selector: {matchLabels: {app: burn}}
  template:
    metadata: {labels: {app: burn}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: ` + busyboxImage + `
        command: [sh, -c, "trap 'exit 0' TERM; until test -e /tmp/stop; do :; done; sleep infinity & wait"]
        resources: {requests: {cpu: 20m}, limits: {cpu: 40m}}
`

// autoscaleSteps: under load there come to be more pods, and fewer when it is over. Samples are taken every fifteen seconds, and looked at
// as often. The old kubectl makes it in its older form.
var autoscaleSteps = []step{
	{"kubectl create namespace $NS && kubectl config set-context --current --namespace=$NS", "created", ""},
	{"kubectl apply -f burn.yaml && kubectl rollout status deployment/burn --timeout=60s", "created|successfully rolled out", ""},
	{"kubectl autoscale deployment burn --cpu=50% --min=1 --max=2", "autoscaled", "new"},
	{"kubectl autoscale deployment burn --cpu-percent=50 --min=1 --max=2", "autoscaled", "old"},
	{`kubectl patch hpa.v2.autoscaling burn --type=merge -p '{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}'`, "patched", ""},
	{"until kubectl get deployment burn | grep 'burn *2/2'; do sleep 0.5; done", "2/2", ""},
	{"kubectl get hpa burn && kubectl describe hpa burn", "Deployment/burn|/50%|SuccessfulRescale|New size: 2|above target", ""},
	{"for p in $(kubectl get pods -l app=burn -o name); do kubectl exec $p -- sh -c '>/tmp/stop'; done", "", ""},
	{"until kubectl get deployment burn | grep 'burn *1/1'; do sleep 0.5; done", "1/1", ""},
	{"kubectl describe hpa burn", "New size: 1; reason: All metrics below target", ""},
	{"kubectl delete hpa,deployment burn && while kubectl get pods -l app=burn -o name | grep .; do sleep 0.2; done", "deleted", ""},
}

// autoscales has both kubectls work with an autoscaler while the parts of t run. That takes a minute, most of which it waits for the
// next sample: as a part of its own it would keep another from running.
func (b *testBoard) autoscales(t *testing.T) {
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for _, version := range []string{"new", "old"} {
		k := b.client(strings.TrimPrefix(version, "new"), "burn-"+version) // of the whole test: the context of t ends before its Cleanup
		k.write("burn.yaml", burningDeployment)
		running.Go(func() { k.steps(version, autoscaleSteps) })
	}
}
