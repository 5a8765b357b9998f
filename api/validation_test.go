package api

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api/valid"
)

// wants checks that an error is a 422 with a cause on a field that says a thing; no field means no error.
func wants(t *testing.T, err error, field, text string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != 422 || status.Status().Reason != metav1.StatusReasonInvalid {
		t.Fatalf("want 422 Invalid on %s, got %v", field, err)
	}
	for _, c := range status.Status().Details.Causes {
		if c.Field == field && strings.Contains(c.Message, text) {
			return
		}
	}
	t.Errorf("no cause on %s that says %q: %v", field, text, err)
}

// kindOf finds the kind of an object among those of the core group.
func kindOf(obj Object) *Kind {
	for _, k := range []*Kind{ConfigMaps, Events, Namespaces, Nodes, Pods, PodTemplates, ReplicationControllers, Secrets, ServiceAccounts,
		Services} {
		if k.Is(obj) {
			return k
		}
	}
	panic(fmt.Sprintf("no kind for %T", obj))
}

func fill(obj Object) { kindOf(obj).Default(obj) }

func validate(obj Object) error { return kindOf(obj).Validate(obj) }

func validateUpdate(obj, old Object, sub string) error {
	return kindOf(obj).ValidateUpdate(obj, old, sub)
}

func ptr[T any](v T) *T { return &v }

func first(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }

func security(p *corev1.Pod) *corev1.SecurityContext {
	first(p).SecurityContext = &corev1.SecurityContext{}
	return first(p).SecurityContext
}

func mount(p *corev1.Pod, v corev1.Volume, m ...corev1.VolumeMount) {
	p.Spec.Volumes, first(p).VolumeMounts = append(p.Spec.Volumes, v), m
}

func affinity(p *corev1.Pod, r corev1.NodeSelectorRequirement) {
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{r}}}}}}
}

const (
	term = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	c0   = "spec.containers[0]."
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func localSeccomp(path string) *corev1.SeccompProfile {
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &path}
}

func withSysctls(p *corev1.Pod, names ...string) {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{}
	for _, n := range names {
		p.Spec.SecurityContext.Sysctls = append(p.Spec.SecurityContext.Sysctls, corev1.Sysctl{Name: n, Value: "1"})
	}
}

