package e2e

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"ledge/images/imagestest"
	"ledge/internal/testrun"
)

// kubectl runs today's against the board.
func (b *testBoard) kubectl() func(args ...string) (string, error) {
	b.t.Helper()
	k := b.client("", "default")
	return func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(k.home, "kubectl"), args...)
		cmd.Env = k.env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// client is a real kubectl of one version, with a configuration and a cache of its own. What it is told are lines for a
// shell, as people type them: kubectl, $NODE, $NS, and the files of its home, where it stands.
type client struct {
	t    *testing.T
	home string
	env  []string
	ran  *strings.Builder // all lines, each with a space before and behind
}

// in is the same client in a part of its test.
func (k *client) in(t *testing.T) *client { return &client{t, k.home, k.env, k.ran} }

// client makes one: version is "" for today's kubectl, "old" for 1.20.
func (b *testBoard) client(version, namespace string) *client {
	b.t.Helper()
	return newClient(b.t, version, b.must("kubeconfig"), "NODE="+b.name, "NS="+namespace)
}

func newClient(t *testing.T, version, config string, env ...string) *client {
	t.Helper()
	build := exec.Command("../lab/kubectl/build.sh", strings.Fields(version)...)
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		t.Fatalf("build kubectl %s: %v", version, err)
	}
	k := &client{t: t, home: t.TempDir(), ran: &strings.Builder{}}
	must(t, os.Symlink(strings.TrimSpace(string(out)), filepath.Join(k.home, "kubectl")))
	k.write("config", config)
	k.env = append(env, "HOME="+k.home, "KUBECONFIG="+filepath.Join(k.home, "config"), "PATH="+k.home+":"+os.Getenv("PATH"),
		"TERM=dumb")
	return k
}

func (k *client) write(name, text string) {
	k.t.Helper()
	must(k.t, os.WriteFile(filepath.Join(k.home, name), []byte(text), 0o600))
}

// sh ends what the shell has started together with it.
func (k *client) sh(ctx context.Context, line string) *exec.Cmd {
	fmt.Fprintf(k.ran, " %s \n", line)
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env = k.home, k.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// try runs a line. want are parts of its output, separated by |; a leading ! wants it to fail.
func (k *client) try(line, want string) error {
	ctx, cancel := context.WithTimeout(k.t.Context(), testrun.Patience(90*time.Second))
	defer cancel()
	out, err := k.sh(ctx, line).CombinedOutput()
	want, fails := strings.CutPrefix(want, "!")
	if (err != nil) != fails {
		return fmt.Errorf("%s: %v\n%s", line, err, out)
	}
	var errs []error
	for _, part := range strings.Split(want, "|") {
		errs = append(errs, contains(string(out), part))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}

// until runs a line that does not end by itself, until it prints what pattern matches. meanwhile is done then, and has to be seen:
// what each of then matches must come after it.
func (k *client) until(line, pattern string, meanwhile func(match []string), then ...string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), testrun.Patience(60*time.Second))
	cmd := k.sh(ctx, line)
	out, err := cmd.StdoutPipe()
	must(k.t, err)
	cmd.Stderr = cmd.Stdout
	must(k.t, cmd.Start())
	defer func() { cancel(); _ = cmd.Wait() }() // its verdict is the kill
	var all strings.Builder
	for in := bufio.NewScanner(out); in.Scan(); {
		all.WriteString(in.Text() + "\n")
		m := regexp.MustCompile(pattern).FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		if meanwhile != nil {
			meanwhile(m)
			meanwhile = nil
		}
		if len(then) == 0 {
			return
		}
		pattern, then = then[0], then[1:]
	}
	k.t.Errorf("%s: nothing like %q in\n%s", line, pattern, all.String())
}

// step is a line for both kubectls, or for one: "new" or "old".
type step struct{ line, want, only string }

func (k *client) steps(version string, all []step) {
	k.t.Helper()
	for _, s := range all {
		if s.only != "" && (s.only == "old") != (version == "old") {
			continue
		}
		if err := k.try(s.line, s.want); err != nil {
			k.t.Errorf("%v", err)
		}
	}
}

