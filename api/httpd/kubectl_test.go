package httpd_test

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/pki"
)

// kubectl is the real one, built from its module by lab/kubectl, or the one that LEDGE_KUBECTL names.
type kubectl struct {
	t          *testing.T
	bin        string
	home       string
	kubeconfig string
	env        []string      // more of it
	limit      time.Duration // of a command; zero: a minute
}

func newKubectl(t *testing.T, a *pki.Authority, url string) *kubectl {
	t.Helper()
	return kubectlOf(t, "", a, url)
}

// kubectlOf is today's kubectl, with "old" the one of Debian 12 (1.20), with "1.32" the one of Debian 13.
func kubectlOf(t *testing.T, version string, a *pki.Authority, url string) *kubectl {
	t.Helper()
	k := &kubectl{t: t, home: t.TempDir()}
	if version == "" {
		k.bin = os.Getenv("LEDGE_KUBECTL")
	}
	if k.bin == "" {
		build := exec.Command("../../lab/kubectl/build.sh", strings.Fields(version)...)
		build.Stderr = os.Stderr
		out, err := build.Output()
		if err != nil {
			t.Fatalf("build kubectl: %v", err)
		}
		k.bin = strings.TrimSpace(string(out))
	}
	k.kubeconfig = filepath.Join(k.home, "admin.conf")
	if err := a.WriteKubeconfig(k.kubeconfig, url); err != nil {
		t.Fatal(err)
	}
	return k
}