func whole(p *corev1.Pod, requests, limits corev1.ResourceList) {
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

var podRules = []struct {
	name        string
	change      func(*corev1.Pod)
	field, text string
}{
	{"ordinary", func(*corev1.Pod) {}, "", ""},
	{"name", func(p *corev1.Pod) { p.Name = "A_b" }, "metadata.name", "RFC 1123"},
	{"no name", func(p *corev1.Pod) { p.Name = "" }, "metadata.name", "name or generateName is required"},
	{"label", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b c"} }, "metadata.labels", ""},
	{"no container", func(p *corev1.Pod) { p.Spec.Containers = nil }, "spec.containers", "Required"},
	{"container name", func(p *corev1.Pod) { first(p).Name = "C" }, c0 + "name", "RFC 1123"},
	{"no container name", func(p *corev1.Pod) { first(p).Name = "" }, c0 + "name", "Required"},
	{"two of one name", func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.Containers }, "spec.initContainers[0].name", "Duplicate"},
	{"no image", func(p *corev1.Pod) { first(p).Image = "" }, c0 + "image", "Required"},
	{"image with space", func(p *corev1.Pod) { first(p).Image = " a" }, c0 + "image", "whitespace"},
	{"pull policy", func(p *corev1.Pod) { first(p).ImagePullPolicy = "x" }, c0 + "imagePullPolicy",
		`supported values: "Always", "IfNotPresent", "Never"`},
	{"message policy", func(p *corev1.Pod) { first(p).TerminationMessagePolicy = "x" }, c0 + "terminationMessagePolicy", ""},
	{"no message path", func(p *corev1.Pod) { first(p).TerminationMessagePath = "" }, c0 + "terminationMessagePath", ""},
	{"huge pages", func(p *corev1.Pod) { first(p).Resources.Limits = amounts("hugepages-2Mi", "4Mi", "cpu", "1") }, "", ""},
	{"more CPUs than can be counted", func(p *corev1.Pod) { first(p).Resources.Requests = amounts("cpu", "9223372036854775807") },
		c0 + "resources.requests[cpu]", "must be less than or equal to 1099511627776"},
	{"more memory than can be counted", func(p *corev1.Pod) { first(p).Resources.Requests = amounts("memory", "8E") },
		c0 + "resources.requests[memory]", "must be less than or equal to 9007199254740992"},
	{"a million CPUs", func(p *corev1.Pod) { first(p).Resources.Requests = amounts("cpu", "1000000", "memory", "1Pi") }, "", ""},
	{"huge pages alone", func(p *corev1.Pod) { first(p).Resources.Limits = amounts("hugepages-2Mi", "4Mi") }, c0 + "resources",
		"HugePages require cpu or memory"},
	{"half a huge page", func(p *corev1.Pod) { first(p).Resources.Limits = amounts("hugepages-2Mi", "3Mi", "cpu", "1") },
		c0 + "resources.limits[hugepages-2Mi]", "is not positive integer multiple of hugepages-2Mi"},
	{"huge pages without a limit", func(p *corev1.Pod) { first(p).Resources.Requests = amounts("hugepages-2Mi", "4Mi", "cpu", "1") },
		c0 + "resources.limits", "Limit must be set for non overcommitable resources"},
	{"fewer huge pages", func(p *corev1.Pod) {
		first(p).Resources = corev1.ResourceRequirements{Requests: amounts("hugepages-2Mi", "2Mi", "cpu", "1"),
			Limits: amounts("hugepages-2Mi", "4Mi")}
	}, c0 + "resources.requests", "must be equal to hugepages-2Mi limit of 4Mi"},
	{"whole pod", func(p *corev1.Pod) {
		first(p).Resources.Requests = amounts("cpu", "1")
		whole(p, nil, amounts("cpu", "2", "memory", "1Gi"))
	}, "", ""},
	{"extended", func(p *corev1.Pod) { first(p).Resources.Limits = amounts("example.com/radio", "2") }, "", ""},
	{"half of an extended one", func(p *corev1.Pod) { first(p).Resources.Limits = amounts("example.com/radio", "500m") },
		c0 + "resources.limits[example.com/radio]", "must be an integer"},
	{"extended without a limit", func(p *corev1.Pod) { first(p).Resources.Requests = amounts("example.com/radio", "2") },
		c0 + "resources.limits", "Limit must be set for non overcommitable resources"},
	{"fewer extended than the limit", func(p *corev1.Pod) {
		first(p).Resources = corev1.ResourceRequirements{Requests: amounts("example.com/radio", "1"), Limits: amounts("example.com/radio", "2")}
	}, c0 + "resources.requests", "must be equal to example.com/radio limit of 2"},
	{"a resource of Kubernetes' that is none", func(p *corev1.Pod) { first(p).Resources.Limits = amounts("kubernetes.io/radio", "2") },
		c0 + "resources.limits[kubernetes.io/radio]", "not supported by ledge yet"},
	{"whole pod of disk", func(p *corev1.Pod) { whole(p, amounts("ephemeral-storage", "1"), nil) }, "spec.resources.requests",
		`supported values: "cpu", "hugepages-", "memory"`},
	{"less than its containers", func(p *corev1.Pod) {
		first(p).Resources.Requests = amounts("cpu", "2")
		whole(p, amounts("cpu", "1"), nil)
	}, "spec.resources.requests[cpu]", "greater than or equal to aggregate container requests of 2"},
	{"a container above the pod", func(p *corev1.Pod) {
		first(p).Resources.Limits = amounts("cpu", "2")
		whole(p, amounts("cpu", "3"), amounts("cpu", "1"))
	}, c0 + "resources.limits[cpu]", "less than or equal to pod limits of 1"},
	{"resize policy", func(p *corev1.Pod) {
		first(p).ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "RestartContainer"}}
	}, "", ""},
	{"resize policy of a disk", func(p *corev1.Pod) {
		first(p).ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "ephemeral-storage", RestartPolicy: "NotRequired"}}
	}, c0 + "resizePolicy[0].resourceName", `supported values: "cpu", "memory"`},
	{"resize policy twice", func(p *corev1.Pod) {
		first(p).ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "NotRequired"},
			{ResourceName: "cpu", RestartPolicy: "NotRequired"}}
	}, c0 + "resizePolicy[1]", "Duplicate"},
	{"resize restarts what never restarts", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = "Never"
		first(p).ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "RestartContainer"}}
	}, c0 + "resizePolicy[0]", "must be 'NotRequired' when `restartPolicy` is 'Never'"},
	{"restart policy", func(p *corev1.Pod) { p.Spec.RestartPolicy = "x" }, "spec.restartPolicy", "Unsupported value"},
	{"dns policy", func(p *corev1.Pod) { p.Spec.DNSPolicy = "x" }, "spec.dnsPolicy", ""},
	{"dns none", func(p *corev1.Pod) { p.Spec.DNSPolicy = "None" }, "spec.dnsConfig.nameservers", "at least one DNS nameserver"},
	{"deadline", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(0)) }, "spec.activeDeadlineSeconds",
		"between 1 and 2147483647"},
	{"negative grace is legal", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(int64(-1)) }, "", ""},
	{"port", func(p *corev1.Pod) { first(p).Ports = []corev1.ContainerPort{{ContainerPort: 70000, Protocol: "TCP"}} },
		c0 + "ports[0].containerPort", "between 1 and 65535"},
	{"port name", func(p *corev1.Pod) {
		first(p).Ports = []corev1.ContainerPort{{Name: "UPPER", ContainerPort: 1, Protocol: "TCP"}}
	}, c0 + "ports[0].name", ""},
	{"port names twice", func(p *corev1.Pod) {
		first(p).Ports = []corev1.ContainerPort{{Name: "a", ContainerPort: 1, Protocol: "TCP"}, {Name: "a", ContainerPort: 2, Protocol: "TCP"}}
	}, c0 + "ports[1].name", "Duplicate"},
	{"host port twice", func(p *corev1.Pod) {
		first(p).Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 8, Protocol: "TCP"},
			{ContainerPort: 2, HostPort: 8, Protocol: "TCP"}}
	}, c0 + "ports[1].hostPort", "Duplicate"},
	{"host port of two protocols", func(p *corev1.Pod) {
		first(p).Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 8, Protocol: "TCP"},
			{ContainerPort: 1, HostPort: 8, Protocol: "UDP"}}
	}, "", ""},
	{"host network port", func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		first(p).Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 8, Protocol: "TCP"}}
	}, c0 + "ports[0].containerPort", "must match `hostPort`"},
	{"host ip", func(p *corev1.Pod) {
		first(p).Ports = []corev1.ContainerPort{{ContainerPort: 1, HostIP: "x", Protocol: "TCP"}}
	}, c0 + "ports[0].hostIP", ""},
	{"protocol", func(p *corev1.Pod) { first(p).Ports = []corev1.ContainerPort{{ContainerPort: 1, Protocol: "x"}} }, c0 + "ports[0].protocol",
		""},
	{"env name", func(p *corev1.Pod) { first(p).Env = []corev1.EnvVar{{Name: "a=b"}} }, c0 + "env[0].name", ""},
	{"env both", func(p *corev1.Pod) {
		first(p).Env = []corev1.EnvVar{{Name: "A", Value: "x",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}}
	}, c0 + "env[0].valueFrom", "may not be specified when `value` is not empty"},
	{"env of label", func(p *corev1.Pod) {
		first(p).Env = []corev1.EnvVar{{Name: "A",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels['a.b/c']"}}}}
	}, "", ""},
	{"env of unknown field", func(p *corev1.Pod) {
		first(p).Env = []corev1.EnvVar{{Name: "A",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.x"}}}}
	}, c0 + "env[0].valueFrom.fieldRef.fieldPath", "Unsupported value"},
	{"mount of nothing", func(p *corev1.Pod) { first(p).VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}} },
		c0 + "volumeMounts[0].name", "Not found"},
	{"mount twice", func(p *corev1.Pod) {
		mount(p, corev1.Volume{Name: "v"}, corev1.VolumeMount{Name: "v", MountPath: "/v"}, corev1.VolumeMount{Name: "v", MountPath: "/v"})
	}, c0 + "volumeMounts[1].mountPath", "must be unique"},
	{"device", func(p *corev1.Pod) { blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/b"}) }, "", ""},
	{"device elsewhere", func(p *corev1.Pod) { blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/x"}) }, "", ""},
	{"device without a name", func(p *corev1.Pod) { blocks(p, corev1.VolumeDevice{DevicePath: "/dev/b"}) }, c0 + "volumeDevices[0].name", "Required"},
	{"device of no volume", func(p *corev1.Pod) { blocks(p, corev1.VolumeDevice{Name: "x", DevicePath: "/dev/b"}) }, c0 + "volumeDevices[0].name",
		"Not found"},
	{"device of no claim", func(p *corev1.Pod) {
		blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/b"})
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}, c0 + "volumeDevices[0].name", "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"},
	{"device nowhere", func(p *corev1.Pod) { blocks(p, corev1.VolumeDevice{Name: "b"}) }, c0 + "volumeDevices[0].devicePath", "Required"},
	{"device above", func(p *corev1.Pod) { blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/../b"}) },
		c0 + "volumeDevices[0].devicePath", "can not contain backsteps ('..')"},
	{"device twice", func(p *corev1.Pod) {
		blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/b"}, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/c"})
	}, c0 + "volumeDevices[1].name", "must be unique"},
	{"two devices at a path", func(p *corev1.Pod) {
		blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/b"}, corev1.VolumeDevice{Name: "c", DevicePath: "/dev/b"})
	}, c0 + "volumeDevices[1].devicePath", "must be unique"},
	{"device and directory", func(p *corev1.Pod) {
		blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/b"})
		first(p).VolumeMounts = []corev1.VolumeMount{{Name: "b", MountPath: "/b"}}
	}, c0 + "volumeMounts[0].name", "must not already exist in volumeDevices"},
	{"directory and device", func(p *corev1.Pod) {
		blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/b"})
		first(p).VolumeMounts = []corev1.VolumeMount{{Name: "b", MountPath: "/b"}}
	}, c0 + "volumeDevices[0].name", "must not already exist in volumeMounts"},
	{"directory where a device is", func(p *corev1.Pod) {
		blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/b"})
		first(p).VolumeMounts = []corev1.VolumeMount{{Name: "c", MountPath: "/b"}}
	}, c0 + "volumeMounts[0].mountPath", "must not already exist as a path in volumeDevices"},
	{"device where a directory is", func(p *corev1.Pod) {
		blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/b"})
		first(p).VolumeMounts = []corev1.VolumeMount{{Name: "c", MountPath: "/b"}}
	}, c0 + "volumeDevices[0].devicePath", "must not already exist as a path in volumeMounts"},
	{"users of its own and a device", func(p *corev1.Pod) {
		p.Spec.HostUsers = ptr(false)
		blocks(p, corev1.VolumeDevice{Name: "b", DevicePath: "/dev/b"})
	}, c0 + "volumeDevices", "when `hostUsers` is false"},
	{"volume twice", func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v"}, {Name: "v"}} }, "spec.volumes[1].name", "Duplicate"},
	{"hostPath up", func(p *corev1.Pod) {
		mount(p, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/a/../b"}}})
	}, "spec.volumes[0].hostPath.path", "'..'"},
	{"nfs without a server", func(p *corev1.Pod) {
		mount(p, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Path: "/a"}}})
	}, "spec.volumes[0].nfs.server", "Required"},
	{"nfs at no path", func(p *corev1.Pod) {
		mount(p, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "a"}}})
	}, "spec.volumes[0].nfs.path", "absolute"},
	{"hostPath type", func(p *corev1.Pod) {
		mount(p, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/a",
			Type: ptr(corev1.HostPathType("x"))}}})
	}, "spec.volumes[0].hostPath.type", ""},
	{"medium of huge pages", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}}}
	}, "", ""},
	{"medium of odd pages", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-x"}}}}
	}, "spec.volumes[0].emptyDir.medium", "must name a page size"},
	{"medium", func(p *corev1.Pod) {
		mount(p, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Other"}}})
	}, "spec.volumes[0].emptyDir.medium", ""},
	{"request over limit", func(p *corev1.Pod) {
		first(p).Resources = corev1.ResourceRequirements{Limits: res("1", ""), Requests: res("2", "")}
	}, c0 + "resources.requests", "must be less than or equal to cpu limit of 1"},
	{"negative", func(p *corev1.Pod) { first(p).Resources.Limits = res("-1", "") }, c0 + "resources.limits[cpu]",
		"greater than or equal to 0"},
	{"user", func(p *corev1.Pod) { security(p).RunAsUser = ptr(int64(-1)) }, c0 + "securityContext.runAsUser", ""},
	{"pod group", func(p *corev1.Pod) { p.Spec.SecurityContext.SupplementalGroups = []int64{1 << 40} },
		"spec.securityContext.supplementalGroups[0]", ""},
	{"escalation", func(p *corev1.Pod) {
		s := security(p)
		s.AllowPrivilegeEscalation, s.Privileged = ptr(false), ptr(true)
	}, c0 + "securityContext", "cannot set `allowPrivilegeEscalation` to false"},
	{"escalation by capability", func(p *corev1.Pod) {
		s := security(p)
		s.AllowPrivilegeEscalation, s.Capabilities = ptr(false), &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_ADMIN"}}
	}, c0 + "securityContext", "CAP_SYS_ADMIN"},
	{"procMount", func(p *corev1.Pod) { security(p).ProcMount = ptr(corev1.ProcMountType("x")) }, c0 + "securityContext.procMount", ""},
	{"procMount unmasked", func(p *corev1.Pod) { security(p).ProcMount = ptr(corev1.UnmaskedProcMount) }, c0 + "securityContext.procMount",
		"`hostUsers` must be false to use `Unmasked`"},
	{"seccomp of the board", func(p *corev1.Pod) { security(p).SeccompProfile = localSeccomp("profiles/a.json") }, "", ""},
	{"seccomp from above", func(p *corev1.Pod) { security(p).SeccompProfile = localSeccomp("../a.json") },
		c0 + "securityContext.seccompProfile.localhostProfile", "must not contain '..'"},
	{"seccomp from anywhere", func(p *corev1.Pod) { security(p).SeccompProfile = localSeccomp("/etc/a.json") },
		c0 + "securityContext.seccompProfile.localhostProfile", "must be a relative path"},
	{"users of its own", func(p *corev1.Pod) {
		p.Spec.HostUsers = ptr(false)
		security(p).ProcMount = ptr(corev1.UnmaskedProcMount)
	}, "", ""},
	{"users of its own on the host's network", func(p *corev1.Pod) { p.Spec.HostUsers, p.Spec.HostNetwork = ptr(false), true },
		"spec.hostNetwork", "when `hostUsers` is false"},
	{"users of its own and the host's processes", func(p *corev1.Pod) { p.Spec.HostUsers, p.Spec.HostPID = ptr(false), true }, "spec.hostPID",
		"when `hostUsers` is false"},
	{"users of its own and the host's IPC", func(p *corev1.Pod) { p.Spec.HostUsers, p.Spec.HostIPC = ptr(false), true }, "spec.hostIPC",
		"when `hostUsers` is false"},
	{"shared processes", func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = ptr(true) }, "", ""},
	{"shared and the host's processes", func(p *corev1.Pod) { p.Spec.ShareProcessNamespace, p.Spec.HostPID = ptr(true), true },
		"spec.shareProcessNamespace", "ShareProcessNamespace and HostPID cannot both be enabled"},
	{"sysctl", func(p *corev1.Pod) { withSysctls(p, "net.ipv4.tcp_syncookies", "kernel/shm_rmid_forced") }, "", ""},
	{"sysctl without a name", func(p *corev1.Pod) { withSysctls(p, "") }, "spec.securityContext.sysctls[0].name", "Required"},
	{"sysctl of no form", func(p *corev1.Pod) { withSysctls(p, "net..x") }, "spec.securityContext.sysctls[0].name", "match regex"},
	{"sysctl twice", func(p *corev1.Pod) { withSysctls(p, "net.core.x", "net/core/x") }, "spec.securityContext.sysctls[1].name", "Duplicate"},
	{"sysctl of the host's network", func(p *corev1.Pod) {
		withSysctls(p, "net/core/x")
		p.Spec.HostNetwork = true
	}, "spec.securityContext.sysctls[0].name", "may not be specified when 'hostNetwork' is true"},
	{"sysctl of the host's IPC", func(p *corev1.Pod) {
		withSysctls(p, "kernel.msgmax")
		p.Spec.HostIPC = true
	}, "spec.securityContext.sysctls[0].name", "may not be specified when 'hostIPC' is true"},
	{"SELinux", func(p *corev1.Pod) { security(p).SELinuxOptions = &corev1.SELinuxOptions{Level: "s0"} }, "", ""},
	{"SELinux change policy", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxChangePolicy: ptr(corev1.PodSELinuxChangePolicy("x"))}
	}, "spec.securityContext.seLinuxChangePolicy", "Unsupported value"},
	{"seccomp profile", func(p *corev1.Pod) {
		security(p).SeccompProfile = &corev1.SeccompProfile{Type: "RuntimeDefault", LocalhostProfile: ptr("x")}
	}, c0 + "securityContext.seccompProfile.localhostProfile", "can only be set"},
	{"seccomp type", func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: "x"} },
		"spec.securityContext.seccompProfile.type", ""},
	{"hostname", func(p *corev1.Pod) { p.Spec.Hostname = "a.b" }, "spec.hostname", ""},
	{"nodeSelector", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a b": "c"} }, "spec.nodeSelector", ""},
	{"affinity operator", func(p *corev1.Pod) { affinity(p, corev1.NodeSelectorRequirement{Key: "a", Operator: "x"}) },
		term + "[0].matchExpressions[0].operator", "not a valid"},
	{"affinity In", func(p *corev1.Pod) { affinity(p, corev1.NodeSelectorRequirement{Key: "a", Operator: "In"}) },
		term + "[0].matchExpressions[0].values", "must be specified"},
	{"affinity Exists", func(p *corev1.Pod) {
		affinity(p, corev1.NodeSelectorRequirement{Key: "a", Operator: "Exists", Values: []string{"b"}})
	}, term + "[0].matchExpressions[0].values", "may not be specified"},
	{"affinity Gt", func(p *corev1.Pod) {
		affinity(p, corev1.NodeSelectorRequirement{Key: "a", Operator: "Gt", Values: []string{"b"}})
	}, term + "[0].matchExpressions[0].values[0]", "must be an integer"},
	{"affinity without terms", func(p *corev1.Pod) {
		affinity(p, corev1.NodeSelectorRequirement{})
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = nil
	}, term, "at least one node selector term"},
	{"toleration of everything", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} }, "", ""},
	{"toleration without key", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{}} }, "spec.tolerations[0].operator", "Exists"},
	// N-3.31
	{"toleration operator", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Lt", Value: "1"}} },
		"spec.tolerations[0].operator", "Unsupported"},
	{"toleration seconds", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Effect: "NoSchedule", TolerationSeconds: ptr(int64(1))}}
	}, "spec.tolerations[0].effect", "NoExecute"},
	{"preemption policy", func(p *corev1.Pod) { p.Spec.PreemptionPolicy = ptr(corev1.PreemptionPolicy("x")) }, "spec.preemptionPolicy", ""},
	{"mirror without node", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
		"metadata.annotations[kubernetes.io/config.mirror]", "must set spec.nodeName"},
	{"not yet", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}} }, "spec.resourceClaims", valid.NotYet},
	{"runtime class", func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr("a.b") }, "", ""},
	{"runtime class of an odd name", func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr("A") }, "spec.runtimeClassName", "RFC 1123"},
	{"overhead below nothing", func(p *corev1.Pod) { p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("-1")} },
		"spec.overhead[cpu]", "greater than or equal to 0"},
	{"overhead of what is not there", func(p *corev1.Pod) {
		p.Spec.Overhead = corev1.ResourceList{"kubernetes.io/y": resource.MustParse("1")}
	}, "spec.overhead[kubernetes.io/y]", valid.NotYet},
}

