//lint:file-ignore SA1019 Endpoints are shown, too

package httpd

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
	"ledge/api/batch"
	"ledge/api/coordination"
	"ledge/api/discovery"
	"ledge/api/events"
	"ledge/api/kinds"
	"ledge/api/networking"
	apinode "ledge/api/node"
	"ledge/api/policy"
	"ledge/api/rbac"
	"ledge/api/scheduling"
	"ledge/api/storage"
	"ledge/api/table"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file under testdata, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (run with -update to accept):\n%s", path, got)
	}
}

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func named(name string, d time.Duration) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default", UID: "u-1", ResourceVersion: "7", CreationTimestamp: ago(d)}
}

func ptr[T any](v T) *T { return &v }

// samples are objects of every kind, plain ones and ones with nothing in them.
func claimSamples() []api.Object {
	gi := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	bound := &corev1.PersistentVolumeClaim{ObjectMeta: named("data", time.Hour), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-1",
		StorageClassName: ptr("local"), VolumeMode: ptr(corev1.PersistentVolumeFilesystem)}, Status: corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: gi, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce}}}
	going := bound.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: now}
	return []api.Object{bound, going, &corev1.PersistentVolumeClaim{ObjectMeta: named("waits", time.Minute),
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}}
}

func volumeSamples() []api.Object {
	v := &corev1.PersistentVolume{ObjectMeta: named("pvc-1", time.Hour), Spec: corev1.PersistentVolumeSpec{StorageClassName: "local",
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, VolumeMode: ptr(corev1.PersistentVolumeBlock),
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod, corev1.ReadOnlyMany},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, ClaimRef: &corev1.ObjectReference{Namespace: "team", Name: "data"}},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased, Reason: "Because"}}
	return []api.Object{v, &corev1.PersistentVolume{}}
}

