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
	inAll(later("", "v1", "ReplicationController", "replicationcontrollers", true, "rc")),
	later("", "v1", "ResourceQuota", "resourcequotas", true, "quota"),
	inAll(later("apps", "v1", "DaemonSet", "daemonsets", true, "ds")),
	inAll(later("apps", "v1", "Deployment", "deployments", true, "deploy")),
	inAll(later("apps", "v1", "ReplicaSet", "replicasets", true, "rs")),
	inAll(later("apps", "v1", "StatefulSet", "statefulsets", true, "sts")),
	inAll(later("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, "hpa")),
	inAll(later("batch", "v1", "CronJob", "cronjobs", true, "cj")),
	inAll(later("batch", "v1", "Job", "jobs", true)),
	later("storage.k8s.io", "v1", "StorageClass", "storageclasses", false, "sc"),
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
	if k == Services {
		text = "services are not supported by ledge: there is only default/kubernetes, which the server keeps"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: text,
		Details: &metav1.StatusDetails{Group: k.Group, Kind: k.Resource},
	}}
}