const busyboxImage = "registry.example/busybox:1"

// importBusybox gives the board an image with a shell and the programs that the tests name.
func (b *testBoard) importBusybox() {
	b.t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		b.t.Fatalf("%v: scripts/setup.sh images installs it", err)
	}
	entries := []imagestest.Entry{imagestest.Dir("bin"), imagestest.Dir("tmp"), imagestest.Dir("www"),
		imagestest.File("www/index.html", "this is the index\n"),
		{Header: tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, Body: string(program)}}
	for _, name := range []string{"sh", "cat", "chroot", "echo", "httpd", "ls", "sleep", "stty", "tar", "test", "true", "tty"} {
		entries = append(entries, imagestest.Symlink("bin/"+name, "busybox"))
	}
	file := filepath.Join(b.t.TempDir(), "busybox.tar")
	must(b.t, os.WriteFile(file, imagestest.OCI(imagestest.Image{Names: []string{busyboxImage},
		Config: v1.ImageConfig{Cmd: []string{"sh"}, Env: []string{"PATH=/bin"}}, Layers: [][]byte{imagestest.Layer(entries...)}}), 0o600))
	b.must("images", "import", file)
}

const kubectlPod = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 3
  containers:
  - name: main
    image: ` + busyboxImage + `
    command: [sh, -c, "trap 'exit 0' TERM; echo it started; httpd -p 8080 -h /www; sleep infinity & wait"]
    ports: [{name: http, containerPort: 8080}]
`

const kubectlMany = `apiVersion: v1
kind: ReplicationController
metadata: {name: many}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 3
      containers:
      - name: main
        image: ` + busyboxImage + `
        command: [sh, -c, "trap 'exit 0' TERM; echo one of many; sleep infinity & wait"]
`

const kubectlMap = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
`

const kubectlCron = `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"cj"},"spec":{"schedule":"0 3 29 2 *","jobTemplate":{"spec":{"template":{"spec":` +
	`{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}}}`