func samples() map[*api.Kind][]api.Object {
	node := &corev1.Node{ObjectMeta: named("board", 90*time.Minute)}
	node.Labels = map[string]string{"node-role.kubernetes.io/edge": "", "kubernetes.io/role": "camera", "node-role.kubernetes.io/": "x"}
	node.Spec.Unschedulable = true
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "board"},
		{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.37.2+ledge", OSImage: "Debian", KernelVersion: "6.12.1",
		Architecture: "arm64", ContainerRuntimeVersion: "ledge://1"}
	lost := &corev1.Node{ObjectMeta: named("lost", 3*24*time.Hour)}
	lost.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	down := &corev1.Node{ObjectMeta: named("down", 400*24*time.Hour)}
	down.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}

	pod := &corev1.Pod{ObjectMeta: named("web", 65*time.Second)}
	pod.Spec.NodeName = "board"
	pod.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b"}}
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x"}, {ConditionType: "y"}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.4.0.2"}}, NominatedNodeName: "other",
		Conditions: []corev1.PodCondition{{Type: "x", Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", Ready: true, State: running(), RestartCount: 2, LastTerminationState: ended(1, "Error", 10*time.Minute)},
			{Name: "b", State: running(), RestartCount: 1, LastTerminationState: ended(1, "Error", 20*time.Minute)},
		}}
	gone := &corev1.Pod{ObjectMeta: named("gone", time.Hour), Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}

	old := &corev1.Event{ObjectMeta: named("web.1", time.Hour), FirstTimestamp: ago(time.Hour), LastTimestamp: ago(time.Minute), Count: 5,
		Type: "Warning", Reason: "BackOff", Message: " restarting\n",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web", FieldPath: "spec.containers{a}"},
		Source:         corev1.EventSource{Component: "kubelet", Host: "board"}}
	newer := &corev1.Event{ObjectMeta: named("web.2", time.Hour), EventTime: metav1.NewMicroTime(now.Add(-2 * time.Hour)), Type: "Normal",
		Series: &corev1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(now.Add(-3 * time.Second))}, Reason: "Pulled",
		ReportingController: "ledge", ReportingInstance: "board"}
	service := &corev1.Service{ObjectMeta: named("kubernetes", time.Hour), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP,
		ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}},
		Selector: map[string]string{"b": "2", "a": "1"}}}
	onNodes, balanced, pending, elsewhere := service.DeepCopy(), service.DeepCopy(), service.DeepCopy(), service.DeepCopy()
	onNodes.Spec.Type, onNodes.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30443
	balanced.Spec.Type, pending.Spec.Type = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.168.1.8"}, {Hostname: "board.local"}, {IP: "192.168.1.7"}}
	elsewhere.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	behind := &corev1.Endpoints{ObjectMeta: named("web", time.Hour), Subsets: []corev1.EndpointSubset{
		{Addresses: []corev1.EndpointAddress{{IP: "10.42.0.2"}, {IP: "10.42.0.3"}}, Ports: []corev1.EndpointPort{{Port: 80}, {Port: 443}}},
		{Addresses: []corev1.EndpointAddress{{IP: "10.42.0.4"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.42.0.5"}}}}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: named("web-x7b2c", time.Hour), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.2", "10.42.0.3"}}, {Addresses: []string{"10.42.0.4", "10.42.0.5"}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(80))}, {Name: ptr("any")}}}
	ownClass := &networkingv1.IngressClass{ObjectMeta: named("ledge", time.Hour), Spec: networkingv1.IngressClassSpec{
		Controller: "ledge.local/ingress"}}
	ownClass.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	otherClass := &networkingv1.IngressClass{ObjectMeta: named("other", time.Hour), Spec: networkingv1.IngressClassSpec{Controller: "x.io/y",
		Parameters: &networkingv1.IngressClassParametersReference{APIGroup: ptr("x.io"), Kind: "Thing", Name: "it"}}}
	way := &networkingv1.Ingress{ObjectMeta: named("web", time.Hour), Spec: networkingv1.IngressSpec{IngressClassName: ptr("ledge"),
		Rules: []networkingv1.IngressRule{{Host: "a.example"}, {}, {Host: "b.example"}, {Host: "c.example"}, {Host: "d.example"}},
		TLS:   []networkingv1.IngressTLS{{SecretName: "tls"}}}}
	way.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.168.1.8"}, {Hostname: "board.local"}, {IP: "192.168.1.7"}}
	plainWay := &networkingv1.Ingress{ObjectMeta: named("plain", time.Hour), Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: "a.example"}}}}
	template := &corev1.PodTemplate{ObjectMeta: named("t", time.Hour), Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "x"}, {Name: "b", Image: "y"}}}}}
	replicated := &corev1.ReplicationController{ObjectMeta: named("web", time.Hour),
		Spec: corev1.ReplicationControllerSpec{Replicas: ptr(int32(3)),
			Selector: map[string]string{"app": "web"}, Template: &template.Template},
		Status: corev1.ReplicationControllerStatus{Replicas: 2, ReadyReplicas: 1}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	deployed := &appsv1.Deployment{ObjectMeta: named("web", time.Hour),
		Spec: appsv1.DeploymentSpec{Replicas: ptr(int32(3)), Selector: selector,
			Template: template.Template}, Status: appsv1.DeploymentStatus{Replicas: 4, ReadyReplicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2}}
	set := &appsv1.ReplicaSet{ObjectMeta: named("web-5d8c", time.Hour),
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr(int32(3)), Selector: selector,
			Template: template.Template}, Status: appsv1.ReplicaSetStatus{Replicas: 2, ReadyReplicas: 1}}
	ordered := &appsv1.StatefulSet{ObjectMeta: named("web", time.Hour),
		Spec:   appsv1.StatefulSetSpec{Replicas: ptr(int32(3)), Template: template.Template},
		Status: appsv1.StatefulSetStatus{Replicas: 3, ReadyReplicas: 2}}
	daemons := &appsv1.DaemonSet{ObjectMeta: named("web", time.Hour),
		Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template.Template},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 5, CurrentNumberScheduled: 4, NumberReady: 3, UpdatedNumberScheduled: 2,
			NumberAvailable: 1}}
	daemons.Spec.Template.Spec.NodeSelector = map[string]string{"kind": "camera"}
	revision := &appsv1.ControllerRevision{ObjectMeta: named("web-5d8c", time.Hour), Revision: 7}
	revision.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", Controller: ptr(true)}}
	job := &batchv1.Job{ObjectMeta: named("work", time.Hour),
		Spec: batchv1.JobSpec{Completions: ptr(int32(5)), Parallelism: ptr(int32(2)), Selector: selector,
			Template: template.Template}, Status: batchv1.JobStatus{Succeeded: 3, StartTime: ptr(ago(90 * time.Second))}}
	cron := &batchv1.CronJob{ObjectMeta: named("nightly", time.Hour),
		Spec:   batchv1.CronJobSpec{Schedule: "0 3 * * *", TimeZone: ptr("Europe/Berlin"), Suspend: ptr(false)},
		Status: batchv1.CronJobStatus{Active: []corev1.ObjectReference{{Name: "nightly-1"}}, LastScheduleTime: ptr(ago(90 * time.Second))}}
	cron.Spec.JobTemplate.Spec.Template = template.Template
	scaled := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: named("web", time.Hour),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr(int32(1)), MaxReplicas: 5,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"},
			Metrics: []autoscalingv2.MetricSpec{{Type: "Resource",
				Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: autoscalingv2.MetricTarget{AverageUtilization: ptr(int32(50))}}}}},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 3, CurrentMetrics: []autoscalingv2.MetricStatus{{Type: "Resource",
			Resource: &autoscalingv2.ResourceMetricStatus{Name: "cpu",
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: ptr(int32(49))}}}}}}
	amount := resource.MustParse
	bounded := &corev1.ResourceQuota{ObjectMeta: named("team", time.Hour), Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{"pods": amount("4"), "requests.cpu": amount("2"), "limits.memory": amount("1Gi"), "limits.cpu": amount("4")},
		Used: corev1.ResourceList{"pods": amount("1"), "requests.cpu": amount("250m"), "limits.memory": amount("64Mi")}}}
	return map[*api.Kind][]api.Object{
		api.LimitRanges:    {&corev1.LimitRange{ObjectMeta: named("team", time.Hour)}},
		api.ResourceQuotas: {bounded, &corev1.ResourceQuota{}},

		autoscaling.HorizontalPodAutoscalers:   {scaled, &autoscalingv2.HorizontalPodAutoscaler{}},
		autoscaling.HorizontalPodAutoscalersV1: {autoscaling.HorizontalPodAutoscalersV1.View.Show(scaled)},

		batch.CronJobs:             {cron, &batchv1.CronJob{}},
		batch.Jobs:                 {job, &batchv1.Job{}},
		apps.ControllerRevisions:   {revision, &appsv1.ControllerRevision{}},
		apps.DaemonSets:            {daemons, &appsv1.DaemonSet{}},
		apps.StatefulSets:          {ordered, &appsv1.StatefulSet{}},
		apps.Deployments:           {deployed, &appsv1.Deployment{}},
		apps.ReplicaSets:           {set, &appsv1.ReplicaSet{}},
		api.ReplicationControllers: {replicated, &corev1.ReplicationController{}},
		api.Services:               {service, onNodes, balanced, pending, elsewhere, &corev1.Service{}},
		api.Endpoints:              {behind, &corev1.Endpoints{}},
		discovery.EndpointSlices:   {slice, &discoveryv1.EndpointSlice{}},
		networking.IngressClasses:  {ownClass, otherClass, &networkingv1.IngressClass{}},
		networking.Ingresses:       {way, plainWay, &networkingv1.Ingress{}},
		networking.IPAddresses: {&networkingv1.IPAddress{ObjectMeta: named("10.43.0.1", time.Hour), Spec: networkingv1.IPAddressSpec{
			ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "kubernetes"}}}, &networkingv1.IPAddress{}},
		networking.NetworkPolicies: {&networkingv1.NetworkPolicy{ObjectMeta: named("web", time.Hour), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}, &networkingv1.NetworkPolicy{}},
		networking.ServiceCIDRs: {&networkingv1.ServiceCIDR{ObjectMeta: named("kubernetes", time.Hour),
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.43.0.0/16", "fd43::/112"}}}},
		api.PersistentVolumeClaims: claimSamples(),
		api.PersistentVolumes:      volumeSamples(),
		storage.StorageClasses:     {&storagev1.StorageClass{Provisioner: "x.io/y"}, storage.Card()},
		storage.CSIDrivers: {&storagev1.CSIDriver{ObjectMeta: named("x.io", time.Hour), Spec: storagev1.CSIDriverSpec{
			AttachRequired: ptr(false), PodInfoOnMount: ptr(true), StorageCapacity: ptr(true), RequiresRepublish: ptr(true),
			TokenRequests:        []storagev1.TokenRequest{{Audience: "a"}, {Audience: "b"}},
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{"Persistent", "Ephemeral"}}}, &storagev1.CSIDriver{}},
		storage.CSINodes: {&storagev1.CSINode{ObjectMeta: named("board", time.Hour), Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: "x.io"}, {Name: "y.io"}}}}, &storagev1.CSINode{}},
		storage.CSIStorageCapacities: {&storagev1.CSIStorageCapacity{ObjectMeta: named("x", time.Hour), StorageClassName: "c",
			Capacity: ptr(resource.MustParse("3Gi"))}, &storagev1.CSIStorageCapacity{}},
		storage.VolumeAttachments: {&storagev1.VolumeAttachment{ObjectMeta: named("x", time.Hour), Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "x.io", NodeName: "board", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr("v")}},
			Status: storagev1.VolumeAttachmentStatus{Attached: true}}, &storagev1.VolumeAttachment{}},
		storage.VolumeAttributesClasses: {&storagev1.VolumeAttributesClass{ObjectMeta: named("gold", time.Hour), DriverName: "x.io"},
			&storagev1.VolumeAttributesClass{}},
		api.ServiceAccounts: {&corev1.ServiceAccount{ObjectMeta: named("default", time.Hour),
			Secrets: []corev1.ObjectReference{{Name: "s"}}}},
		api.PodTemplates: {template, &corev1.PodTemplate{}},
		policy.PodDisruptionBudgets: {
			&policyv1.PodDisruptionBudget{ObjectMeta: named("web", time.Hour),
				Spec:   policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt32(2))},
				Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}},
			&policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr(intstr.FromString("25%"))}}},
		apinode.RuntimeClasses: {&nodev1.RuntimeClass{ObjectMeta: named("r", time.Hour), Handler: "ledge"}},
		api.Nodes:              {node, lost, down, &corev1.Node{}},
		api.Pods:               {pod, gone, &corev1.Pod{}},
		api.Events:             {old, newer, &corev1.Event{}},
		api.Namespaces: {&corev1.Namespace{ObjectMeta: named("default", time.Hour),
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}},
		api.ConfigMaps: {&corev1.ConfigMap{ObjectMeta: named("c", time.Hour), Data: map[string]string{"a": ""},
			BinaryData: map[string][]byte{"b": nil}}, &corev1.ConfigMap{}},
		api.Secrets: {&corev1.Secret{ObjectMeta: named("s", time.Hour), Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{"a": nil}}},
		coordination.Leases: {&coordinationv1.Lease{ObjectMeta: named("board", time.Hour),
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr("board")}}, &coordinationv1.Lease{}},
		rbac.ClusterRoles: {&rbacv1.ClusterRole{ObjectMeta: named("view", time.Hour)}},
		rbac.Roles:        {&rbacv1.Role{ObjectMeta: named("worker", time.Hour)}},
		rbac.RoleBindings: {&rbacv1.RoleBinding{ObjectMeta: named("b", time.Hour), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}, {Kind: "User", Name: "eve"},
				{Kind: "ServiceAccount", Namespace: "n", Name: "a"}}}},
		rbac.ClusterRoleBindings: {&rbacv1.ClusterRoleBinding{ObjectMeta: named("b", time.Hour),
			RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"},
			Subjects: []rbacv1.Subject{{Kind: "Group", Name: "ops"}}}},
		api.MetricsOfNodes: {&api.NodeMetrics{ObjectMeta: named("board", 0), Window: metav1.Duration{Duration: 15 * time.Second},
			Usage: used("250m", "100Mi")}, &api.NodeMetrics{}},
		api.MetricsOfPods: {&api.PodMetrics{ObjectMeta: named("web", 0), Window: metav1.Duration{Duration: 15 * time.Second},
			Containers: []api.ContainerMetrics{{Name: "a", Usage: used("5m", "10Mi")}, {Name: "b", Usage: used("6m", "20Mi")}}}},
		events.Events: {showEvent(old), showEvent(newer)},
		scheduling.PriorityClasses: {&schedulingv1.PriorityClass{ObjectMeta: named("high", time.Hour), Value: 1000, GlobalDefault: true,
			PreemptionPolicy: ptr(corev1.PreemptNever)}, &schedulingv1.PriorityClass{}},
	}
}