func TestValidatePod(t *testing.T) {
	for _, tc := range podRules {
		t.Run(tc.name, func(t *testing.T) {
			p := validPod()
			tc.change(p)
			wants(t, validate(p), tc.field, tc.text)
		})
	}
}

// An object with thousands of faults is refused in few words.
func TestManyFaults(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}}
	p.Spec.Containers = make([]corev1.Container, 4000)
	err := validate(p)
	var said *apierrors.StatusError
	if !errors.As(err, &said) || len(said.ErrStatus.Details.Causes) != maxProblems ||
		!regexp.MustCompile(`\] and \d{4,} more$`).MatchString(err.Error()) {
		t.Errorf("%v", err)
	}
	p.Spec.Containers = make([]corev1.Container, 1)
	if err := validate(p); err == nil || strings.Contains(err.Error(), "more") {
		t.Errorf("few faults: %v", err)
	}
}

func TestValidatePodUpdate(t *testing.T) { // N-7.3
	for _, tc := range []struct {
		name        string
		old, change func(*corev1.Pod)
		field, text string
	}{
		{"nothing", nil, func(*corev1.Pod) {}, "", ""},
		{"labels", nil, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, "", ""},
		{"image", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "b" }, "", ""},
		{"empty image", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "" }, "spec.containers[0].image", ""},
		{"command", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }, "spec",
			"pod updates may not change fields other than"},
		{"command named", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }, "spec",
			"\nspec.containers[0].command: unset -> [\"x\"]"},
		{"node", nil, func(p *corev1.Pod) { p.Spec.NodeName = "n" }, "spec", "\nspec.nodeName: unset -> \"n\""},
		{"many", nil, func(p *corev1.Pod) {
			p.Spec.NodeName, p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SchedulerName = "n", "h", "s", "x"
			p.Spec.HostPID, p.Spec.HostIPC, p.Spec.ServiceAccountName = true, true, strings.Repeat("é", 99)
		}, "spec", "\nand 2 more"},
		{"one more container", nil, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) },
			"spec.containers", "add or remove"},
		{"deadline set", nil, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) }, "", ""},
		{"deadline shorter", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(4)) }, "", ""},
		{"deadline longer", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(6)) }, "spec.activeDeadlineSeconds", "less than or equal"},
		{"deadline removed", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }, "spec.activeDeadlineSeconds", "nil"},
		{"toleration added", nil, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}} }, "", ""},
		{"toleration removed", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}} },
			func(p *corev1.Pod) { p.Spec.Tolerations = nil }, "spec.tolerations", "can not be modified"},
		{"grace", nil, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(int64(1)) }, "spec", "pod updates may not"},
		{"grace from negative", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(int64(-1)) },
			func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(int64(1)) }, "", ""},
		{"mirror", nil, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} },
			"metadata.annotations[kubernetes.io/config.mirror]", "mirror"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old := validPod()
			old.ResourceVersion = "1"
			if tc.old != nil {
				tc.old(old)
			}
			p := old.DeepCopy()
			tc.change(p)
			wants(t, validateUpdate(p, old, ""), tc.field, tc.text)
		})
	}
	old := validPod()
	old.ResourceVersion = "1"
	old.Status.QOSClass = corev1.PodQOSBestEffort
	p := old.DeepCopy()
	p.Status.QOSClass = corev1.PodQOSBurstable
	wants(t, validateUpdate(p, old, "status"), "status.qosClass", "immutable") // N-7.37
	p = old.DeepCopy()
	p.Status.PodIPs = []corev1.PodIP{{IP: "x"}}
	wants(t, validateUpdate(p, old, "status"), "status.podIPs[0].ip", "")
}

