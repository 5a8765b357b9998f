package cli

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/board"
	"ledge/brain/place"
	"ledge/pki"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string][2]string{ // through a writer, and in a line
		"plain äß 漢字 🙂 \\ ' \"":  {"plain äß 漢字 🙂 \\ ' \"", "plain äß 漢字 🙂 \\ ' \""},
		"a\nb\tc":                {"a\nb\tc", `a\nb\tc`},
		"\x1b]0;t\a\r":           {`\x1b]0;t\a\r`, `\x1b]0;t\a\r`},
		"\u009b31m\x7f\x00":      {`\u009b31m\x7f\x00`, `\u009b31m\x7f\x00`},
		"\u202egpj.\u2066\u200b": {`\u202egpj.\u2066\u200b`, `\u202egpj.\u2066\u200b`},
		"\x9b\xff\xe2\x80":       {`\x9b\xff\xe2\x80`, `\x9b\xff\xe2\x80`},
		"\u2028\u2029\U000e0041": {`\u2028\u2029\U000e0041`, `\u2028\u2029\U000e0041`},
	} {
		var out bytes.Buffer
		if n, err := (visible{&out}).Write([]byte(in)); out.String() != want[0] || n != len(in) || err != nil {
			t.Errorf("%q: %q, want %q", in, out.String(), want[0])
		}
		if got := inLine(in); got != want[1] {
			t.Errorf("%q in a line: %q, want %q", in, got, want[1])
		}
	}
	if got := string(visibleJSON([]byte("\"\u202e\x7f\U000e0041 ä\"\n"))); got != `"\u202e\u007f\udb40\udc41 ä"`+"\n" {
		t.Errorf("JSON: %q", got)
	}
	if got := indented("a\nledge: b\x1b\n"); got != "a\n  ledge: b\\x1b" {
		t.Errorf("%q", got)
	}
	var out bytes.Buffer
	if stream(visible{&out}).Write([]byte("\x1b")); out.String() != "\x1b" {
		t.Errorf("a stream: %q", out.String())
	}
}

// evil is what somebody would have printed: an escape sequence, a line of their own, letters turned round.
const evil = "x\nforged \x1b]0;title\a\r\u009b31m\u202eb\tq\x7f\n"

// corrupted is a value with that in every string.
func corrupted(v any) any {
	to := reflect.New(reflect.TypeOf(v)).Elem()
	corrupt(to, 0)
	return to.Interface()
}

func corrupt(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case metav1.Time, metav1.MicroTime, metav1.Duration, time.Time, resource.Quantity, intstr.IntOrString:
		return
	}
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(evil)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		corrupt(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			corrupt(v.Index(0), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		corrupt(key, depth+1)
		corrupt(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				corrupt(v.Field(i), depth+1)
			}
		}
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(evil))
		}
	}
}

const appsPath = "/apis/apps/v1/namespaces/default/"

// corruptNode answers everything with strings that steer a terminal, and errs when it is told to.
func corruptNode(t *testing.T, errs *bool) (runDir string) {
	t.Helper()
	runDir = t.TempDir()
	l, err := net.Listen("unix", place.Socket(runDir))
	if err != nil {
		t.Fatal(err)
	}
	pod := corrupted(corev1.Pod{}).(corev1.Pod)
	pod.Name, pod.Namespace, pod.DeletionTimestamp = "p", "default", nil
	node := corrupted(corev1.Node{}).(corev1.Node)
	node.Name = "n"
	list := func(items ...any) any {
		return map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]string{"resourceVersion": "1"}, "items": items}
	}
	named := func(obj metav1.Object) any {
		obj.SetName("d")
		obj.SetNamespace("default")
		obj.SetDeletionTimestamp(nil)
		return obj
	}
	deployment := corrupted(appsv1.Deployment{}).(appsv1.Deployment)
	set := corrupted(appsv1.StatefulSet{}).(appsv1.StatefulSet)
	daemons := corrupted(appsv1.DaemonSet{}).(appsv1.DaemonSet)
	replicas := corrupted(appsv1.ReplicaSet{}).(appsv1.ReplicaSet)
	remembered := corrupted(appsv1.ControllerRevision{}).(appsv1.ControllerRevision)
	for _, obj := range []metav1.Object{&replicas, &remembered} { // what was before, of something that makes no progress
		owner := obj.GetOwnerReferences()
		*owner[0].Controller = true
		obj.SetOwnerReferences(owner)
		obj.SetAnnotations(map[string]string{"kubernetes.io/change-cause": evil, "deployment.kubernetes.io/revision": "1"})
	}
	remembered.Revision, remembered.Data.Object = 1, nil
	remembered.Data.Raw = []byte(`{"spec":{"template":{"metadata":{"labels":{"a":"x\nforged \u001b\u009b"}}}}}`)
	deployment.Status.Conditions[0].Type, deployment.Status.Conditions[0].Reason = appsv1.DeploymentProgressing, "ProgressDeadlineExceeded"
	job := corrupted(batchv1.Job{}).(batchv1.Job)
	secret := corrupted(corev1.Secret{}).(corev1.Secret)
	table := corrupted(metav1.Table{}).(metav1.Table)
	table.ColumnDefinitions[0].Priority = 0
	table.Rows[0].Object.Raw = []byte(`{"metadata":{"namespace":"x\nforged \u001b"}}`)
	table.Rows[0].Object.Object = nil
	answers := map[string]any{
		"GET " + board.ImagesPath: corrupted(board.Images{}), "POST " + board.PullPath: corrupted(board.PullNews{}),
		"POST " + board.VerifyPath: corrupted(board.Verified{}), "GET " + board.TokensPath: corrupted([]pki.TokenInfo{}),
		"POST " + board.TokensPath: corrupted(board.NewToken{}), "GET " + board.BoardsPath: corrupted([]pki.BoardInfo{}),
		"DELETE " + board.BoardsPath: corrupted(board.Revoked{}), "GET " + board.StatusPath: corrupted(board.Status{}),
		"GET " + board.ShutdownPath: corrupted(board.Shutdown{}), "GET " + board.SafeModePath: corrupted(board.SafeMode{}),
		"GET /api/v1/namespaces/default/pods/p": pod, "GET /api/v1/nodes/n": node, "GET /api/v1/nodes": list(node), "GET /api/v1/pods": list(pod),
		"PATCH /api/v1/nodes/n":             node,
		"GET " + appsPath + "deployments/d": named(&deployment), "PATCH " + appsPath + "deployments/d": named(&deployment),
		"GET " + appsPath + "statefulsets/d": named(&set), "GET " + appsPath + "daemonsets/d": named(&daemons),
		"PATCH " + appsPath + "deployments/d/scale":    corrupted(autoscalingv1.Scale{}),
		"GET " + appsPath + "replicasets":              list(replicas),
		"GET " + appsPath + "controllerrevisions":      list(remembered),
		"GET /apis/batch/v1/namespaces/default/jobs/d": named(&job), "GET /api/v1/namespaces/default/secrets/d": named(&secret),
		"GET /api/v1/events": list(corrupted(corev1.Event{})), "GET /api/v1/namespaces/default/pods": list(pod),
		"GET /apis/metrics.k8s.io/v1beta1/nodes":                   list(corrupted(api.NodeMetrics{})),
		"GET /apis/metrics.k8s.io/v1beta1/pods":                    list(corrupted(api.PodMetrics{})),
		"GET /apis/metrics.k8s.io/v1beta1/namespaces/default/pods": list(corrupted(api.PodMetrics{})),
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		what, ok := answers[r.Method+" "+r.URL.Path]
		switch {
		case *errs || !ok:
			w.WriteHeader(http.StatusConflict)
			status := corrupted(metav1.Status{}).(metav1.Status)
			status.Kind, status.APIVersion, status.Status, status.Code = "Status", "v1", metav1.StatusFailure, http.StatusConflict
			what = status
		case strings.Contains(r.Header.Get("Accept"), "as=Table"):
			what = table
		}
		if err := json.NewEncoder(w).Encode(what); err != nil {
			t.Error(r.URL.Path, err)
		}
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return runDir
}