// besideSteps are what both kubectls do at the same time, each in a namespace of its own.
var besideSteps = []step{
	{"kubectl version", "Server Version|v1.", ""},
	{"kubectl cluster-info", "control plane|is running at", ""},
	{"kubectl create namespace $NS", "created", ""},
	{"kubectl config set-context --current --namespace=$NS && kubectl config view --minify", "namespace: side", ""},
	{"kubectl api-resources", "configmaps|priorityclasses", ""},
	{"kubectl api-versions", "coordination.k8s.io/v1|metrics.k8s.io/v1beta1", ""},
	{"kubectl explain pod.spec.containers.livenessProbe", "failureThreshold", ""},
	{"kubectl create -f pod.yaml --dry-run=server", "pod/web created (server dry run)", ""},
	{"sed s/command/comand/ pod.yaml | kubectl apply -f -", `!unknown field "spec.containers[0].comand"`, "new"},
	{"sed s/command/comand/ pod.yaml | kubectl apply -f -", `!unknown field "comand" in io.k8s.api.core.v1.Container`, "old"},
	{"kubectl apply -f pod.yaml", "pod/web created", ""},
	{"kubectl wait --for=condition=Ready pod/web --timeout=60s", "condition met", ""},
	{"kubectl debug web -q --image=" + busyboxImage + " -c look -- echo I looked", "", "new"},
	{"kubectl apply -f pod.yaml", "unchanged", ""},
	{"kubectl get pods", "NAME|READY|web    1/1     Running   0", ""},
	{"kubectl get pods -A -o wide", "NAMESPACE|NOMINATED NODE|web", ""},
	{"kubectl get pod web -o yaml", "kind: Pod|phase: Running", ""},
	{"kubectl get pods -o json", `"kind": "List"`, ""},
	{"kubectl get pods -o jsonpath={.items[*].status.phase}", "Running", ""},
	{"kubectl get pods -o custom-columns=N:.metadata.name,IP:.status.podIP", "web   10.", ""},
	{"kubectl get all && kubectl get pods --sort-by=.metadata.name", "pod/web", ""},
	{"kubectl get nodes -o wide", "KERNEL-VERSION| Ready ", ""},
	{"kubectl describe pod web", "Containers:|Started|Conditions:|QoS Class|Events:", ""},
	{"kubectl create configmap made --from-literal=a=b && kubectl create secret generic s --from-literal=k=v && kubectl create sa robot",
		"created", ""},
	{"kubectl create token robot", "ey", "new"},
	{"kubectl apply --server-side -f map.yaml", "serverside-applied", ""},
	{"sed s/red/blue/ map.yaml | kubectl diff -f -", "!-  colour: red|+  colour: blue", ""},
	{"EDITOR='sed -i s/red/green/' kubectl edit configmap settings", "edited", ""},
	{"kubectl get configmap settings -o jsonpath={.data.colour}", "green", ""},
	{"kubectl get configmap settings -o yaml | sed s/green/grey/ | kubectl replace -f -", "replaced", ""},
	{`kubectl patch configmap settings -p '{"data":{"size":"7"}}'`, "patched", ""},
	{`kubectl patch configmap settings --type=merge -p '{"data":{"size":null}}'`, "patched", ""},
	{`kubectl patch configmap settings --type=json -p '[{"op":"test","path":"/data/colour","value":"grey"},{"op":"remove","path":"/data/colour"}]'`, "patched", ""},
	{"kubectl label pod web tier=front && kubectl annotate pod web note=x && kubectl get pods -l tier=front", "web", ""},
	{"kubectl label pod web tier- && kubectl label pod web owner=$NS", "web", ""},
	{"kubectl get events", "Scheduled|Started", ""},
	{"kubectl events --for pod/web", "Started", "new"},
	{"kubectl logs web --since=1h --timestamps", "Z it started", ""},
	{"kubectl logs -l app=web --tail=1", "it started", ""},
	{"kubectl logs web -c look", "I looked", "new"},
	{"kubectl exec web -- sh -c 'echo I am $HOSTNAME; exit 7'", "!I am web|exit code 7", ""},
	{"echo to its input | kubectl exec -i web -- cat", "to its input", ""},
	{"script -qec \"stty cols 97 rows 31; kubectl exec -it web -- sh -c 'tty; until stty size 2>&1 | grep 31.97; do sleep 0.1; done'\" /dev/null", "/dev/pts/|31 97", ""},
	{"kubectl cp pod.yaml web:/tmp/there && kubectl cp web:/tmp/there back && cmp pod.yaml back && echo same", "same", ""},
	{"kubectl get --raw /api/v1/namespaces/$NS/pods/web/log", "it started", ""},
	{"kubectl get --raw /api/v1/namespaces/$NS/pods/web:http/proxy/index.html", "this is the index", ""},
	{"kubectl run once --image=" + busyboxImage + " --restart=Never --command -- echo said once", "pod/once created", ""},
	{"kubectl wait --for=jsonpath={.status.phase}=Succeeded pod/once --timeout=60s && kubectl logs -f --since=1h once", "said once", "new"},
	{"kubectl apply -f many.yaml && until kubectl get rc many | grep 'many *2 *2 *2'; do sleep 0.3; done", "created", ""},
	{"kubectl get rc -o wide && kubectl get all", "DESIRED|CURRENT|READY|SELECTOR|app=many|replicationcontroller/many", ""},
	{"kubectl describe rc many", "2 current / 2 desired|2 Running / 0 Waiting|SuccessfulCreate|Created pod: many-", ""},
	{"kubectl logs rc/many --tail=1", "one of many", ""},
	{"kubectl delete $(kubectl get pods -l app=many -o name | head -1) && until kubectl get rc many | grep 'many *2 *2 *2'; do sleep 0.3; done", "deleted", ""},
	{"kubectl scale rc many --replicas=3 --current-replicas=7", "!Expected replicas to be 7, was 2", ""},
	{"kubectl scale rc many --replicas=3 --current-replicas=2 && until kubectl get rc many | grep 'many *3 *3 *3'; do sleep 0.3; done",
		"scaled", ""},
	{"kubectl get rc many --subresource=scale -o jsonpath={.kind}.{.spec.replicas}.{.status.selector}", "Scale.3.app=many", "new"},
	{"kubectl patch rc many --subresource=scale --type=merge -p '{\"spec\":{\"replicas\":4}}'", "patched", "new"},
	{"kubectl set image rc/many main=registry.example/none:1 && kubectl rollout status rc/many",
		"!image updated|no status viewer has been implemented", ""},
	{"kubectl delete rc many --cascade=orphan && kubectl get pods -l app=many", "deleted|many-", ""},
	{"kubectl apply -f many.yaml && until kubectl get rc many | grep 'many *2 *2 *2'; do sleep 0.3; done", "created", ""},
	{"kubectl delete rc many && while kubectl get pods -l app=many -o name | grep .; do sleep 0.3; done", "deleted", ""},
	{"kubectl expose pod web --port=80", "service/web exposed", ""},
	{"kubectl create job j --image=" + busyboxImage + " -- echo worked", "job.batch/j created", ""},
	{"kubectl wait --for=condition=complete job/j --timeout=60s && kubectl get job j && kubectl logs job/j",
		"condition met|Complete   1/1 |worked", ""},
	{"kubectl describe job j", "Completions:|1 Succeeded / 0 Failed|Created pod: j-|Job completed", ""},
	{"kubectl delete job j && while kubectl get pods -l job-name=j -o name | grep .; do sleep 0.3; done", `job.batch "j" deleted`, ""},
	{"kubectl create cronjob cj --image=" + busyboxImage + " --schedule='0 3 29 2 *' -- echo ticked", "cronjob.batch/cj created", "new"},
	// it wants v1beta1
	{"kubectl create cronjob cj --image=x --schedule='0 3 29 2 *'", "!the server could not find the requested resource", "old"},
	{"echo '" + kubectlCron + "' | kubectl apply -f -", "cronjob.batch/cj created", "old"},
	{"kubectl get cronjob cj", "0 3 29 2 *   <none>     False     0        <none>", ""},
	{"kubectl create job now --from=cronjob/cj && kubectl wait --for=condition=complete job/now --timeout=60s && kubectl logs job/now",
		"job.batch/now created|condition met|ticked", "new"},
	{"kubectl patch cronjob cj -p '{\"spec\":{\"schedule\":\"* * * *\"}}'", "!expected exactly 5 fields", ""},
	{"kubectl patch cronjob cj -p '{\"spec\":{\"timeZone\":\"Europe/Berlin\",\"suspend\":true}}' && kubectl describe cj cj",
		"patched|Europe/Berlin|Suspend:|True|Concurrency Policy:", "new"},
	{"kubectl delete cronjob cj && while kubectl get jobs -o name | grep .; do sleep 0.3; done", `cronjob.batch "cj" deleted`, ""},
	{"kubectl set env pod/web A=b", "!pod updates may not change fields", ""},
	{"kubectl certificate approve c", "!certificatesigningrequests", ""},
	{"kubectl plugin list", "!unable to find any kubectl plugins", ""},
	{"kubectl options", "The following options can be passed to any command", ""},
	{"mkdir k && cp map.yaml k && echo '{resources: [map.yaml], namePrefix: my-}' > k/kustomization.yaml && kubectl kustomize k && kubectl apply -k k", "name: my-settings|configmap/my-settings created", ""},
	{"sed 's/{name: settings}/{name: pruned, labels: {set: p}}/' map.yaml | kubectl apply -f -", "configmap/pruned created", ""},
	{"sed 's/{name: settings}/{name: stays, labels: {set: p}}/' map.yaml | kubectl apply -f - --prune -l set=p --prune-whitelist=core/v1/ConfigMap", "configmap/stays created|configmap/pruned pruned", "old"},
	{"sed 's/{name: settings}/{name: stays, labels: {set: p}}/' map.yaml | kubectl apply -f - --prune -l set=p",
		"configmap/stays created|configmap/pruned pruned", "new"},
	{"kubectl debug web --image=" + busyboxImage + " -c look -- true", "!ephemeral", "old"},
	{"kubectl debug web --image=" + busyboxImage + " --copy-to=copied -c look -- true && kubectl delete pod copied --now", `"copied" deleted`,
		""},
	{"kubectl kuberc view", "", "new"},
	{"kubectl auth can-i delete pods", "yes", ""},
	{"kubectl auth can-i --list", "*.*", ""},
	{"kubectl auth whoami", "system:masters", "new"},
	{"kubectl completion bash", "__start_kubectl", ""},
	{"kubectl __complete get pod we", "web", "new"},
	{"kubectl replace --force -f map.yaml", "replaced", ""},
	{"kubectl delete -f map.yaml", "deleted", ""},
	{"kubectl delete configmap none", "!not found", ""},
}

