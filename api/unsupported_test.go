package api

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// honoured lists every field of a pod's spec that means here what it means on Kubernetes, or that has no
// effect there either on one board (N-10.5, with a warning). A subtree is named by its root. A field that is
// neither here nor in the table of refusals fails the test: a new version of Kubernetes has brought it.
var honoured = strings.Fields(`
	spec.imagePullSecrets[*].name spec.runtimeClassName spec.overhead
	spec.ephemeralContainers[*].targetContainerName spec.restartPolicy spec.readinessGates spec.schedulingGates spec.terminationGracePeriodSeconds spec.activeDeadlineSeconds spec.dnsPolicy
	spec.nodeSelector spec.serviceAccountName spec.serviceAccount spec.nodeName spec.hostNetwork spec.hostUsers spec.shareProcessNamespace spec.hostPID
	spec.hostIPC spec.hostname spec.subdomain spec.affinity spec.schedulerName spec.tolerations
	spec.priorityClassName spec.priority spec.preemptionPolicy spec.enableServiceLinks
	spec.topologySpreadConstraints spec.resources.limits spec.resources.requests spec.setHostnameAsFQDN spec.hostnameOverride spec.hostAliases spec.dnsConfig
	spec.securityContext.runAsUser spec.securityContext.runAsGroup spec.securityContext.runAsNonRoot
	spec.securityContext.supplementalGroups spec.securityContext.supplementalGroupsPolicy
	spec.securityContext.fsGroup spec.securityContext.fsGroupChangePolicy
	spec.securityContext.seccompProfile spec.securityContext.appArmorProfile spec.securityContext.sysctls
	spec.securityContext.seLinuxOptions spec.securityContext.seLinuxChangePolicy
	spec.volumes[*].name spec.volumes[*].hostPath spec.volumes[*].nfs spec.volumes[*].emptyDir.medium
	spec.volumes[*].emptyDir.sizeLimit spec.volumes[*].emptyDir.mode
	spec.volumes[*].configMap.name spec.volumes[*].configMap.defaultMode spec.volumes[*].configMap.optional
	spec.volumes[*].secret.secretName spec.volumes[*].secret.defaultMode spec.volumes[*].secret.optional
	spec.volumes[*].downwardAPI.defaultMode spec.volumes[*].projected.defaultMode
	spec.volumes[*].projected.sources[*].configMap.name spec.volumes[*].projected.sources[*].configMap.optional
	spec.volumes[*].projected.sources[*].secret.name spec.volumes[*].projected.sources[*].secret.optional
	spec.volumes[*].projected.sources[*].serviceAccountToken.audience
	spec.volumes[*].projected.sources[*].serviceAccountToken.expirationSeconds
	spec.volumes[*].projected.sources[*].serviceAccountToken.path
	spec.automountServiceAccountToken
	spec.volumes[*].image spec.volumes[*].persistentVolumeClaim
	spec.volumes[*].ephemeral.volumeClaimTemplate`)

var honouredInContainers = strings.Fields(`
	name image command args workingDir stdin stdinOnce tty ports env[*].name env[*].value env[*].valueFrom.fieldRef
	env[*].valueFrom.configMapKeyRef env[*].valueFrom.secretKeyRef env[*].valueFrom.resourceFieldRef env[*].valueFrom.fileKeyRef envFrom
	resources.limits resources.requests resizePolicy
	volumeDevices[*].name volumeDevices[*].devicePath volumeMounts[*].name volumeMounts[*].readOnly volumeMounts[*].mountPath
	volumeMounts[*].subPath volumeMounts[*].subPathExpr volumeMounts[*].mountPropagation volumeMounts[*].recursiveReadOnly
	terminationMessagePath terminationMessagePolicy imagePullPolicy
	lifecycle.stopSignal restartPolicy restartPolicyRules
	securityContext.capabilities securityContext.privileged securityContext.runAsUser securityContext.runAsGroup
	securityContext.runAsNonRoot securityContext.readOnlyRootFilesystem securityContext.allowPrivilegeEscalation
	securityContext.procMount
	securityContext.seccompProfile securityContext.appArmorProfile securityContext.seLinuxOptions`)

// What several parts of a pod have in common.
var (
	honouredInItems  = strings.Fields(`key path mode`)
	honouredInFiles  = strings.Fields(`path fieldRef resourceFieldRef mode`)
	honouredInHooks  = strings.Fields(`exec httpGet.path httpGet.port httpGet.host httpGet.scheme httpGet.httpHeaders tcpSocket`)
	honouredInProbes = strings.Fields(`grpc.port grpc.service initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold
		terminationGracePeriodSeconds`)
)