func TestValidateNode(t *testing.T) {
	taint := corev1.Taint{Key: "a", Effect: "NoSchedule"}
	for _, tc := range []struct {
		name        string
		old, change func(*corev1.Node)
		field, text string
	}{
		{"an address is a name", nil, func(n *corev1.Node) { n.Name = "10.240.79.157" }, "", ""}, // N-1.2
		{"long part", nil, func(n *corev1.Node) { n.Name = strings.Repeat("a", 100) }, "", ""},
		{"too long", nil, func(n *corev1.Node) { n.Name = strings.Repeat("a", 254) }, "metadata.name", "253"},
		{"name", nil, func(n *corev1.Node) { n.Name = "N" }, "metadata.name", ""}, // N-1.3
		{"namespace", nil, func(n *corev1.Node) { n.Namespace = "x" }, "metadata.namespace", "not allowed on this type"},
		{"negative", nil, func(n *corev1.Node) { n.Status.Capacity = res("-1", "") }, "status.capacity[cpu]", ""}, // N-1.10
		{"taint twice", nil, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint, taint} }, "spec.taints[1]", "unique by key and effect"},
		{"taint effect", nil, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "x"}} }, "spec.taints[0].effect", ""},
		{"two ranges of a family", nil, func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.0.0/24", "10.0.1.0/24"} }, "spec.podCIDRs",
			"each IP family"},
		{"bad range", nil, func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"x"} }, "spec.podCIDRs[0]", "CIDR"},
		{"address twice", nil, func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: "InternalIP", Address: "1"}, {Type: "InternalIP", Address: "1"}}
		}, "status.addresses[1]", "Duplicate"},
		{"configSource", nil, func(n *corev1.Node) {
			set(reflect.ValueOf(n), []string{"spec", "configSource"}, "")
		}, "spec.configSource", valid.NotYet},
		{"range set", func(*corev1.Node) {}, func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.0.0/24"} }, "", ""}, // N-1.7
		{"range changed", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.0.0/24"} },
			func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.1.0/24"} }, "spec.podCIDRs",
			`node updates may not change podCIDRs except from "" to valid`},
		{"singular range changed", func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.0.0/24", []string{"10.0.0.0/24"} },
			func(n *corev1.Node) { n.Spec.PodCIDR = "10.0.1.0/24" }, "spec.podCIDR", `node updates may not change podCIDR except from "" to valid`},
		{"ranges that differ", nil, func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.1.0/24", []string{"10.0.0.0/24"} },
			"spec.podCIDRs[0]", "must be the same as podCIDR, 10.0.1.0/24"},
		{"provider set", func(*corev1.Node) {}, func(n *corev1.Node) { n.Spec.ProviderID = "x" }, "", ""},
		{"provider changed", func(n *corev1.Node) { n.Spec.ProviderID = "y" }, func(n *corev1.Node) { n.Spec.ProviderID = "" }, "spec.providerID",
			"may not change"},
		{"cordon", func(*corev1.Node) {}, func(n *corev1.Node) { n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{taint} }, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}
			if tc.old == nil {
				tc.change(n)
				wants(t, validate(n), tc.field, tc.text)
				return
			}
			tc.old(n)
			old := n.DeepCopy()
			tc.change(n)
			wants(t, validateUpdate(n, old, ""), tc.field, tc.text)
		})
	}
}

