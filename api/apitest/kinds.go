//lint:file-ignore SA1019 Endpoints have verbs like any kind

package apitest

import (
	"context"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
	"ledge/api/batch"
	"ledge/api/coordination"
	"ledge/api/discovery"
	"ledge/api/events"
	"ledge/api/kinds"
	"ledge/api/networking"
	"ledge/api/node"
	"ledge/api/policy"
	"ledge/api/rbac"
	"ledge/api/scheduling"
	"ledge/api/storage"
)

// kindCases drive each kind of the API through all verbs.
func kindCases() (out []Case) {
	for _, k := range append(append([]*api.Kind{}, kinds.All.Kept...), kinds.All.Views...) {
		name := "Verbs/" + k.Name
		if k.View != nil {
			name += "." + k.Group
		}
		out = append(out, Case{name, func(t *testing.T, c api.Client) { testVerbs(begin(t, c), k) }})
	}
	return out
}

// samples are objects that are whole and that nothing acts on, but for name, namespace and labels.
var samples = map[*api.Kind]func(e *env) api.Object{
	api.ConfigMaps: func(*env) api.Object { return &corev1.ConfigMap{Data: map[string]string{"k": "v"}} },
	api.Events: func(e *env) api.Object {
		return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: e.ns, Name: "p"}, Reason: "Tested", Type: "Normal"}
	},
	events.Events: func(e *env) api.Object {
		return &eventsv1.Event{EventTime: metav1.NowMicro(), ReportingController: "apitest.dev/verbs", ReportingInstance: "one",
			Action: "Testing",
			Reason: "Tested", Type: "Normal", Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: e.ns, Name: "p"}}
	},
	api.LimitRanges: func(*env) api.Object {
		return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
			DefaultRequest: amounts("cpu=1m")}}}}
	},
	api.ResourceQuotas: func(*env) api.Object {
		return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: amounts("count/bindings=1")}}
	},
	api.Namespaces:             func(*env) api.Object { return &corev1.Namespace{} },
	api.Nodes:                  func(*env) api.Object { return &corev1.Node{} },
	api.PersistentVolumeClaims: func(*env) api.Object { return volumeClaim("apitest.dev-none") },
	api.PersistentVolumes:      func(*env) api.Object { return share("apitest.dev-none") },
	api.Pods:                   func(e *env) api.Object { return e.pod("") },
	api.PodTemplates:           func(e *env) api.Object { return &corev1.PodTemplate{Template: *e.replication("").Spec.Template} },
	api.ReplicationControllers: func(e *env) api.Object { return e.replication("") },
	api.Secrets:                func(*env) api.Object { return &corev1.Secret{Data: map[string][]byte{"k": []byte("v")}} },
	api.ServiceAccounts:        func(*env) api.Object { return &corev1.ServiceAccount{} },
	apps.ControllerRevisions:   func(e *env) api.Object { return e.revision("") },
	apps.DaemonSets:            func(e *env) api.Object { return e.daemonSet("") },
	apps.StatefulSets:          func(e *env) api.Object { return e.statefulSet("") },
	apps.Deployments:           func(e *env) api.Object { return e.deployment("") },
	batch.CronJobs:             func(e *env) api.Object { return e.cronJob("") },
	batch.Jobs:                 func(e *env) api.Object { return e.job("") },
	apps.ReplicaSets:           func(e *env) api.Object { return e.replicaSet("") },
	autoscaling.HorizontalPodAutoscalers: func(*env) api.Object {
		return &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "none"}}}
	},
	autoscaling.HorizontalPodAutoscalersV1: func(*env) api.Object {
		return &autoscalingv1.HorizontalPodAutoscaler{Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3,
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "none"}}}
	},
	coordination.Leases: func(*env) api.Object {
		holder, now, seconds := "apitest", metav1.NowMicro(), int32(40)
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds}}
	},
	api.Services: func(*env) api.Object {
		return &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	},
	api.Endpoints: func(*env) api.Object {
		return &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}},
			Ports: []corev1.EndpointPort{{Port: 80}}}}}
	},
	discovery.EndpointSlices: func(*env) api.Object {
		return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}}
	},
	networking.IngressClasses: func(*env) api.Object {
		return &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "apitest.dev/verbs"}}
	},
	networking.Ingresses: func(e *env) api.Object { return e.ingress("") },
	networking.IPAddresses: func(e *env) api.Object {
		return &networkingv1.IPAddress{Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Group: "apitest.dev",
			Resource: "things", Namespace: e.ns, Name: "thing"}}}
	},
	networking.NetworkPolicies: func(*env) api.Object { return &networkingv1.NetworkPolicy{} },
	networking.ServiceCIDRs: func(*env) api.Object {
		return &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"192.0.2.128/25"}}}
	},
	node.RuntimeClasses:         func(*env) api.Object { return &nodev1.RuntimeClass{Handler: "apitest"} },
	policy.PodDisruptionBudgets: func(e *env) api.Object { return e.budget("") },
	rbac.ClusterRoles:           func(*env) api.Object { return &rbacv1.ClusterRole{Rules: readPods} },
	rbac.Roles:                  func(*env) api.Object { return &rbacv1.Role{Rules: readPods} },
	rbac.ClusterRoleBindings: func(*env) api.Object {
		return &rbacv1.ClusterRoleBinding{RoleRef: viewRole,
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "apitest"}}}
	},
	rbac.RoleBindings: func(*env) api.Object {
		return &rbacv1.RoleBinding{RoleRef: viewRole, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "apitest"}}}
	},
	scheduling.PriorityClasses: func(*env) api.Object { return &schedulingv1.PriorityClass{Value: 7} },
	storage.StorageClasses:     func(*env) api.Object { return &storagev1.StorageClass{Provisioner: "apitest.dev/none"} },
	storage.CSIDrivers:         func(*env) api.Object { return &storagev1.CSIDriver{} },
	storage.CSINodes: func(*env) api.Object {
		return &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "apitest.dev", NodeID: "one"}}}}
	},
	storage.CSIStorageCapacities: func(*env) api.Object { return &storagev1.CSIStorageCapacity{StorageClassName: "apitest.dev-none"} },
	storage.VolumeAttachments: func(*env) api.Object {
		volume := "apitest.dev-none"
		return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: "apitest.dev", NodeName: "apitest.dev-none",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
	},
	storage.VolumeAttributesClasses: func(*env) api.Object {
		return &storagev1.VolumeAttributesClass{DriverName: "apitest.dev", Parameters: map[string]string{"k": "v"}}
	},
}