func showEvent(e *corev1.Event) api.Object { return events.Events.View.Show(e) }

func used(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func ended(code int32, reason string, d time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: ago(d)}}
}

// upstreamColumns are those of Kubernetes 1.36 (pkg/printers/internalversion; ClusterRoles have the default of its registry) and of
// metrics-server 0.8, word for word: wide ones in brackets, the type where it is not a string.
var upstreamColumns = map[*api.Kind]string{
	autoscaling.HorizontalPodAutoscalers:   "Name, Reference, Targets, MinPods, MaxPods, Replicas, Age",
	autoscaling.HorizontalPodAutoscalersV1: "Name, Reference, Targets, MinPods, MaxPods, Replicas, Age",

	api.ConfigMaps:             "Name, Data, Age",
	api.Endpoints:              "Name, Endpoints, Age",
	api.Events:                 "Last Seen, Type, Reason, Object, [Subobject], [Source], Message, [First Seen], [Count], [Name]",
	events.Events:              "Last Seen, Type, Reason, Object, [Subobject], [Source], Message, [First Seen], [Count], [Name]",
	api.LimitRanges:            "Name, Created At date",
	api.Namespaces:             "Name, Status, Age",
	api.Nodes:                  "Name, Status, Roles, Age, Version, [Internal-IP], [External-IP], [OS-Image], [Kernel-Version], [Container-Runtime]",
	api.Pods:                   "Name, Ready, Status, Restarts, Age, [IP], [Node], [Nominated Node], [Readiness Gates]",
	api.PodTemplates:           "Name, Containers, Images, Pod Labels",
	api.ReplicationControllers: "Name, Desired integer, Current integer, Ready integer, Age, [Containers], [Images], [Selector]",
	api.ResourceQuotas:         "Name, Request, Limit, Age",
	api.Secrets:                "Name, Type, Data, Age",
	api.ServiceAccounts:        "Name, Age",
	api.Services:               "Name, Type, Cluster-IP, External-IP, Port(s), Age, [Selector]",
	apps.ControllerRevisions:   "Name, Controller, Revision, Age",
	apps.DaemonSets: "Name, Desired integer, Current integer, Ready integer, Up-to-date integer, Available integer, Node Selector, Age, " +
		"[Containers], [Images], [Selector]",
	apps.StatefulSets:           "Name, Ready, Age, [Containers], [Images]",
	apps.Deployments:            "Name, Ready, Up-to-date, Available, Age, [Containers], [Images], [Selector]",
	batch.CronJobs:              "Name, Schedule, Timezone, Suspend boolean, Active integer, Last Schedule, Age, [Containers], [Images], [Selector]",
	batch.Jobs:                  "Name, Status, Completions, Duration, Age, [Containers], [Images], [Selector]",
	apps.ReplicaSets:            "Name, Desired integer, Current integer, Ready integer, Age, [Containers], [Images], [Selector]",
	coordination.Leases:         "Name, Holder, Age",
	discovery.EndpointSlices:    "Name, AddressType, Ports, Endpoints, Age",
	networking.IngressClasses:   "Name, Controller, Parameters, Age",
	networking.Ingresses:        "Name, Class, Hosts, Address, Ports, Age",
	networking.IPAddresses:      "Name, ParentRef",
	networking.NetworkPolicies:  "Name, Pod-Selector, Age",
	networking.ServiceCIDRs:     "Name, CIDRs, Age",
	apinode.RuntimeClasses:      "Name, Handler, Age",
	policy.PodDisruptionBudgets: "Name, Min Available, Max Unavailable, Allowed Disruptions integer, Age",
	rbac.ClusterRoles:           "Name, Created At date",
	rbac.Roles:                  "Name, Created At date",
	rbac.ClusterRoleBindings:    "Name, Role, Age, [Users], [Groups], [ServiceAccounts]",
	rbac.RoleBindings:           "Name, Role, Age, [Users], [Groups], [ServiceAccounts]",
	api.PersistentVolumeClaims:  "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, [VolumeMode]",
	api.PersistentVolumes: "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, Reason, Age, " +
		"[VolumeMode]",
	storage.StorageClasses: "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
	storage.CSIDrivers: "Name, AttachRequired boolean, PodInfoOnMount boolean, StorageCapacity boolean, TokenRequests, RequiresRepublish boolean, " +
		"Modes, Age",
	storage.CSINodes:                "Name, Drivers integer, Age",
	storage.CSIStorageCapacities:    "Name, StorageClassName, Capacity",
	storage.VolumeAttachments:       "Name, Attacher, PV, Node, Attached boolean, Age",
	storage.VolumeAttributesClasses: "Name, DriverName, Age",
	scheduling.PriorityClasses:      "Name, Value integer, Global-Default boolean, Age, PreemptionPolicy",
	api.MetricsOfNodes:              "Name, cpu, memory, Window",
	api.MetricsOfPods:               "Name, cpu, memory, Window",
}