func TestValidateRest(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "x", Namespace: "ns"}
	big := strings.Repeat("x", maxPayload+1)
	for _, tc := range []struct {
		name        string
		obj         Object
		field, text string
	}{
		{"namespace", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}}, "metadata.name", ""},
		{"namespace finalizer", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"x"}}}, "spec.finalizers[0]", "fully qualified"},
		{"config key", &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a/b": ""}}, "data[a/b]", ""},
		{"config both", &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"a": nil}}, "data[a]",
			"binaryData"},
		{"config size", &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": big}}, "data", "Too long"},
		{"secret size", &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": []byte(big)}}, "data", ""},
		{"secret tls", &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeTLS}, "data[tls.key]", "Required"},
		{"secret docker", &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{".dockerconfigjson": []byte("{")}}, "data[.dockerconfigjson]", "redacted"},
		{"secret basic", &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeBasicAuth}, "data[username]", ""},
		{"secret token", &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeServiceAccountToken},
			"metadata.annotations[kubernetes.io/service-account.name]", ""},
		{"event elsewhere", &corev1.Event{ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: "y"}}, "involvedObject.namespace",
			"does not match"},
		{"event of a node", &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"}}, "", ""}, // N-11.38
		{"event of a node elsewhere", &corev1.Event{ObjectMeta: meta}, "involvedObject.namespace", ""},
		{"event reason", &corev1.Event{ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: "ns"}, Reason: big}, "reason", ""},
	} {
		t.Run(tc.name, func(t *testing.T) { wants(t, validate(tc.obj), tc.field, tc.text) })
	}
}

