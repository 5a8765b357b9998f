package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// notYet ends every refusal of something Kubernetes has and ledge does not honour. A field is never ignored
// in silence: what these tables refuse is refused at the API and, for pods of another control plane, by the
// agent. Work that makes a field true deletes its line here and nothing else in this package;
// TestEveryFieldIsAccountedFor then asks for the field by name.
const notYet = "not supported by ledge yet"

// A refusal names a field by its JSON path, * standing for every element, and the values that may stay
// because they mean what ledge does anyway.
type refusal struct {
	path  string
	allow []string
}

var refusedInPods = []refusal{
	{"spec.schedulingGroup", nil},
	{"spec.evictionResponders", nil},
	{"spec.resourceClaims", nil},
	{"spec.resources.claims", nil},
	{"spec.os.name", []string{"linux"}},
	{"spec.securityContext.windowsOptions", nil},
	{"spec.volumes[*].awsElasticBlockStore", nil},
	{"spec.volumes[*].azureDisk", nil},
	{"spec.volumes[*].azureFile", nil},
	{"spec.volumes[*].cephfs", nil},
	{"spec.volumes[*].cinder", nil},
	{"spec.volumes[*].csi", nil},
	{"spec.volumes[*].ephemeral", nil},
	{"spec.volumes[*].fc", nil},
	{"spec.volumes[*].flexVolume", nil},
	{"spec.volumes[*].flocker", nil},
	{"spec.volumes[*].gcePersistentDisk", nil},
	{"spec.volumes[*].gitRepo", nil},
	{"spec.volumes[*].glusterfs", nil},
	{"spec.volumes[*].iscsi", nil},
	{"spec.volumes[*].nfs", nil},
	{"spec.volumes[*].persistentVolumeClaim", nil},
	{"spec.volumes[*].photonPersistentDisk", nil},
	{"spec.volumes[*].portworxVolume", nil},
	{"spec.volumes[*].projected.defaultUser", nil},
	{"spec.volumes[*].projected.sources[*].clusterTrustBundle", nil},
	{"spec.volumes[*].projected.sources[*].podCertificate", nil},
	{"spec.volumes[*].quobyte", nil},
	{"spec.volumes[*].rbd", nil},
	{"spec.volumes[*].scaleIO", nil},
	{"spec.volumes[*].storageos", nil},
	{"spec.volumes[*].vsphereVolume", nil},
}

// unsupportedInPods is made when the first pod is looked at: what is made before main is paid for every container.
var unsupportedInPods = sync.OnceValue(func() []refusal {
	return slices.Concat(refusedInPods, unsupportedInContainers("spec.initContainers[*]."),
		unsupportedInContainers("spec.containers[*]."), unsupportedInContainers("spec.ephemeralContainers[*]."))
})

func unsupportedInContainers(at string) []refusal {
	list := []refusal{
		{"resources.claims", nil},
		{"volumeDevices", nil},
		{"volumeMounts[*].bindMountOptions", nil},
		{"securityContext.windowsOptions", nil},
	}
	for i := range list {
		list[i].path = at + list[i].path
	}
	return list
}

var unsupportedInNodes = []refusal{
	{"spec.configSource", nil},
	{"spec.podPreemptionPolicy", nil},
}

var unsupportedInLeases = []refusal{ // coordinated leader election
	{"spec.strategy", nil},
	{"spec.preferredHolder", nil},
}

// The values of env[*].valueFrom.fieldRef.fieldPath, and the resources of containers, that are honoured.
var (
	supportedFieldRefs = []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels['<KEY>']",
		"metadata.annotations['<KEY>']", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.podIP",
		"status.hostIPs", "status.podIPs"}
	supportedResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
)

// Unsupported lists what a pod asks for that ledge does not honour. The API refuses such a pod; an agent that
// is handed one by another control plane must refuse it too.
func Unsupported(pod *corev1.Pod) field.ErrorList {
	errs := refuse(pod, podRefusals())
	errs = append(errs, unsupportedResources(pod.Spec.Overhead, field.NewPath("spec", "overhead"))...)
	eachContainer(pod, func(c *corev1.Container, at *field.Path) {
		errs = append(errs, unsupportedResources(c.Resources.Limits, at.Child("resources", "limits"))...)
		errs = append(errs, unsupportedResources(c.Resources.Requests, at.Child("resources", "requests"))...)
	})
	return errs
}

func unsupportedResources(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !slices.Contains(supportedResources, name) && !isHugePage(name) && !IsExtended(name) {
			errs = append(errs, field.Forbidden(at.Key(string(name)), notYet))
		}
	}
	return errs
}