// nodeSteps change the node, so one kubectl does them after the other. A drain goes through evictions.
var nodeSteps = []step{
	{"kubectl taint node $NODE side=x:NoSchedule && kubectl describe node $NODE", "side=x:NoSchedule", ""},
	{"kubectl taint node $NODE side-", "untainted", ""},
	{"kubectl label node $NODE rack=7 && kubectl get nodes -l rack=7 -L rack", "7", ""},
	{"kubectl label node $NODE rack- && kubectl annotate node $NODE note=$NS --overwrite", "", ""},
	{"kubectl cordon $NODE && kubectl get nodes", "cordoned|Ready,SchedulingDisabled", ""},
	{"kubectl drain $NODE --force --ignore-daemonsets --delete-emptydir-data --dry-run=server", "drained (server dry run)", ""},
	{"kubectl drain $NODE --force --ignore-daemonsets --timeout=60s --pod-selector=owner=$NS", "evicting pod|pod/web evicted", ""},
	{"kubectl get pods -l app=web", "No resources found", ""},
	{"kubectl uncordon $NODE", "uncordoned", ""},
	{"kubectl delete namespace $NS", "deleted", ""},
}

// longSteps are the rest of what people type: refusals that must say why, and verbs that few need.
var longSteps = []step{
	{"kubectl create service clusterip s --tcp=80 && kubectl delete service s", "created|deleted", ""},
	{"kubectl create quota q --hard=count/configmaps=0", "resourcequota/q created", ""},
	{"kubectl create configmap beyond", "!exceeded quota: q, requested: count/configmaps=1", ""},
	{"kubectl delete quota q", "deleted", ""},
	{"kubectl auth can-i get pods --as=bob", "!User \"bob\" cannot get resource", ""},
	{"kubectl set image pod/web main=" + busyboxImage + "-none --dry-run=server", "image updated", ""},
	{"kubectl get widgets", `!the server doesn't have a resource type "widgets"`, ""},
	{"kubectl get pod none", `!pods "none" not found`, ""},
	{"kubectl get secrets,configmaps,sa,leases,pc,runtimeclasses,svc,pvc,pv,sc,deploy,ds,sts,jobs,cj,hpa,ing,netpol,quota,limits -A",
		"kube-root-ca.crt", ""},
	{"kubectl describe namespace $NS && kubectl describe sa && kubectl describe secrets && kubectl describe configmaps",
		"No resource quota|kube-root-ca.crt", ""},
	{"kubectl describe svc kubernetes -n default && kubectl describe pc system-node-critical && kubectl describe lease $NODE -n kube-node-lease", "Value:", ""},
	{"kubectl cluster-info dump --output-directory=dump && ls dump", "nodes.json", ""},
	{"kubectl patch node $NODE --subresource=status --type=merge -p '{}'", "node", "new"},
	{"kubectl debug node/$NODE -q --image=" + busyboxImage + " -- chroot /host true", "", "new"},
	{"kubectl drain $NODE --force --dry-run=client", "drained (dry run)", ""},
	{"kubectl explain node --recursive && kubectl explain deployment.spec", "DeploymentSpec", "new"},
	{"kubectl explain node --recursive && kubectl explain deployment.spec", "specification of the desired", "old"},
	{"kubectl completion zsh", "compdef", ""},
	{"kubectl get pods --chunk-size=1 --field-selector=status.phase=Running,spec.nodeName=$NODE --show-labels", "app=web", ""},
	{"kubectl wait --for=delete pod/none --timeout=5s", "", "new"},
}

