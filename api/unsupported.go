package api

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// A field is never ignored in silence: what these tables refuse is refused at the API and, for pods of another control
// plane, by the agent. Work that makes a field true deletes its line here and nothing else in this package;
// TestEveryFieldIsAccountedFor then asks for the field by name.
var refusedInPods = []valid.Refusal{
	{Path: "spec.schedulingGroup"},
	{Path: "spec.evictionResponders"},
	{Path: "spec.resourceClaims"},
	{Path: "spec.resources.claims"},
	{Path: "spec.os.name", Allow: []string{"linux"}},
	{Path: "spec.securityContext.windowsOptions"},
	{Path: "spec.volumes[*].awsElasticBlockStore"},
	{Path: "spec.volumes[*].azureDisk"},
	{Path: "spec.volumes[*].azureFile"},
	{Path: "spec.volumes[*].cephfs"},
	{Path: "spec.volumes[*].cinder"},
	{Path: "spec.volumes[*].configMap.defaultUser"},
	{Path: "spec.volumes[*].configMap.items[*].user"},
	{Path: "spec.volumes[*].csi"},
	{Path: "spec.volumes[*].downwardAPI.defaultUser"},
	{Path: "spec.volumes[*].downwardAPI.items[*].user"},
	{Path: "spec.volumes[*].fc"},
	{Path: "spec.volumes[*].flexVolume"},
	{Path: "spec.volumes[*].flocker"},
	{Path: "spec.volumes[*].gcePersistentDisk"},
	{Path: "spec.volumes[*].gitRepo"},
	{Path: "spec.volumes[*].glusterfs"},
	{Path: "spec.volumes[*].iscsi"},
	{Path: "spec.volumes[*].photonPersistentDisk"},
	{Path: "spec.volumes[*].portworxVolume"},
	{Path: "spec.volumes[*].projected.defaultUser"},
	{Path: "spec.volumes[*].projected.sources[*].clusterTrustBundle"},
	{Path: "spec.volumes[*].projected.sources[*].configMap.items[*].user"},
	{Path: "spec.volumes[*].projected.sources[*].downwardAPI.items[*].user"},
	{Path: "spec.volumes[*].projected.sources[*].podCertificate"},
	{Path: "spec.volumes[*].projected.sources[*].secret.items[*].user"},
	{Path: "spec.volumes[*].projected.sources[*].serviceAccountToken.user"},
	{Path: "spec.volumes[*].quobyte"},
	{Path: "spec.volumes[*].rbd"},
	{Path: "spec.volumes[*].scaleIO"},
	{Path: "spec.volumes[*].secret.defaultUser"},
	{Path: "spec.volumes[*].secret.items[*].user"},
	{Path: "spec.volumes[*].storageos"},
	{Path: "spec.volumes[*].vsphereVolume"},
}

// unsupportedInPods is made when the first pod is looked at: what is made before main is paid for every container.
var unsupportedInPods = sync.OnceValue(func() []valid.Refusal {
	return slices.Concat(refusedInPods, unsupportedInContainers("spec.initContainers[*]."),
		unsupportedInContainers("spec.containers[*]."), unsupportedInContainers("spec.ephemeralContainers[*]."))
})

func unsupportedInContainers(at string) []valid.Refusal {
	list := []valid.Refusal{
		{Path: "resources.claims"},
		{Path: "volumeMounts[*].bindMountOptions"},
		{Path: "securityContext.windowsOptions"},
	}
	for _, p := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"} {
		list = append(list, valid.Refusal{Path: p + ".httpGet.protocol", Allow: []string{string(corev1.HTTPProtocolHTTP1)}})
		if strings.HasSuffix(p, "Probe") {
			list = append(list, valid.Refusal{Path: p + ".grpc.mode", Allow: []string{string(corev1.GRPCProbeModePlaintext)}})
		}
	}
	for i := range list {
		list[i].Path = at + list[i].Path
	}
	return list
}

var unsupportedInNodes = []valid.Refusal{
	{Path: "spec.configSource"},
	{Path: "spec.podPreemptionPolicy"},
}

var (
	podRefusals  = sync.OnceValue(func() []valid.Lookup { return valid.Resolve(reflect.TypeFor[corev1.Pod](), unsupportedInPods()) })
	nodeRefusals = sync.OnceValue(func() []valid.Lookup { return valid.Resolve(reflect.TypeFor[corev1.Node](), unsupportedInNodes) })
)

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
	errs := valid.Refuse(pod, podRefusals())
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
			errs = append(errs, field.Forbidden(at.Key(string(name)), valid.NotYet))
		}
	}
	return errs
}

// podWarnings says what a pod will not get as it is written.
func podWarnings(pod *corev1.Pod) []string {
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
