package httpd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ledge/api"
)

// TestKubectlRights: rights are given, looked at and used with a real kubectl, by an admin and by a service account.
func TestKubectlRights(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs kubectl")
	}
	versions := []string{""}
	if os.Getenv("LEDGE_LONG") != "" {
		versions = append(versions, "1.32", "old")
	}
	for _, version := range versions {
		t.Run("kubectl"+version, func(t *testing.T) { testKubectlRights(t, version) })
	}
}

func testKubectlRights(t *testing.T, version string) {
	s := newStage(t)
	k := kubectlOf(t, version, s.authority, s.base)
	s.make(s.add("root", "", "", "root", api.AdminGroup), "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, s.authority.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	robot := &kubectl{t: t, bin: k.bin, home: t.TempDir(), kubeconfig: "/dev/null"}
	as := "--server=" + s.base + " --certificate-authority=" + ca + " --token=" + s.tokenOf("default", "robot") + " "
	reconciled := filepath.Join(t.TempDir(), "kept.yaml")
	err := os.WriteFile(reconciled, []byte(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: kept, namespace: default}
rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: kept, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: kept}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		who           *kubectl
		command, want string // as in kubectlCases
	}{
		{k, "get clusterroles", "CREATED AT|cluster-admin|admin|edit|view|system:auth-delegator|system:aggregate-to-view"},
		{k, "describe clusterrole edit", "PolicyRule:|pods/exec|secrets"},
		{k, "get roles -n kube-system", "CREATED AT|extension-apiserver-authentication-reader"},
		{k, "create role reader --verb=get,list --resource=configmaps,deployments.apps/scale --resource-name=one",
			"role.rbac.authorization.k8s.io/reader created"},
		{k, "describe role reader", "deployments.apps/scale  []                 [one]           [get list]"},
		{k, "get roles", "CREATED AT|reader"},
		{k, "create clusterrole scraper --verb=get --non-resource-url=/metrics", "clusterrole.rbac.authorization.k8s.io/scraper created"},
		{k, "create clusterrole sum --aggregation-rule=a=b", "clusterrole.rbac.authorization.k8s.io/sum created"},
		{k, "create role bad --verb=get --resource=no-such-things", "!the server doesn't have a resource type \"no-such-things\""},
		{k, "create rolebinding reads --role=reader --serviceaccount=default:robot", "created"},
		{k, "create clusterrolebinding scrapes --clusterrole=scraper --serviceaccount=default:robot", "created"},
		{robot, "get configmap one", `!configmaps "one" not found`},
		{robot, "get configmap two", "!Forbidden"},
		{robot, "get configmaps", "!Forbidden"},
		{robot, "get configmaps --field-selector=metadata.name=one", "No resources found"},
		{robot, "get --raw /metrics", "!the server could not find the requested resource"},
		{robot, "get --raw /metrics/resource", `!cannot get path "/metrics/resource"`},
		{robot, "auth can-i get /metrics", "yes"},
		{robot, "auth can-i get configmap/one", "yes"},
		{robot, "auth can-i get configmap/two", "!no"},
		{robot, "auth can-i --list", "configmaps                                      []                  [one]            [get list]|[/metrics]"},
		{robot, "create role more --verb=get --resource=configmaps", "!cannot create resource"},
		{k, "delete role reader", "deleted"},
		{robot, "get configmap one", "!Forbidden"},
		{robot, "auth can-i list pods", "!no - |cannot list resource"},
		{robot, "get pods", `!User "system:serviceaccount:default:robot" cannot list resource "pods" in API group "" in the namespace "default"`},
		{k, "create rolebinding see --clusterrole=view --serviceaccount=default:robot --user=bob --group=ops",
			"rolebinding.rbac.authorization.k8s.io/see created"},
		{k, "get rolebindings -o wide", "ROLE|USERS|GROUPS|SERVICEACCOUNTS|see|ClusterRole/view|bob|ops|default/robot"},
		{k, "describe rolebinding see", "Kind:  ClusterRole|Name:  view|ServiceAccount  robot  default"},
		{robot, "auth can-i list pods", "yes"},
		{robot, "auth can-i list pods -n kube-system", "!no"},
		{robot, "auth can-i --list", "pods|pods/log|[get list watch]|selfsubjectreviews"},
		{robot, "get pods", "No resources found"},
		{robot, "get namespace default", "Active"},
		{robot, "get secrets", "!Forbidden"},
		{robot, "create rolebinding more --clusterrole=edit --serviceaccount=default:robot", "!cannot create resource"},
		{k, "create clusterrolebinding all --clusterrole=admin --serviceaccount=default:robot",
			"clusterrolebinding.rbac.authorization.k8s.io/all created"},
		{robot, "get pods -A", "No resources found"},
		{robot, "create rolebinding more --clusterrole=admin --user=eve -n kube-system", "created"},
		{robot, "create rolebinding most --clusterrole=cluster-admin --user=eve", "!attempting to grant RBAC permissions not currently held"},
		{robot, "create clusterrolebinding most --clusterrole=view --user=eve", "!cannot create resource"},
		{robot, "create role less --verb=get,list --resource=pods", "created"},
		{robot, "create role more --verb=get --resource=nodes",
			`!is attempting to grant RBAC permissions not currently held:|{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}`},
		{robot, "create role more --verb=bind --resource=clusterroles", "!not currently held"},
		{robot, "create clusterrole more --verb=get --resource=pods", "!cannot create resource"},
		{robot, "create rolebinding less --role=less --user=eve", "created"},
		{robot, "create rolebinding none --role=none --user=eve", `!roles.rbac.authorization.k8s.io "none" not found`},
		{k, "get pods --as=eve", "No resources found"},
		{k, "patch rolebinding see --type=merge -p {\"roleRef\":{\"name\":\"edit\"}}", "!cannot change roleRef"},
		{k, "auth whoami --as=eve --as-group=ops", "eve|[ops system:authenticated]"},
		{k, "auth can-i list secrets --as=system:serviceaccount:default:robot", "yes"},
		{k, "auth can-i list nodes --as=system:serviceaccount:default:robot", "!no"},
		{k, "get nodes --as=eve", `!User "eve" cannot list resource "nodes"`},
		{robot, "get pods --as=eve", `!cannot impersonate resource "users" in API group "" at the cluster scope`},
		{robot, "auth whoami --as=system:serviceaccount:default:default", "system:serviceaccount:default:default"},
		{robot, "get pods --as=system:serviceaccount:default:default --as-group=system:masters", `!cannot impersonate resource "groups"`},
		{robot, "get pods --as=system:node:a --as-group=system:nodes", `!cannot impersonate resource "users"`},
		{k, "auth reconcile -f " + reconciled,
			"role.rbac.authorization.k8s.io/kept reconciled|rolebinding.rbac.authorization.k8s.io/kept reconciled"},
		{k, "auth reconcile -f " + reconciled, "role.rbac.authorization.k8s.io/kept"},
		{robot, "auth reconcile -f " + reconciled, "role.rbac.authorization.k8s.io/kept"},
		{k, "auth can-i get nodes --as=eve", "!no"},
		{k, "delete clusterrolebinding all", "deleted"},
		{robot, "get pods -A", "!Forbidden"},
	} {
		command := tc.command
		if version == "old" && strings.HasPrefix(command, "auth whoami") {
			continue // it does not know that
		}
		if tc.who == robot {
			command = as + command
		}
		out, err := tc.who.run("", strings.Fields(command)...)
		want, fails := strings.CutPrefix(tc.want, "!")
		if (err != nil) != fails {
			t.Errorf("kubectl %s: %v\n%s", tc.command, err, out)
			continue
		}
		for _, part := range strings.Split(want, "|") {
			if !strings.Contains(out, part) {
				t.Errorf("kubectl %s: no %q in\n%s", tc.command, part, out)
			}
		}
	}
}
