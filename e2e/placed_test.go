package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const placedTemplate = `
  template:
    metadata: {labels: {app: APP}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: ` + busyboxImage + `
        command: [sh, -c, "trap 'exit 0' TERM; echo $COLOUR; sleep infinity & wait"]
        env: [{name: COLOUR, value: red}]
`

var (
	kubectlOrdered = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  serviceName: data\n  replicas: 3\n  selector: {matchLabels: {app: db}}" +
		strings.ReplaceAll(placedTemplate, "APP", "db")
	kubectlDaemons = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: eye}\nspec:\n  selector: {matchLabels: {app: eye}}" +
		strings.ReplaceAll(placedTemplate, "APP", "eye")
)

const (
	dbRolled  = " && kubectl rollout status sts/db --timeout=60s"
	eyeRolled = " && kubectl rollout status ds/eye --timeout=60s"
	colours   = `kubectl get pods -l app=db --sort-by=.metadata.name -o 'jsonpath={range .items[*]}{.metadata.name}={.spec.containers[0].env[0].value} {end}'`
)

// placedSteps are what people do with StatefulSets and DaemonSets.
var placedSteps = []step{
	{"kubectl create namespace $NS && kubectl config set-context --current --namespace=$NS", "created", ""},
	{"kubectl apply -f db.yaml" + dbRolled, "statefulset.apps/db created", ""},
	{"kubectl get sts -o wide", "READY|CONTAINERS|IMAGES|db     3/3|main         " + busyboxImage, ""},
	{"kubectl exec db-1 -- cat /etc/hostname /etc/hosts", "db-1|db-1.data.", ""},
	{`kubectl get pod db-2 -o 'jsonpath={.metadata.labels.apps\.kubernetes\.io/pod-index} {.metadata.labels.statefulset\.kubernetes\.io/pod-name}'`, "2 db-2", ""},
	{"kubectl scale sts db --replicas=1 && until kubectl get sts db | grep 'db *1/1'; do sleep 0.2; done; while kubectl get pod db-1 -o name; do sleep 0.2; done", "scaled", ""},
	{"kubectl scale sts db --replicas=3" + dbRolled, "scaled", ""},
	{`kubectl patch sts db -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}' && kubectl set env sts/db COLOUR=blue` + dbRolled + " && " + colours,
		"db-0=red db-1=red db-2=blue", ""},
	{"kubectl delete pod db-0 && until kubectl get pod db-0 | grep Running; do sleep 0.2; done; " + colours, "db-0=red db-1=red db-2=blue",
		""},
	{`kubectl patch sts db -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'` + dbRolled + " && " + colours,
		"db-0=blue db-1=blue db-2=blue", ""},
	{"kubectl rollout history sts/db", "REVISION|1 |2 ", ""},
	{"kubectl rollout history sts/db --revision=1", "COLOUR:	red", ""},
	{"kubectl rollout undo sts/db" + dbRolled + " && " + colours, "rolled back|db-0=red db-1=red db-2=red", ""},
	{"kubectl rollout history sts/db", "2 |3 ", ""},
	{"kubectl rollout undo sts/db --to-revision=3", "skipped rollback", "new"}, // today's template, byte by byte
	{"kubectl rollout restart sts/db" + dbRolled + " && kubectl get sts db -o yaml", "restarted|kubectl.kubernetes.io/restartedAt", ""},
	{"kubectl get controllerrevisions", "CONTROLLER|REVISION|statefulset.apps/db", ""},
	{"kubectl describe sts db", "3 desired | 3 total|3 Running / 0 Waiting|SuccessfulCreate", ""},
	{"kubectl delete sts db --cascade=orphan && kubectl get pods -l app=db", "deleted|db-2 ", ""},
	// has them again
	{"kubectl apply -f db.yaml" + dbRolled + " && kubectl get pod db-0 -o 'jsonpath={.metadata.ownerReferences[0].kind}'",
		"created|StatefulSet", ""},
	{"kubectl delete sts db && while kubectl get pods,controllerrevisions -l app=db -o name | grep .; do sleep 0.2; done", "deleted", ""},

	{"kubectl apply -f eye.yaml" + eyeRolled, "daemonset.apps/eye created|successfully rolled out", ""},
	{"kubectl get ds -o wide", "DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR|eye    1         1         1       1            1           <none>", ""},
	{"kubectl get all", "pod/eye-|daemonset.apps/eye", ""},
	{"kubectl set env ds/eye COLOUR=blue" + eyeRolled + " && kubectl logs ds/eye", "successfully rolled out|blue", ""},
	{"kubectl rollout history ds/eye", "REVISION|1 |2 ", ""},
	{"kubectl rollout undo ds/eye" + eyeRolled + " && kubectl logs ds/eye", "rolled back|red", ""},
	{`kubectl patch ds eye -p '{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}}}' && kubectl rollout restart ds/eye` + eyeRolled, "restarted|successfully rolled out", ""},
	{"kubectl describe ds eye", "Desired Number of Nodes Scheduled: 1|Number of Nodes Scheduled with Available Pods: 1|1 Running / 0 Waiting",
		""},
	{`kubectl patch ds eye -p '{"spec":{"template":{"spec":{"nodeSelector":{"camera":"yes"}}}}}' && until kubectl get ds eye | grep 'eye *0 *0 *0'; do sleep 0.2; done`, "camera=yes", ""},
	{"kubectl delete ds eye && while kubectl get pods,controllerrevisions -l app=eye -o name | grep .; do sleep 0.2; done", "deleted", ""},
}

