package kinds_test

import (
	"encoding/json"
	"strings"
	"testing"

	"ledge/api"
)

var (
	container = `"image":"i","securityContext":{"privileged":true},"volumeMounts":[{"name":"v","mountPath":"/v"}]`
	pod       = `{"os":{"name":"linux"},"volumes":[{"name":"v","hostPath":{"path":"/x"}}],"containers":[{"name":"c",` + container + `}],` +
		`"initContainers":[{"name":"s","restartPolicy":"Always",` + container + `}]}`
	selected = `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":` + pod + `}`
	job      = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never",` + pod[1:] + `}`
)

// samples are objects that are taken, beside their names, by resource and group.
var samples = map[string]string{
	"events":                                        `{"involvedObject":{"namespace":"n"}}`,
	"events.events.k8s.io":                          `{"regarding":{"namespace":"n"},"eventTime":"2026-01-01T00:00:00.000000Z","reportingController":"a/b","reportingInstance":"i","action":"a","reason":"r","type":"Normal"}`,
	"pods":                                          `{"spec":` + pod + `}`,
	"podtemplates":                                  `{"template":{"metadata":{"labels":{"a":"b"}},"spec":` + pod + `}}`,
	"replicationcontrollers":                        `{"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":` + pod + `}}}`,
	"controllerrevisions.apps":                      `{"data":{},"revision":1}`,
	"daemonsets.apps":                               `{"spec":{` + selected + `}}`,
	"deployments.apps":                              `{"spec":{` + selected + `}}`,
	"replicasets.apps":                              `{"spec":{` + selected + `}}`,
	"statefulsets.apps":                             `{"spec":{` + selected + `}}`,
	"horizontalpodautoscalers.autoscaling":          `{"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`,
	"jobs.batch":                                    `{"spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}},` + job + `}}`,
	"cronjobs.batch":                                `{"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{` + job + `}}}}`,
	"runtimeclasses.node.k8s.io":                    `{"handler":"h"}`,
	"poddisruptionbudgets.policy":                   `{"spec":{"selector":{"matchLabels":{"a":"b"}},"minAvailable":1}}`,
	"roles.rbac.authorization.k8s.io":               `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`,
	"clusterroles.rbac.authorization.k8s.io":        `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`,
	"rolebindings.rbac.authorization.k8s.io":        binding,
	"clusterrolebindings.rbac.authorization.k8s.io": binding,
	"endpoints":                                     `{"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"notReadyAddresses":[{"ip":"10.0.0.2"}],"ports":[{"port":80}]}]}`,
	"endpointslices.discovery.k8s.io":               `{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"port":80}]}`,
	"ingressclasses.networking.k8s.io":              `{"spec":{"controller":"x.io/y","parameters":{"kind":"Thing","name":"it","scope":"Cluster"}}}`,
	"ingresses.networking.k8s.io":                   `{"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}},"status":{"loadBalancer":{"ingress":[{"ip":"10.0.0.1","ports":[{"port":80,"protocol":"TCP"}]}]}}}`,
	"ipaddresses.networking.k8s.io":                 `{"spec":{"parentRef":{"resource":"services","namespace":"n","name":"x"}}}`,
	"networkpolicies.networking.k8s.io":             `{"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8"}}],"ports":[{"port":80}]}],"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]}]}}`,
	"servicecidrs.networking.k8s.io":                `{"spec":{"cidrs":["10.0.0.0/24"]}}`,
	"persistentvolumeclaims":                        `{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
	"persistentvolumes":                             `{"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"}}}`,
	"storageclasses.storage.k8s.io":                 `{"provisioner":"p.io/p"}`,
	"csinodes.storage.k8s.io":                       `{"spec":{"drivers":[{"name":"p.io","nodeID":"n"}]}}`,
	"csistoragecapacities.storage.k8s.io":           `{"storageClassName":"c"}`,
	"volumeattachments.storage.k8s.io":              `{"spec":{"attacher":"p.io","nodeName":"n","source":{"persistentVolumeName":"v"}}}`,
	"volumeattributesclasses.storage.k8s.io":        `{"driverName":"p.io","parameters":{"a":"b"}}`,
	"services":                                      `{"spec":{"ports":[{"port":80}]}}`,
}

const binding = `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"u","apiGroup":"rbac.authorization.k8s.io"}]}`

func sampleOf(t *testing.T, k *api.Kind) api.Object {
	obj := k.New()
	if text := samples[strings.TrimSuffix(k.Resource+"."+k.Group, ".")]; text != "" {
		if err := json.Unmarshal([]byte(text), obj); err != nil {
			t.Fatal(err)
		}
	}
	obj.SetName("x")
	if k.Resource == "ipaddresses" {
		obj.SetName("10.0.0.1") // no other names are taken
	}
	if k.Namespaced {
		obj.SetNamespace("n")
	}
	return obj
}