// N-11.18: the columns of every kind are those that Kubernetes has.
func TestTableColumns(t *testing.T) {
	for _, k := range slices.Concat(kinds.All.Kept, kinds.All.Views, kinds.All.Measured) {
		var got []string
		for _, c := range k.Columns() {
			name := c.Name
			if c.Priority > 0 {
				name = "[" + name + "]"
			}
			if c.Type != "string" {
				name += " " + c.Type
			}
			got = append(got, name)
			if c.Description == "" || (c.Format == "name") != (c.Name == "Name") {
				t.Errorf("%s: column %+v", k, c)
			}
		}
		if got := strings.Join(got, ", "); got != upstreamColumns[k] {
			t.Errorf("%s: %s, Kubernetes has %s", k, got, upstreamColumns[k])
		}
	}
}

// N-11.18 to N-11.21: the columns of every kind and what stands in them, the wide ones in brackets.
// Roles and cordon are only shown (N-1.52, N-1.67).
func TestTables(t *testing.T) {
	var b strings.Builder
	all := samples()
	for _, k := range slices.Concat(kinds.All.Kept, kinds.All.Views, kinds.All.Measured) {
		if len(all[k]) == 0 {
			t.Errorf("no samples of %s", k)
		}
		got, err := tableOf(k, form{as: asTable, version: "v1"}, all[k], metav1.ListMeta{}, true, table.Look{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", k.Name)
		for _, c := range got.ColumnDefinitions {
			name := c.Name
			if c.Priority > 0 {
				name = "[" + name + "]"
			}
			fmt.Fprintf(&b, " | %s", name)
		}
		b.WriteString("\n")
		for _, row := range got.Rows {
			for i, cell := range row.Cells {
				if got.ColumnDefinitions[i].Type == "string" {
					if _, ok := cell.(string); !ok && !slices.Contains([]string{"AllowVolumeExpansion", "Data", "Count", "Up-to-date", "Available", "Revision", "MaxPods",
						"Replicas"}, got.ColumnDefinitions[i].Name) {
						t.Errorf("%s: cell %d is a %T", k, i, cell)
					}
				}
				fmt.Fprintf(&b, " | %v", cell)
			}
			for _, c := range row.Conditions {
				fmt.Fprintf(&b, " (%s %s %s)", c.Type, c.Status, c.Reason)
			}
			b.WriteString("\n")
		}
	}
	golden(t, "tables.golden", []byte(b.String()))
}

// N-11.18: what a row carries of its object.
func TestTableIncludes(t *testing.T) {
	pod := samples()[api.Pods][:1]
	api.Pods.Stamp(pod[0])
	for include, want := range map[string]string{"": "PartialObjectMetadata meta.k8s.io/v1",
		"Metadata": "PartialObjectMetadata meta.k8s.io/v1",
		"Object":   "Pod v1", "None": ""} {
		made, err := tableOf(api.Pods, form{as: asTable, version: "v1", include: include}, pod, metav1.ListMeta{ResourceVersion: "9"}, false,
			table.Look{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			Kind, APIVersion  string
			Metadata          metav1.ListMeta
			ColumnDefinitions []any
			Rows              []struct {
				Cells  []any
				Object *struct {
					Kind, APIVersion string
					Metadata         metav1.ObjectMeta
					Spec             any
				}
			}
		}
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if back.Kind != "Table" || back.APIVersion != "meta.k8s.io/v1" || back.Metadata.ResourceVersion != "9" || back.ColumnDefinitions != nil ||
			len(back.Rows) != 1 {
			t.Errorf("include %q: %s", include, data)
		}
		got := ""
		if o := back.Rows[0].Object; o != nil {
			if got = o.Kind + " " + o.APIVersion; o.Metadata.Name != "web" || (o.Spec != nil) != (include == "Object") {
				t.Errorf("include %q: object %+v", include, o)
			}
		}
		if got != want {
			t.Errorf("include %q: row object %q, want %q", include, got, want)
		}
	}
}

// The pods of TestPodStatus: two main containers, an init container and a sidecar.
func podWith(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: named("p", time.Hour)}
	p.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b"}}
	p.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "side", RestartPolicy: ptr(corev1.ContainerRestartPolicyAlways)}}
	p.Status.Phase = corev1.PodPending
	change(p)
	return p
}