// TestKubectl: the commands that people know do on a board what they do on Kubernetes, with the kubectl of today and with
// the one of Debian 12. kubectl top, which needs half a minute of a pod's life, is part of TestStats.
func TestKubectl(t *testing.T) {
	needGo(t)
	b := newBoard(t)
	b.serve()
	b.importBusybox()
	b.importRough()
	clients, deploying := map[string]*client{}, map[string]*client{}
	for _, version := range []string{"new", "old"} {
		deploying[version] = b.client(strings.TrimPrefix(version, "new"), "apps-"+version)
		deploying[version].write("shop.yaml", kubectlDeployment)
		k := b.client(strings.TrimPrefix(version, "new"), "side-"+version)
		k.write("pod.yaml", kubectlPod)
		k.write("map.yaml", kubectlMap)
		k.write("many.yaml", kubectlMany)
		clients[version] = k
	}
	t.Run("beside", func(t *testing.T) {
		b.autoscales(t)
		t.Run("load", func(t *testing.T) {
			t.Parallel()
			b.rollsOutUnderLoad(t)
		})
		for version := range clients {
			t.Run("apps/"+version, func(t *testing.T) {
				t.Parallel()
				deploying[version].in(t).steps(version, appsSteps)
			})
		}
		for version := range clients {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				k := clients[version].in(t)
				k.steps(version, besideSteps)
				k.describesNode()
				k.streams()
				k.attaching()
				if os.Getenv("LEDGE_LONG") != "" {
					k.steps(version, longSteps)
				}
			})
		}
	})
	for _, version := range []string{"new", "old"} {
		t.Run("node/"+version, func(t *testing.T) {
			k := clients[version].in(t)
			k.ran.WriteString(deploying[version].ran.String())
			k.steps(version, nodeSteps)
			k.ranEverything()
		})
	}
	t.Run("own", func(t *testing.T) { b.ownVerbs(t) })
	// Without a client certificate or a token there is no way in but to what anybody may see.
	anonymous := http.Client{Timeout: testrun.Patience(5 * time.Second),
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for path, want := range map[string]int{"/version": http.StatusOK, "/api": http.StatusUnauthorized} {
		answer, err := anonymous.Get(fmt.Sprintf("https://127.0.0.1:%d%s", b.port, path))
		must(t, err)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("anonymous request for %s answered: %s", path, answer.Status)
		}
	}
}