func TestEveryFieldIsAccountedFor(t *testing.T) {
	known := map[string]bool{}
	for _, p := range honoured {
		known[p] = true
	}
	under := func(at string, fields ...string) (out []string) {
		for _, f := range fields {
			out = append(out, at+f)
		}
		return out
	}
	inContainers := slices.Concat(honouredInContainers, under("lifecycle.postStart.", honouredInHooks...), under("lifecycle.preStop.", honouredInHooks...))
	inContainers = append(inContainers, "lifecycle.postStart.sleep", "lifecycle.preStop.sleep")
	for _, probe := range []string{"livenessProbe.", "readinessProbe.", "startupProbe."} {
		inContainers = slices.Concat(inContainers, under(probe, honouredInHooks...), under(probe, honouredInProbes...))
	}
	for _, volume := range []string{"spec.volumes[*].", "spec.volumes[*].projected.sources[*]."} {
		for _, p := range slices.Concat(under(volume+"configMap.items[*].", honouredInItems...), under(volume+"secret.items[*].", honouredInItems...),
			under(volume+"downwardAPI.items[*].", honouredInFiles...)) {
			known[p] = true
		}
	}
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		for _, p := range inContainers {
			known["spec."+list+"[*]."+p] = true
		}
	}
	for _, r := range unsupportedInPods() {
		if known[r.Path] {
			t.Errorf("%s is both honoured and refused", r.Path)
		}
		known[r.Path] = true
	}
	used := map[string]bool{}
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		if known[path] {
			used[path] = true
			return
		}
		switch typ.Kind() {
		case reflect.Pointer:
			walk(path, typ.Elem())
		case reflect.Slice:
			walk(path+"[*]", typ.Elem())
		case reflect.Struct:
			if typ == reflect.TypeFor[resource.Quantity]() || typ == reflect.TypeFor[metav1.Time]() {
				t.Errorf("%s is neither honoured nor refused", path)
				return
			}
			for i := range typ.NumField() {
				f := typ.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" {
					walk(path, f.Type)
				} else {
					walk(path+"."+name, f.Type)
				}
			}
		default:
			t.Errorf("%s is neither honoured nor refused", path)
		}
	}
	walk("spec", reflect.TypeFor[corev1.PodSpec]())
	for p := range known {
		if !used[p] {
			t.Errorf("%s is listed and does not exist", p)
		}
	}
}

// Each line of the table refuses its field wherever it stands, and nothing else of an ordinary pod.
func TestRefusals(t *testing.T) {
	if errs := Unsupported(validPod()); len(errs) > 0 {
		t.Fatalf("an ordinary pod is refused: %v", errs)
	}
	for _, r := range unsupportedInPods() {
		t.Run(r.Path, func(t *testing.T) {
			pod := &corev1.Pod{}
			refused := ""
			if slices.Equal(r.Allow, []string{"true"}) {
				refused = "false"
			}
			set(reflect.ValueOf(pod).Elem(), strings.Split(r.Path, "."), refused)
			errs := Unsupported(pod)
			if len(errs) == 0 {
				t.Fatal("accepted in silence")
			}
			want := strings.ReplaceAll(r.Path, "[*]", "[0]")
			if got := errs[0].Error(); !strings.HasPrefix(got, want+": Forbidden: ") || !strings.HasSuffix(got, valid.NotYet) {
				t.Errorf("got %q", got)
			}
			for _, v := range r.Allow {
				set(reflect.ValueOf(pod).Elem(), strings.Split(r.Path, "."), v)
				if errs := Unsupported(pod); len(errs) > 0 {
					t.Errorf("%s is refused: %v", v, errs)
				}
			}
		})
	}
}

// What is refused in a pod is refused in the templates of workloads too, where it stands: nobody watches when their pods are made.
func TestRefusalsInTemplates(t *testing.T) {
	for _, r := range unsupportedInPods() {
		pod := &corev1.Pod{}
		refused := ""
		if slices.Equal(r.Allow, []string{"true"}) {
			refused = "false"
		}
		set(reflect.ValueOf(pod).Elem(), strings.Split(r.Path, "."), refused)
		at := field.NewPath("spec", "template")
		want := "spec.template." + strings.ReplaceAll(r.Path, "[*]", "[0]")
		errs := ValidateReplicated(&corev1.PodTemplateSpec{Spec: pod.Spec}, labels.Everything(), at)
		if !slices.ContainsFunc(errs, func(err *field.Error) bool {
			return strings.HasPrefix(err.Field, want) && strings.HasSuffix(err.Detail, valid.NotYet)
		}) {
			t.Errorf("%s: %v", want, errs)
		}
	}
}

// set puts value, or something that is not empty, at a path, growing what is in the way.
func set(v reflect.Value, path []string, value string) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if len(path) == 0 && v.Elem().Kind() == reflect.Struct {
			return // a pointer to an empty struct is set
		}
		set(v.Elem(), path, value)
		return
	}
	if len(path) > 0 {
		name, each := strings.CutSuffix(path[0], "[*]")
		sf, _ := valid.FieldByJSON(v.Type(), name)
		f := v.FieldByIndex(sf.Index)
		if each {
			if f.Len() == 0 {
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			}
			f = f.Index(0)
		}
		set(f, path[1:], value)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(value == "" || value == "true")
	case reflect.String:
		if value == "" {
			value = "x"
		}
		v.SetString(value)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
	}
}

// What Kubernetes sets by default, said aloud, asks for nothing, and must pass when allowed to.
func TestRefusalOfDefaults(t *testing.T) {
	pod := validPod()
	pod.Spec.OS = &corev1.PodOS{Name: corev1.Linux}
	if errs := Unsupported(pod); len(errs) > 0 {
		t.Errorf("%v", errs)
	}
	pod.Spec.OS.Name = corev1.Windows
	if errs := Unsupported(pod); len(errs) != 1 || errs[0].Field != "spec.os.name" {
		t.Errorf("got %v", errs)
	}
}

func TestUnsupportedOutsideTheTable(t *testing.T) {
	pod := validPod()
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"kubernetes.io/gpu": resource.MustParse("4"), "gpu": resource.MustParse("4"),
		"example.com/gpu": resource.MustParse("4")}
	if errs := Unsupported(pod); len(errs) != 2 || errs[0].Field != "spec.containers[0].resources.limits[gpu]" {
		t.Errorf("got %v", errs)
	}
}

func TestWarnings(t *testing.T) {
	pod := validPod()
	if w := Pods.Warnings(pod); len(w) > 0 {
		t.Errorf("an ordinary pod is warned of: %v", w)
	}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("100m")}
	if w := Pods.Warnings(pod); len(w) != 1 {
		t.Errorf("got %q", w)
	}
	if w := Nodes.Warnings(&corev1.Node{}); w != nil {
		t.Errorf("got %q", w)
	}
}