func mainStates(p *corev1.Pod, states ...corev1.ContainerState) {
	for i, s := range states {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: string(rune('a' + i)), State: s, Ready: s.Running != nil})
	}
}

func initStates(p *corev1.Pod, states ...corev1.ContainerState) {
	for i, s := range states {
		name := []string{"i", "side"}[i]
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses,
			corev1.ContainerStatus{Name: name, State: s, Started: ptr(s.Running != nil), Ready: s.Running != nil, RestartCount: 3})
	}
}

var done = ended(0, "Completed", time.Minute)

func condition(p *corev1.Pod, kind corev1.PodConditionType, ok corev1.ConditionStatus, reason string) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: ok, Reason: reason})
}

func signalled(signal, code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Signal: signal}}
}

func markDeleted(p *corev1.Pod) { p.DeletionTimestamp = ptr(ago(time.Second)) }

var podStatusCases = []struct {
	name   string
	change func(*corev1.Pod)
	want   string // ready status restarts
}{
	{"N-11.22 phase", func(p *corev1.Pod) {}, "0/3 Pending 0"},
	{"N-11.22 reason", func(p *corev1.Pod) { p.Status.Reason = "NodeAffinity" }, "0/3 NodeAffinity 0"},
	{"N-11.22 gated", func(p *corev1.Pod) {
		condition(p, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonSchedulingGated)
	}, "0/3 SchedulingGated 0"},
	{"N-11.23 first init", func(p *corev1.Pod) { initStates(p, running()) }, "0/3 Init:0/2 3"},
	{"N-11.23 second init", func(p *corev1.Pod) { initStates(p, done, waiting("PodInitializing")) }, "0/3 Init:1/2 6"},
	{"N-11.23 init waits", func(p *corev1.Pod) { initStates(p, waiting("CrashLoopBackOff")) }, "0/3 Init:CrashLoopBackOff 3"},
	{"N-11.23 init failed", func(p *corev1.Pod) { initStates(p, ended(2, "Error", time.Minute)) }, "0/3 Init:Error 3"},
	{"N-11.23 init exit code", func(p *corev1.Pod) { initStates(p, signalled(0, 4)) }, "0/3 Init:ExitCode:4 3"},
	{"N-11.23 init signal", func(p *corev1.Pod) { initStates(p, signalled(9, 137)) }, "0/3 Init:Signal:9 3"},
	{"N-11.21 sidecar counts", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		initStates(p, done, running())
		mainStates(p, running(), running())
	}, "3/3 Running 3"},
	{"N-11.24 waiting", func(p *corev1.Pod) {
		initStates(p, done, running())
		mainStates(p, running(), waiting("ImagePullBackOff"))
	}, "2/3 ImagePullBackOff 3"},
	{"N-11.24 the first wins", func(p *corev1.Pod) {
		initStates(p, done, running())
		mainStates(p, waiting("CrashLoopBackOff"), ended(1, "Error", 0))
	}, "1/3 CrashLoopBackOff 3"},
	{"N-11.24 exit code", func(p *corev1.Pod) { initStates(p, done, running()); mainStates(p, signalled(0, 3)) }, "1/3 ExitCode:3 3"},
	{"N-11.24 signal", func(p *corev1.Pod) { initStates(p, done, running()); mainStates(p, signalled(15, 143)) }, "1/3 Signal:15 3"},
	{"N-11.24 completed but one runs, ready", func(p *corev1.Pod) {
		initStates(p, done, running())
		mainStates(p, done, running())
		condition(p, corev1.PodReady, corev1.ConditionTrue, "")
	}, "2/3 Running 3"},
	{"N-11.24 completed but one runs, not ready", func(p *corev1.Pod) { initStates(p, done, running()); mainStates(p, done, running()) },
		"2/3 NotReady 3"},
	{"N-11.24 completed but one runs, one failed", func(p *corev1.Pod) {
		initStates(p, done, running())
		mainStates(p, done, running(), ended(1, "Error", 0))
	}, "2/3 Error 3"},
	{"N-11.24 completed", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		initStates(p, done, done)
		mainStates(p, done, done)
	}, "0/3 Completed 3"},
	{"N-11.23 sidecar crashes later", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		condition(p, corev1.PodInitialized, corev1.ConditionTrue, "")
		initStates(p, done, waiting("CrashLoopBackOff"))
		mainStates(p, running(), running())
	}, "2/3 Init:CrashLoopBackOff 3"},
	{"N-11.25 terminating", func(p *corev1.Pod) { markDeleted(p); mainStates(p, running(), running()) }, "2/3 Terminating 0"},
	{"N-11.25 lost", func(p *corev1.Pod) { markDeleted(p); p.Status.Reason = "NodeLost" }, "0/3 Unknown 0"},
	{"N-11.25 deleted after its end", func(p *corev1.Pod) {
		markDeleted(p)
		p.Status.Phase = corev1.PodFailed
		mainStates(p, ended(1, "Error", 0))
	}, "0/3 Error 0"},
	{"N-11.26 evicted", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		mainStates(p, ended(137, "Error", 0))
	}, "0/3 Evicted 0"},
	{"N-5.37 shut down as 1.21 said it", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Shutdown"
		mainStates(p, ended(0, "Completed", 0)) // N-5.36: stock printing lets this win
	}, "0/3 Shutdown 0"},
	{"N-11.26 shut down", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Terminated"
		initStates(p, waiting("PodInitializing"))
	}, "0/3 Terminated 3"},
	{"N-11.26 another reason", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "UnexpectedAdmissionError"
		mainStates(p, ended(1, "Error", 0))
	}, "0/3 Error 0"},
}

// TestPodStatus: N-11.22 to N-11.26, the Status, Ready and Restarts columns of pods.
func TestPodStatus(t *testing.T) {
	for _, tc := range podStatusCases {
		t.Run(tc.name, func(t *testing.T) {
			cells, _ := api.Pods.Row(podWith(tc.change), table.Look{Now: now})
			if got := fmt.Sprintf("%v %v %v", cells[1], cells[2], cells[3]); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
	for _, c := range []struct{ reason, last string }{{"Evicted", "Error"}, {"Terminated", "OOMKilled"}, {"Shutdown", "Completed"}} { // N-5.36
		gone := podWith(func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, c.reason
			mainStates(p, ended(137, c.last, 0))
		})
		if got := podStatus(gone, true); got != c.last {
			t.Errorf("N-11.26 stock: %s, want %s", got, c.last)
		}
		if got := podStatus(gone, false); got != c.reason {
			t.Errorf("N-11.26: %s, want %s", got, c.reason)
		}
	}
}

// podStatus is the Status column of a pod.
func podStatus(pod *corev1.Pod, stock bool) any {
	cells, _ := api.Pods.Row(pod, table.Look{Now: now, Stock: stock})
	return cells[2]
}
