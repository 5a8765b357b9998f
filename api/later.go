package api

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LaterKinds are kinds of Kubernetes that have no objects on a board yet. Clients list many kinds before they do
// anything (kubectl get all, describe, drain); a 404 would stop some of them.
var LaterKinds = []*Kind{
	later("", "v1", "LimitRange", "limitranges", true, "limits"),
	later("", "v1", "PersistentVolume", "persistentvolumes", false, "pv"),
	later("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true, "pvc"),
	later("", "v1", "ResourceQuota", "resourcequotas", true, "quota"),
	inAll(later("apps", "v1", "DaemonSet", "daemonsets", true, "ds")),
	inAll(later("apps", "v1", "Deployment", "deployments", true, "deploy")),
	inAll(later("apps", "v1", "ReplicaSet", "replicasets", true, "rs")),
	inAll(later("apps", "v1", "StatefulSet", "statefulsets", true, "sts")),
	inAll(later("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, "hpa")),
	inAll(later("batch", "v1", "CronJob", "cronjobs", true, "cj")),
	inAll(later("batch", "v1", "Job", "jobs", true)),
	later("rbac.authorization.k8s.io", "v1", "Role", "roles", true),
	later("storage.k8s.io", "v1", "StorageClass", "storageclasses", false, "sc"),
}

// AbsentKinds are kinds that a board does not have, and whose schemas it does not carry. Clients look for some of them
// in discovery and list them; they find that there are none.
var AbsentKinds = []*Kind{
	later("", "v1", "Endpoints", "endpoints", true, "ep"), // kubectl apply --prune
	later("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
	later("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
	later("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false, "crd", "crds"),
	later("apiregistration.k8s.io", "v1", "APIService", "apiservices", false),
	later("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, "hpa"),
	later("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", false, "csr"),
	later("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
	later("networking.k8s.io", "v1", "Ingress", "ingresses", true, "ing"),
	later("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true, "netpol"),
	later("storage.k8s.io", "v1", "CSINode", "csinodes", false),
}

func later(group, version, name, resource string, namespaced bool, short ...string) *Kind {
	return &Kind{Group: group, Version: version, Name: name, Resource: resource, Singular: strings.ToLower(name),
		Namespaced: namespaced, Short: short, Later: true}
}

func inAll(k *Kind) *Kind {
	k.Categories = []string{"all"}
	return k
}

// NotWritable is the refusal of a write to a kind that is the server's own, or not there yet.
func NotWritable(k *Kind) error {
	text := k.GR().String() + " are not supported by ledge yet: there are none, and none can be made"
	switch {
	case k == Services:
		text = "services are not supported by ledge: there is only default/kubernetes, which the server keeps"
	case k.Group == ClusterRoles.Group:
		text = k.GR().String() + " of one's own are not supported by ledge: bind one of the built-in ClusterRoles, which the server keeps: " +
			strings.Join(RoleNames, ", ")
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: text,
		Details: &metav1.StatusDetails{Group: k.Group, Kind: k.Resource},
	}}
}