// TestPlaced: what people do with StatefulSets and DaemonSets, with real pods, with the kubectl of today, the one of Debian 12 and without
// one.
func TestPlaced(t *testing.T) {
	needGo(t)
	b := newBoard(t)
	b.serve()
	b.importBusybox()
	t.Run("ledge", func(t *testing.T) {
		t.Parallel()
		b.steersPlaced("statefulset", "db", kubectlOrdered)
		b.steersPlaced("daemonset", "eye", kubectlDaemons)
	})
	for _, version := range []string{"new", "old"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := b.client(strings.TrimPrefix(version, "new"), "placed-"+version).in(t)
			k.write("db.yaml", kubectlOrdered)
			k.write("eye.yaml", kubectlDaemons)
			k.steps(version, placedSteps)
		})
	}
}

// steersPlaced: what ledge itself can do with what makes pods that have a place: its pods say which template they are of.
func (b *testBoard) steersPlaced(kind, name, text string) {
	rolled := func(colour string) (pods []types.UID) {
		b.t.Helper()
		b.says(kind+"/"+name+" is rolled out", "rollout", "status", kind, name, "--timeout", "60s")
		var list corev1.PodList
		must(b.t, json.Unmarshal([]byte(b.must("get", "pods", "-l", "app="+name, "-o", "json")), &list))
		if len(list.Items) == 0 {
			b.t.Errorf("%s/%s has no pods", kind, name)
		}
		for _, p := range list.Items {
			pods = append(pods, p.UID)
			if is := p.Spec.Containers[0].Env[0].Value; is != colour || p.Status.Phase != corev1.PodRunning {
				b.t.Errorf("%s is %s and %s, want %s", p.Name, is, p.Status.Phase, colour)
			}
		}
		return pods
	}
	b.apply(text)
	rolled("red")
	b.apply(strings.Replace(text, "value: red", "value: blue", 1))
	rolled("blue")
	b.says("REVISION   CHANGE-CAUSE\n1          <none>\n2          <none>\n", "rollout", "history", kind, name)
	b.says(name+" ", "get", kind)
	if kind == "statefulset" {
		b.says("3 wanted, 3 new, 3 in all, 3 ready, 3 available", "describe", kind, name)
		b.says(kind+"/"+name+" scaled", "scale", kind, name, "--replicas", "2")
		b.eventually("one has gone", func() error { return contains(b.ledge("describe", kind, name), "2 wanted, 2 new, 2 in all, 2 ready") })
	} else {
		b.says("1 are to have a pod, 1 have one, 1 a new one, 1 a ready one", "describe", kind, name)
		must(b.t, contains(b.ledge("scale", kind, name, "--replicas", "2"), "have no number of pods"))
	}
	b.says("value: red", "rollout", "history", kind, name, "--revision", "1")
	b.says(kind+"/"+name+" rolled back to revision 1", "rollout", "undo", kind, name)
	former := rolled("red")
	b.says(kind+"/"+name+" restarted", "rollout", "restart", kind, name)
	if slices.ContainsFunc(rolled("red"), func(uid types.UID) bool { return slices.Contains(former, uid) }) {
		b.t.Errorf("%s/%s keeps pods through a restart", kind, name)
	}
	must(b.t, contains(b.ledge("rollout", "pause", kind, name), "cannot be paused"))
	b.must("delete", kind, name)
}

// everywhere makes a DaemonSet, which has a pod on each board, and returns which.
func (s *shed) everywhere(boards ...*testBoard) map[string]types.UID {
	s.t.Helper()
	s.plane.apply("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: eye}\nspec:\n  selector: {matchLabels: {app: eye}}\n  template:\n" +
		"    metadata: {labels: {app: eye}}\n    spec: {containers: [{name: main, image: ledge.local/self, args: [httpd, -p, \"8080\"]}]}\n")
	on := map[string]types.UID{}
	for _, b := range boards {
		on[b.name] = s.covered(b.name, "")
	}
	return on
}

// covered waits until a board has a pod of the DaemonSet that runs, other than one.
func (s *shed) covered(board string, than types.UID) (uid types.UID) {
	s.t.Helper()
	s.plane.eventually("a daemon runs on "+board, func() error {
		var list corev1.PodList
		if err := json.Unmarshal([]byte(s.plane.ledge("get", "pods", "-o", "json")), &list); err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Labels["app"] == "eye" && p.Spec.NodeName == board && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil &&
				p.UID != than {
				uid = p.UID
				return nil
			}
		}
		return fmt.Errorf("%d pods, none there", len(list.Items))
	})
	return uid
}