// describesNode: kubectl prints the headings whatever there is, so it is what stands below them that counts.
func (k *client) describesNode() {
	k.t.Helper()
	out, err := k.sh(k.t.Context(), "kubectl describe node $NODE").CombinedOutput()
	if err != nil {
		k.t.Errorf("%v: %s", err, out)
	}
	name := regexp.QuoteMeta(strings.TrimPrefix(k.env[slices.IndexFunc(k.env, func(e string) bool { return strings.HasPrefix(e, "NODE=") })],
		"NODE="))
	for _, want := range []string{
		`Name: +` + name,
		`Labels: +beta\.kubernetes\.io/arch=|Labels: +kubernetes\.io/arch=`, `kubernetes\.io/hostname=` + name,
		`CreationTimestamp: +[A-Z][a-z]{2}, `, `Taints: +<none>`, `Unschedulable: +false`,
		`HolderIdentity: +` + name, `RenewTime: +[A-Z][a-z]{2}, `,
		`MemoryPressure +False .* KubeletHasSufficientMemory `, `DiskPressure +False .* KubeletHasNoDiskPressure `,
		`PIDPressure +False .* KubeletHasSufficientPID `,
		`Ready +True +[A-Z][a-z]{2}, .* KubeletReady `,
		`InternalIP: +[0-9a-f.:]+`, `Hostname: +` + name,
		`Capacity:\n(?:  .*\n)*  cpu: +[1-9]`, `Capacity:\n(?:  .*\n)*  ephemeral-storage: +[1-9]`, `Capacity:\n(?:  .*\n)*  memory: +[1-9]`,
		`Capacity:\n(?:  .*\n)*  pods: +[1-9]`,
		`Allocatable:\n(?:  .*\n)*  cpu: +[1-9]`, `Allocatable:\n(?:  .*\n)*  ephemeral-storage: +[1-9]`,
		`Allocatable:\n(?:  .*\n)*  memory: +[1-9]`, `Allocatable:\n(?:  .*\n)*  pods: +[1-9]`,
		`Machine ID: +\S`, `Boot ID: +\S`, `Kernel Version: +\S`, `OS Image: +\S`, `Operating System: +linux`, `Architecture: +\S`,
		`Container Runtime Version: +\S+://`, `Kubelet Version: +v\d`,
		`Non-terminated Pods: +\([1-9]\d* in total\)`, `side-\w+ +web( +0 \(0%\)){4} +[\dms]+`,
		`Allocated resources:\n(?:  .*\n)*  cpu +\d+m? \(\d+%\) +\d+m? \(\d+%\)`, `Allocated resources:\n(?:  .*\n)*  ephemeral-storage +0 `,
		`Events:\n(?:  .*\n)*  Normal +(Starting|NodeReady) `,
	} {
		if !regexp.MustCompile(`(?m)^ *(?:` + want + `)`).Match(out) {
			k.t.Errorf("kubectl describe node: nothing like %q in\n%s", want, out)
		}
	}
}