func TestValidateRestUpdate(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "x", Namespace: "ns", ResourceVersion: "1"}
	frozenMap := &corev1.ConfigMap{ObjectMeta: meta, Immutable: ptr(true), Data: map[string]string{"a": "b"}}
	secret := &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque, Immutable: ptr(true)}
	edit := func(obj Object, change func(Object)) (Object, Object) {
		c := obj.DeepCopyObject().(Object)
		change(c)
		return c, obj
	}
	for _, tc := range []struct {
		old    Object
		change func(Object)
		field  string
	}{
		{frozenMap, func(o Object) { o.SetLabels(map[string]string{"a": "b"}) }, ""},
		{frozenMap, func(o Object) { o.(*corev1.ConfigMap).Data["a"] = "c" }, "data"},
		{frozenMap, func(o Object) { o.(*corev1.ConfigMap).Immutable = nil }, "immutable"},
		{secret, func(o Object) { o.(*corev1.Secret).Type = "x" }, "type"},
		{secret, func(o Object) { o.(*corev1.Secret).Data = map[string][]byte{"a": nil} }, "data"},
	} {
		obj, old := edit(tc.old, tc.change)
		wants(t, validateUpdate(obj, old, ""), tc.field, "")
	}
}

// blocks gives the first container devices, of a pod with the claims b and c.
func blocks(p *corev1.Pod, list ...corev1.VolumeDevice) {
	for _, name := range []string{"b", "c"} {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
	first(p).VolumeDevices = list
}