// volumeClaim asks for what nobody has.
func volumeClaim(class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: storageOf("1Gi")}}}
}

// share is a volume that nobody uses.
func share(class string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: class, Capacity: storageOf("1Gi"),
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.9", Path: "/none"}}}}
}

func storageOf(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

var readPods = []rbacv1.PolicyRule{{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}}}

var viewRole = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}

// step is the annotation that tells one state of a sample from the next.
const step = "apitest.dev/step"

// verbs is one object of a kind on its way.
type verbs struct {
	*env
	kind     *api.Kind
	ns, name string
	w        api.Watch
}

func testVerbs(e *env, kind *api.Kind) {
	sample := samples[kind]
	if sample == nil {
		e.Fatalf("no sample of %s", kind.GR())
	}
	v := &verbs{env: e, kind: kind, name: e.ns + "-verbs"} // what has no namespace needs a name of its own
	if kind.Namespaced {
		v.ns = e.ns
	}
	label := v.name
	if kind == networking.IPAddresses {
		v.name = "192.0.2.7" // no other names are taken
	}
	only := api.Selection{Namespace: v.ns, Labels: labels.SelectorFromSet(labels.Set{"apitest": label})}
	before, err := e.c.List(e.ctx, kind, api.ListOptions{Selection: only})
	e.must(err)
	if len(before.Items) != 0 {
		e.Fatalf("there is already %s", names(before.Items))
	}
	v.watch(api.WatchOptions{Selection: only, Revision: before.Revision})

	in := sample(e)
	in.SetNamespace(v.ns)
	in.SetName(v.name)
	in.SetLabels(map[string]string{"apitest": label})
	in.SetAnnotations(map[string]string{step: "made"})
	made, err := e.c.Create(e.ctx, kind, in, api.WriteOptions{})
	e.must(err)
	e.Cleanup(func() { _, _ = e.c.Delete(context.WithoutCancel(e.ctx), kind, v.ns, v.name, api.DeleteOptions{}) })
	v.is("create", made, "made", made)
	v.is("get", v.get(), "made", made)
	v.is("watch", v.next(api.Added, "made"), "made", made)
	_, err = e.c.Create(e.ctx, kind, in, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonAlreadyExists, 409)

	v.is("update", v.update("updated"), "updated", made)
	v.is("get", v.get(), "updated", made)
	v.is("watch", v.next(api.Modified, "updated"), "updated", made)

	patched, err := e.patch(kind, v.ns, v.name, "application/merge-patch+json", `{"metadata":{"annotations":{"`+step+`":"patched"}}}`,
		api.WriteOptions{})
	e.must(err)
	v.is("patch", patched, "patched", made)
	v.is("watch", v.next(api.Modified, "patched"), "patched", made)
	list, err := e.c.List(e.ctx, kind, api.ListOptions{Selection: only})
	e.must(err)
	if names(list.Items) != v.name {
		e.Fatalf("list: %q", names(list.Items))
	}
	v.is("list", list.Items[0], "patched", made)

	// Said, because a controller of replicas is else kept by Kubernetes until its pods are orphans.
	_, err = e.c.Delete(e.ctx, kind, v.ns, v.name, api.DeleteOptions{Propagation: metav1.DeletePropagationBackground})
	e.must(err)
	if kind == api.PersistentVolumeClaims || kind == api.PersistentVolumes { // held until somebody has seen that nobody uses it
		_, err := e.patch(kind, v.ns, v.name, "application/merge-patch+json", `{"metadata":{"finalizers":null}}`, api.WriteOptions{})
		if !apierrors.IsNotFound(err) {
			e.must(err)
		}
	}
	v.is("watch", v.next(api.Deleted, "patched"), "patched", made)
	v.gone()
	_, err = e.c.Delete(e.ctx, kind, v.ns, v.name, api.DeleteOptions{})
	e.fails(err, metav1.StatusReasonNotFound, 404)
}