// A lookup is a refusal with its path resolved to struct fields, once: it is walked for every new pod.
type lookup struct {
	refusal
	steps []step
}

type step struct {
	name  string // on the wire
	field []int  // in the struct
	each  bool   // of its elements
}

var (
	podRefusals   = sync.OnceValue(func() []lookup { return resolve(reflect.TypeFor[corev1.Pod](), unsupportedInPods()) })
	nodeRefusals  = sync.OnceValue(func() []lookup { return resolve(reflect.TypeFor[corev1.Node](), unsupportedInNodes) })
	leaseRefusals = sync.OnceValue(func() []lookup { return resolve(reflect.TypeFor[coordinationv1.Lease](), unsupportedInLeases) })
)

func resolve(typ reflect.Type, table []refusal) []lookup {
	var out []lookup
	for _, r := range table {
		l, t := lookup{refusal: r}, typ
		for _, part := range strings.Split(r.path, ".") {
			name, each := strings.CutSuffix(part, "[*]")
			for t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			f, ok := fieldByJSON(t, name)
			if !ok {
				panic("ledge bug: no field " + name + " in " + t.String())
			}
			l.steps = append(l.steps, step{name, f.Index, each})
			if t = f.Type; each {
				t = t.Elem()
			}
		}
		out = append(out, l)
	}
	return out
}

// fieldByJSON finds a struct field by its name on the wire, looking into embedded structs as JSON does.
func fieldByJSON(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f, true
		}
		if tag == "" && f.Anonymous && f.Type.Kind() == reflect.Struct {
			if found, ok := fieldByJSON(f.Type, name); ok {
				found.Index = append([]int{i}, found.Index...)
				return found, true
			}
		}
	}
	return reflect.StructField{}, false
}

// refuse reports each field of obj that a table names and that holds something else than it allows.
func refuse(obj any, table []lookup) field.ErrorList {
	var errs field.ErrorList
	for _, r := range table {
		visit(reflect.ValueOf(obj), r.steps, nil, func(v reflect.Value, at []string) {
			for v.Kind() == reflect.Pointer {
				v = v.Elem()
			}
			if len(r.allow) > 0 && slices.Contains(r.allow, fmt.Sprint(v.Interface())) {
				return
			}
			msg := notYet
			if isPlain(v) {
				if text, err := json.Marshal(v.Interface()); err == nil {
					msg = string(text) + " is " + notYet
				}
			}
			errs = append(errs, field.Forbidden(field.NewPath(strings.Join(at, ".")), msg))
		})
	}
	return errs
}

func isPlain(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface:
		return false
	}
	return true
}

// visit calls fn with every value at a path that is not empty. A pointer is empty when nil.
func visit(v reflect.Value, path []step, at []string, fn func(reflect.Value, []string)) {
	if len(path) == 0 {
		if !v.IsZero() && (v.Kind() != reflect.Slice && v.Kind() != reflect.Map || v.Len() > 0) {
			fn(v, at)
		}
		return
	}
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	f := v.FieldByIndex(path[0].field)
	if !path[0].each {
		visit(f, path[1:], append(at, path[0].name), fn)
		return
	}
	for i := range f.Len() {
		visit(f.Index(i), path[1:], append(at, fmt.Sprintf("%s[%d]", path[0].name, i)), fn)
	}
}

// Warnings says in words what an accepted object will not get as it is written, for the Warning header of its answer.
func Warnings(obj Object) []string {
	if b, ok := obj.(*policyv1.PodDisruptionBudget); ok {
		return budgetWarnings(b)
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	var out []string
	eachContainer(pod, func(c *corev1.Container, at *field.Path) {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			if q, ok := list[corev1.ResourceMemory]; ok && q.MilliValue()%1000 != 0 {
				out = append(out, fmt.Sprintf("%s: fractional byte value %q is rounded up", at.Child("resources"), q.String()))
			}
		}
	})
	return out
}

func eachContainer(pod *corev1.Pod, fn func(c *corev1.Container, at *field.Path)) {
	spec := field.NewPath("spec")
	for i := range pod.Spec.InitContainers {
		fn(&pod.Spec.InitContainers[i], spec.Child("initContainers").Index(i))
	}
	for i := range pod.Spec.Containers {
		fn(&pod.Spec.Containers[i], spec.Child("containers").Index(i))
	}
	for i := range pod.Spec.EphemeralContainers {
		fn(asContainer(&pod.Spec.EphemeralContainers[i]), spec.Child("ephemeralContainers").Index(i))
	}
}