// run is one command; stdin may be empty. Both outputs come back together, as a person sees them.
func (k *kubectl) run(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(k.t.Context(), cmp.Or(k.limit, time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, k.bin, args...)
	cmd.Env = []string{"HOME=" + k.home, "KUBECONFIG=" + k.kubeconfig, "PATH=" + os.Getenv("PATH"), "EDITOR=sed -i s/red/blue/"}
	cmd.Env = append(cmd.Env, k.env...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

const podYAML = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: ledge.local/self, env: [{name: COLOUR, value: red}]}
  - {name: side, image: ledge.local/self}
`

var (
	changedYAML = strings.Replace(podYAML, "image: ledge.local/self}", "image: ledge.local/self:2}", 1)
	unknownYAML = strings.Replace(podYAML, "spec:", "speck: {}\nspec:", 1)
)

// kubectlCases are run one after the other, on the same store.
const mapYAML = `
apiVersion: v1
kind: ConfigMap
metadata: {name: applied}
data: {k: v}
`

const statefulYAML = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: main, image: x}]}}
`

var daemonYAML = strings.NewReplacer("StatefulSet", "DaemonSet", "  replicas: 3\n", "").Replace(statefulYAML)

var kubectlCases = []struct {
	command string
	stdin   string
	want    string // parts of the output, separated by |; a leading ! wants the command to fail
}{
	{"version", "", "Client Version: v1.|Server Version: v1.37.2+ledge"},
	{"api-resources", "", "configmaps|cm|priorityclasses|scheduling.k8s.io/v1|selfsubjectreviews"},
	{"api-versions", "", "coordination.k8s.io/v1|v1"},
	{"get nodes", "", "board   Ready    <none>|v1.37.2+ledge"},
	{"get nodes -o wide", "", "INTERNAL-IP|CONTAINER-RUNTIME"},
	{"create -f -", podYAML, "pod/web created"},
	{"create -f -", podYAML, "!AlreadyExists"},
	{"create -f - --dry-run=server", strings.Replace(podYAML, "name: web", "name: wet", 1), "pod/wet created (server dry run)"},
	{"apply -f -", unknownYAML, `!strict decoding error: unknown field "speck"`},
	{"apply -f - --validate=warn", unknownYAML, `Warning: unknown field "speck"|pod/web`},
	{"apply -f -", podYAML, "pod/web"},
	{"apply -f -", changedYAML, "pod/web configured"},
	{"apply -f -", changedYAML, "pod/web unchanged"},
	{"get pod web -o jsonpath={.spec.containers[*].image}", "", "ledge.local/self ledge.local/self:2"},
	{"get pod web -o jsonpath={.spec.containers[0].env[0].value}", "", "red"}, // merged, not replaced
	{"apply --server-side -f - --dry-run=server", changedYAML, "pod/web serverside-applied (server dry run)"},
	{"apply --server-side -f -", changedYAML, "pod/web serverside-applied"},
	{"apply --server-side -f -", changedYAML, "pod/web serverside-applied"},
	{"apply --server-side --field-manager=other -f -", strings.Replace(changedYAML, "self:2", "self:3", 1), "!Apply failed with|conflict"},
	{"get pod web -o yaml --show-managed-fields", "", "manager: kubectl|operation: Apply"},
	{"apply --server-side -f -", mapYAML, "configmap/applied serverside-applied"},
	{"get pods", "", "NAME|READY|web    0/2     Pending   0"},
	{"get pods -A -o wide", "", "NAMESPACE|default|NOMINATED NODE"},
	{"get pods -o yaml", "", "kind: List|kind: Pod|name: side"},
	{"get pods -o name", "", "pod/web"},
	{"get pods -o custom-columns=N:.metadata.name,I:.spec.containers[1].image", "", "web   ledge.local/self:2"},
	{"get pods -l app=web --sort-by=.metadata.name", "", "web"},
	{"get pods -l app!=web", "", "No resources found"},
	{"get pods --field-selector=status.phase=Pending", "", "web"},
	{"get pods --field-selector=spec.colour=red", "", "!field label not supported"},
	{"get pods --chunk-size=1", "", "web"},
	{"get all", "", "pod/web   0/2|service/kubernetes"},
	{"create quota q --hard=count/widgets.example.com=1", "", "resourcequota/q created"},
	{"get quota q -o jsonpath={.spec.hard}", "", `{"count/widgets.example.com":"1"}`},
	{"delete quota q", "", "deleted"},
	{"create deployment d --image=x --replicas=0", "", "deployment.apps/d created"},
	{"get deployments -o wide", "", "d      0/0     0            0|x        app=d"},
	{"scale deployment d --replicas=2", "", "deployment.apps/d scaled"},
	{"set image deployment d x=y", "", "deployment.apps/d image updated"},
	{"get deployment d -o jsonpath={.spec.replicas}.{.metadata.generation}", "", "2.3"},
	{"autoscale deployment d --min=2 --max=5 --cpu-percent=60", "", "horizontalpodautoscaler.autoscaling/d autoscaled"},
	{"get hpa", "", "d      Deployment/d   cpu: <unknown>/60%   2         5         0"},
	{"get horizontalpodautoscalers.v1.autoscaling d -o jsonpath={.apiVersion}.{.spec.targetCPUUtilizationPercentage}", "",
		"autoscaling/v1.60"},
	{"describe hpa d", "", "Reference:|Deployment/d|Min replicas:|resource cpu on pods  (as a percentage of request):  <unknown> / 60%"},
	{`patch horizontalpodautoscalers.v1.autoscaling d -p {"spec":{"targetCPUUtilizationPercentage":50}}`, "",
		"horizontalpodautoscaler.autoscaling/d patched"},
	{"get hpa d -o jsonpath={.spec.metrics[0].resource.target.averageUtilization}", "", "50"},
	{"explain hpa.spec.behavior", "", "VERSION:    v2|scaleDown"},
	{"delete hpa d", "", `horizontalpodautoscaler.autoscaling "d" deleted`},
	{"create -f -", statefulYAML, "statefulset.apps/db created"},
	{"create -f -", strings.Replace(statefulYAML, "spec:", "spec:\n  volumeClaimTemplates: [{metadata: {name: data}}]", 1),
		"!spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required"},
	{"get sts -o wide", "", "NAME   READY   AGE   CONTAINERS   IMAGES|db     0/3     |main         x"},
	{"scale sts db --replicas=5", "", "statefulset.apps/db scaled"},
	{"get sts db -o jsonpath={.spec.replicas}.{.spec.podManagementPolicy}", "", "5.OrderedReady"},
	{"delete sts db", "", `statefulset.apps "db" deleted`},
	{"create -f -", daemonYAML, "daemonset.apps/db created"},
	{"get ds -o wide", "", "DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR   AGE|SELECTOR|app=db"},
	{"scale ds db --replicas=5", "", "!could not find the requested resource"},
	{"delete ds db", "", `daemonset.apps "db" deleted`},
	{"get controllerrevisions", "", "No resources found"},
	{"delete deployment d", "", `deployment.apps "d" deleted`},
	{"explain pod.spec.containers.livenessProbe", "", "KIND:       Pod|FIELD: livenessProbe <Probe>|failureThreshold	<integer>"},
	{"explain podmetrics.containers", "", "GROUP:      metrics.k8s.io|KIND:       PodMetrics|FIELD: containers <[]ContainerMetrics>|usage"},
	{"explain nodemetrics --api-version=metrics.k8s.io/v1beta1", "", "KIND:       NodeMetrics|window"},
	{"explain pod.spec.restartPolicy", "", "Restart policy for all containers|Always"},
	{"explain deployment.spec.template", "", "GROUP:      apps|FIELD: template <PodTemplateSpec>"},
	{"get pod none", "", `!Error from server (NotFound): pods "none" not found`},
	{"get widgets", "", `!the server doesn't have a resource type "widgets"`},
	{"describe pod web", "", "Name:             web|Containers:|COLOUR:  red|Status:"},
	{"describe node board", "", "Name:               board|Conditions:|Non-terminated Pods:"},
	{"label pod web tier=front", "", "pod/web labeled"},
	{"annotate pod web note=x", "", "pod/web annotated"},
	{"patch pod web -p {\"metadata\":{\"labels\":{\"a\":\"b\"}}}", "", "pod/web patched"},
	{"patch pod web --type=merge -p {\"metadata\":{\"labels\":{\"a\":null}}}", "", "pod/web patched"},
	{"patch pod web --type=json -p [{\"op\":\"add\",\"path\":\"/metadata/labels/j\",\"value\":\"1\"}]", "", "pod/web patched"},
	{"get pod web -o jsonpath={.metadata.labels}", "", `"app":"web"|"j":"1"|"tier":"front"`},
	{"logs web -c main", "", "hello"},
	{"logs web -c main -f --tail=5 --timestamps", "", "hello"},
	{"create configmap conf --from-literal=k=red", "", "configmap/conf created"}, // protobuf
	{"create configmap conf --from-literal=k=red", "", "!already exists"},
	{"create secret generic s --from-literal=k=v", "", "secret/s created"},
	{"create namespace other", "", "namespace/other created"},
	{"create priorityclass high --value=1000", "", "priorityclass.scheduling.k8s.io/high created"},
	{"edit configmap conf", "", "configmap/conf edited"},
	{"get configmap conf -o jsonpath={.data.k}", "", "blue"},
	{"replace -f -", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: conf}\ndata: {k: green}\n", "configmap/conf replaced"},
	{"diff -f -", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: conf}\ndata: {k: grey}\n", "!-  k: green|+  k: grey"},
	{"get configmaps,secrets", "", "configmap/conf|secret/s"},
	{"taint node board a=b:NoSchedule", "", "node/board tainted"},
	{"taint node board a=b:NoSchedule-", "", "node/board untainted"},
	{"cordon board", "", "node/board cordoned"},
	{"cordon board", "", "already cordoned"},
	{"uncordon board", "", "node/board uncordoned"},
	{"drain board --force", "", "node/board drained"},
	{"events", "", "No events found"},
	{"get events", "", "No resources found"},
	{"auth can-i delete pods", "", "yes"},
	{"auth can-i --list", "", "*.*"},
	{"auth whoami", "", "ledge-admin|system:masters"},
	{"auth can-i get pods --as=bob", "", "!no"},
	{"get --raw /readyz?verbose", "", "[+]ping ok"},
	{"wait --for=jsonpath={.status.phase}=Pending pod/web --timeout=10s", "", "condition met"},
	{"wait --for=delete pod/none --timeout=10s", "", ""},
	{"delete pod web --timeout=20s", "", `pod "web" deleted`},
	{"delete configmap conf --cascade=orphan --dry-run=server", "", "deleted"},
	{"delete configmap conf --cascade=foreground --timeout=20s", "", `"conf" deleted`},
	{"create configmap conf", "", "configmap/conf created"},
	{"delete configmap --all", "", `"conf" deleted`},
	{"run shell --image=ledge.local/self", "", "pod/shell created"},
	{"delete pod shell --grace-period=0 --force", "", `"shell" force deleted`},
	{"delete namespace other --timeout=20s", "", `namespace "other" deleted`},
	{"get leases -n kube-node-lease", "", "No resources found"},
	{"explain pod", "", "KIND:       Pod"},
}

// TestKubectl runs a current kubectl, unmodified, against the API: what issue "kubectl is the manual" asks for, as
// far as it needs no containers.
func TestKubectl(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs kubectl")
	}
	f := serve(t, httpd.Config{})
	l := &logs{text: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("hello\n")), nil }}
	h, err := httpd.New(httpd.Config{Client: f.store, Streams: l})
	if err != nil {
		t.Fatal(err)
	}
	url, a, _ := secured(t, h)
	k := newKubectl(t, a, url)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "board"}}
	if _, err := api.Create(t.Context(), f.store, api.Nodes, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.NodeInfo.KubeletVersion = "v1.37.2+ledge"
	if _, err := api.UpdateStatus(t.Context(), f.store, api.Nodes, node); err != nil {
		t.Fatal(err)
	}
	for _, tc := range kubectlCases {
		out, err := k.run(tc.stdin, strings.Fields(tc.command)...)
		want, fails := strings.CutPrefix(tc.want, "!")
		if (err != nil) != fails {
			t.Errorf("kubectl %s: %v\n%s", tc.command, err, out)
			continue
		}
		for _, part := range strings.Split(want, "|") {
			if !strings.Contains(out, part) {
				t.Errorf("kubectl %s: no %q in\n%s", tc.command, part, out)
			}
		}
	}
	k.watch(f)
}

// watch is get -w: the list, then what happens.
func (k *kubectl) watch(f *fixture) {
	k.t.Helper()
	cmd := exec.CommandContext(k.t.Context(), k.bin, "get", "configmaps", "-w", "--output-watch-events")
	cmd.Env = []string{"HOME=" + k.home, "KUBECONFIG=" + k.kubeconfig}
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	f.must(201, "POST", mapsPath, configMap("w", "one"))
	f.must(200, "PUT", mapsPath+"/w", configMap("w", "two"))
	f.must(200, "DELETE", mapsPath+"/w", "")
	f.must(201, "POST", mapsPath, configMap("last", "one"))
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), "last") {
		n, err := out.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			k.t.Fatalf("kubectl get -w ended: %v after\n%s", err, seen.String())
		}
	}
	if !strings.Contains(seen.String(), "EVENT") {
		k.t.Errorf("kubectl get -w:\n%s", seen.String())
	}
}
