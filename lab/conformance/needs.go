package main

import (
	"slices"

	"ledge/api"
	"ledge/api/kinds"
)

// twoBoards is the need of a test that counts boards.
const twoBoards = "two boards"

// brings says with which kind of object that a board keeps a need of tests.txt is met: those tests run from then on. What no kind brings
// ("") is met when somebody drops the word from here and from tests.txt.
var brings = map[string]string{
	"aggregated API servers": "apiservices.apiregistration.k8s.io",
	"certificate requests":   "certificatesigningrequests.certificates.k8s.io",
	"custom kinds":           "customresourcedefinitions.apiextensions.k8s.io",
	"storage migrations":     "storageversionmigrations.storagemigration.k8s.io",
	"webhooks":               "validatingwebhookconfigurations.admissionregistration.k8s.io",

	"ClusterTrustBundles":       "clustertrustbundles.certificates.k8s.io",
	"ControllerRevisions":       "controllerrevisions.apps",
	"CronJobs":                  "cronjobs.batch",
	"CSIDrivers":                "csidrivers.storage.k8s.io",
	"CSINodes":                  "csinodes.storage.k8s.io",
	"CSIStorageCapacities":      "csistoragecapacities.storage.k8s.io",
	"DaemonSets":                "daemonsets.apps",
	"Deployments":               "deployments.apps",
	"DeviceClasses":             "deviceclasses.resource.k8s.io",
	"DeviceTaintRules":          "devicetaintrules.resource.k8s.io",
	"Endpoints":                 "endpoints",
	"EndpointSlices":            "endpointslices.discovery.k8s.io",
	"FlowSchemas":               "flowschemas.flowcontrol.apiserver.k8s.io",
	"Ingresses":                 "ingresses.networking.k8s.io",
	"IngressClasses":            "ingressclasses.networking.k8s.io",
	"IPAddresses":               "ipaddresses.networking.k8s.io",
	"Jobs":                      "jobs.batch",
	"LimitRanges":               "limitranges",
	"MutatingAdmissionPolicies": "mutatingadmissionpolicies.admissionregistration.k8s.io",
	"PersistentVolumeClaims":    "persistentvolumeclaims",
	"PersistentVolumes":         "persistentvolumes",
	"PodCertificateRequests":    "podcertificaterequests.certificates.k8s.io",
	"PriorityLevels":            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
	"ReplicaSets":               "replicasets.apps",
	"ResourceClaims":            "resourceclaims.resource.k8s.io",
	"ResourceClaimTemplates":    "resourceclaimtemplates.resource.k8s.io",
	"ResourceQuotas":            "resourcequotas",
	"ResourceSlices":            "resourceslices.resource.k8s.io",
	"ServiceCIDRs":              "servicecidrs.networking.k8s.io",
	"StatefulSets":              "statefulsets.apps",
	"StorageClasses":            "storageclasses.storage.k8s.io",
	"ValidatingPolicies":        "validatingadmissionpolicies.admissionregistration.k8s.io",
	"VolumeAttachments":         "volumeattachments.storage.k8s.io",
	"VolumeAttributesClasses":   "volumeattributesclasses.storage.k8s.io",

	// Endpoints are what makes Services of use.
	"Services": "endpointslices.discovery.k8s.io",

	"issuer discovery": "",     // /.well-known/openid-configuration
	twoBoards:          "pods", // which every board keeps: a second board joins the first for these
	"volumes of CSI":   "",     // a pod that names a driver is refused
}

// missing are the needs of a test that this ledge does not meet.
func (t test) missing() []string {
	return slices.DeleteFunc(slices.Clone(t.needs), func(need string) bool {
		return slices.ContainsFunc(kinds.All.Kept, func(k *api.Kind) bool { return k.GR().String() == brings[need] })
	})
}

// ready are the tests that miss nothing.
func ready(all []test) []test {
	return slices.DeleteFunc(slices.Clone(all), func(t test) bool { return len(t.missing()) > 0 })
}
