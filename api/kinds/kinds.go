// Package kinds lists the kinds of a board. A new kind is one file in the package of its API group, and one name here.
package kinds

import (
	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
	"ledge/api/batch"
	"ledge/api/coordination"
	"ledge/api/discovery"
	"ledge/api/events"
	"ledge/api/networking"
	"ledge/api/node"
	"ledge/api/policy"
	"ledge/api/rbac"
	"ledge/api/scheduling"
	"ledge/api/storage"
)

// All are the kinds of a board.
var All = &api.Kinds{
	Kept: []*api.Kind{
		api.ConfigMaps, api.Endpoints, api.Events, api.LimitRanges, api.Namespaces, api.Nodes, api.PersistentVolumeClaims, api.PersistentVolumes,
		api.Pods, api.PodTemplates, api.ReplicationControllers, api.ResourceQuotas, api.Secrets, api.ServiceAccounts, api.Services,
		apps.ControllerRevisions, apps.DaemonSets, apps.Deployments, apps.ReplicaSets, apps.StatefulSets,
		autoscaling.HorizontalPodAutoscalers,
		batch.CronJobs, batch.Jobs,
		coordination.Leases,
		discovery.EndpointSlices,
		networking.IngressClasses, networking.Ingresses, networking.IPAddresses, networking.NetworkPolicies, networking.ServiceCIDRs,
		node.RuntimeClasses,
		policy.PodDisruptionBudgets,
		rbac.ClusterRoleBindings, rbac.ClusterRoles, rbac.RoleBindings, rbac.Roles,
		scheduling.PriorityClasses,
		storage.CSIDrivers, storage.CSINodes, storage.CSIStorageCapacities, storage.StorageClasses, storage.VolumeAttachments,
		storage.VolumeAttributesClasses,
	},
	Views:    []*api.Kind{events.Events, autoscaling.HorizontalPodAutoscalersV1},
	Absent:   absent,
	Measured: []*api.Kind{api.MetricsOfNodes, api.MetricsOfPods},
}

// absent are kinds that a board does not have, and whose schemas it does not carry. Clients look for some of them in
// discovery and list them; they find that there are none.
var absent = []*api.Kind{
	api.DefineLater("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
	api.DefineLater("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
	api.DefineLater("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false, "crd", "crds"),
	api.DefineLater("apiregistration.k8s.io", "v1", "APIService", "apiservices", false),
	api.DefineLater("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", false, "csr"),
}