// ranEverything: each command that this kubectl says it has was tried.
func (k *client) ranEverything() {
	k.t.Helper()
	help, err := k.sh(k.t.Context(), "kubectl --help").Output()
	must(k.t, err)
	commands := regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}\S`).FindAllStringSubmatch(string(help), -1)
	if len(commands) < 35 {
		k.t.Errorf("kubectl --help tells of %d commands:\n%s", len(commands), help)
	}
	for _, c := range commands {
		if c[1] != "top" && !strings.Contains(k.ran.String(), " kubectl "+c[1]+" ") { // top: TestStats
			k.t.Errorf("kubectl %s was not tried", c[1])
		}
	}
}

// streams are the commands that go on until they are ended.
func (k *client) streams() {
	k.t.Helper()
	var ns string
	for _, e := range k.env {
		if name, ok := strings.CutPrefix(e, "NS="); ok {
			ns = name
		}
	}
	answers := func(url, want string) {
		k.t.Helper()
		c := http.Client{Timeout: testrun.Patience(30 * time.Second)}
		answer, err := c.Get(url)
		if err != nil {
			k.t.Error(err)
			return
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, contains(string(body), want)); err != nil {
			k.t.Errorf("%s: %v", url, err)
		}
	}
	k.until("kubectl port-forward pod/web :8080", `Forwarding from 127\.0\.0\.1:(\d+)`, func(m []string) {
		answers("http://127.0.0.1:"+m[1]+"/index.html", "this is the index")
	})
	k.until("kubectl proxy --port=0", `Starting to serve on (127\.0\.0\.1:\d+)`, func(m []string) {
		answers("http://"+m[1]+"/version", "gitVersion")
		answers("http://"+m[1]+"/api/v1/namespaces/"+ns+"/pods/web:8080/proxy/", "this is the index")
	})
	for i, line := range []string{"kubectl get pods -w -L beat", "kubectl get pod web -o jsonpath='{.metadata.labels.beat}{\"\\n\"}' -w"} {
		before, beat := []string{`^web .* Running`, `^first$`}[i], []string{"first", "second"}[i]
		k.until(line, before, func([]string) {
			must(k.t, k.try("kubectl label pod web --overwrite beat="+beat, "labeled"))
		}, `\b`+beat+`$`)
	}
	k.until("kubectl logs -f --since=1h web", "it started", func([]string) {})
}