func (v *verbs) watch(opts api.WatchOptions) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	v.Cleanup(cancel)
	w, err := v.c.Watch(ctx, v.kind, opts)
	v.must(err)
	v.Cleanup(w.Close)
	v.w = w
}

// is checks that an answer is the object in a state, whole and of its kind.
func (v *verbs) is(verb string, got api.Object, state string, made api.Object) {
	v.Helper()
	if k := got.GetObjectKind().GroupVersionKind(); k != v.kind.GVK() {
		v.Errorf("%s answers a %v", verb, k)
	}
	if got.GetName() != v.name || got.GetNamespace() != v.ns || got.GetUID() == "" || got.GetUID() != made.GetUID() ||
		got.GetResourceVersion() == "" {
		v.Errorf("%s answers %s/%s, UID %s, resourceVersion %q", verb, got.GetNamespace(), got.GetName(), got.GetUID(), got.GetResourceVersion())
	}
	if got.GetAnnotations()[step] != state {
		v.Errorf("%s answers the state %q, want %q", verb, got.GetAnnotations()[step], state)
	}
}

func (v *verbs) get() api.Object {
	v.Helper()
	out, err := v.c.Get(v.ctx, v.kind, v.ns, v.name)
	v.must(err)
	return out
}

// update tries again where a controller of Kubernetes' wrote meanwhile.
func (v *verbs) update(state string) (out api.Object) {
	v.Helper()
	v.eventually("the update is taken", func() bool {
		obj := v.get()
		obj.SetAnnotations(map[string]string{step: state})
		var err error
		out, err = v.c.Update(v.ctx, v.kind, obj, api.WriteOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			v.Fatal(err)
		}
		return err == nil
	})
	return out
}

// next is the next event of a type about a state; what controllers of Kubernetes' change besides does not count.
func (v *verbs) next(typ api.EventType, state string) api.Object {
	v.Helper()
	for {
		ev, err := v.w.Next()
		if err != nil {
			v.Fatalf("waiting for %s %s: %v", typ, state, err)
		}
		if ev.Type == typ && ev.Object.GetAnnotations()[step] == state {
			return ev.Object
		}
		if ev.Type != api.Modified && ev.Type != api.Bookmark {
			v.Fatalf("want %s %s, got %s of %s in state %q", typ, state, ev.Type, ev.Object.GetName(), ev.Object.GetAnnotations()[step])
		}
	}
}

func (v *verbs) gone() {
	v.Helper()
	v.eventually("it is gone", func() bool {
		_, err := v.c.Get(v.ctx, v.kind, v.ns, v.name)
		return apierrors.IsNotFound(err)
	})
}