// Nothing that the API says steers the terminal of who asks, or looks like a line of ledge's own.
func TestVerbsShowWhatTheyPrint(t *testing.T) {
	var errs bool
	runDir := corruptNode(t, &errs)
	shown := 0
	for _, errs = range []bool{false, true} {
		for _, verb := range []string{"get events -A", "get pods -A -o wide", "get pods -o name", "get pod p -o json", "get pod p -o yaml",
			"describe pod p", "describe node n", "describe deployment d", "describe statefulset d", "describe daemonset d", "describe job d",
			"describe secret d", "rollout status deployment d --wait=false", "rollout history deployment d",
			"rollout history deployment d --revision 1",
			"rollout history statefulset d",
			"rollout status statefulset d --wait=false", "rollout status daemonset d --wait=false", "rollout history daemonset d",
			"rollout history daemonset d --revision 1",
			"rollout pause deployment d", "rollout restart deployment d", "rollout undo deployment d", "scale deployment d --replicas 2",
			"uncordon n", "delete deployment d",
			"top nodes", "top pods", "top pods -A --containers", "images ls", "images pull x", "images verify", "images rm x", "token list",
			"token create", "token delete x",
			"node ls", "node revoke x", "status", "shutdown --plan", "shutdown --cancel", "resume", "cordon n", "drain n", "delete pod p", "logs p",
			"exec p -- id", "attach p"} {
			var out, fail bytes.Buffer
			Run(App{}, append([]string{"--run-dir", runDir}, strings.Fields(verb)...), &out, &fail)
			text := out.String() + fail.String()
			if !utf8.ValidString(text) {
				t.Errorf("%s prints bytes that are no text: %q", verb, text)
			}
			encoded := strings.HasSuffix(verb, "yaml") // whose encoder leaves letters that are turned round
			for _, c := range text {
				if c != '\n' && c != '\t' && !unicode.IsGraphic(c) && !(encoded && c == '\u202e') {
					t.Errorf("%s prints %q: %q", verb, c, text)
					break
				}
			}
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "forged") {
					t.Errorf("%s prints a line that is not its own: %q", verb, text)
				}
			}
			if strings.Contains(text, `\x1b`) || strings.Contains(text, `\u001b`) || strings.Contains(text, `\e`) { // as JSON, as YAML
				shown++
			}
		}
	}
	if shown < 88 {
		t.Errorf("only %d of the verbs printed anything of it: the made-up node does not reach them", shown)
	}
}

// A node that answers with a redirect is not obeyed.
func TestVerbsFollowNoRedirect(t *testing.T) {
	runDir := t.TempDir()
	l, err := net.Listen("unix", place.Socket(runDir))
	if err != nil {
		t.Fatal(err)
	}
	var led atomic.Int32
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			led.Add(1)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})}
	go srv.Serve(l)
	defer srv.Close()
	for _, verb := range []string{"get pods", "get pods -o json", "describe pod p", "logs p", "exec p -- id", "attach p", "top pods",
		"images ls", "images pull x",
		"token create", "node revoke x", "shutdown --now", "status", "cordon n", "delete pod p"} {
		var out, fail bytes.Buffer
		if code := Run(App{}, append([]string{"--run-dir", runDir}, strings.Fields(verb)...), &out, &fail); code == 0 || led.Swap(0) != 0 {
			t.Errorf("%s: exit code %d, %s", verb, code, fail.String())
		}
	}
}
