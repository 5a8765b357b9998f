package api

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
)

// Nodes are the boards.
var Nodes = Define(Kind{Version: "v1", Name: "Node", Resource: "nodes", Singular: "node", Short: []string{"no"}},
	Rules[*corev1.Node]{
		New: func() *corev1.Node { return &corev1.Node{} }, NewList: func() ListObject { return &corev1.NodeList{} },
		Default:  defaultNode,
		Validate: validateNode,
		ValidateUpdate: func(n, old *corev1.Node, _ string) field.ErrorList {
			return append(validateNode(n), validateNodeUpdate(n, old)...)
		},
		Spec:   func(n *corev1.Node) any { return &n.Spec },
		Status: func(n *corev1.Node) any { return &n.Status },
		Beat:   nodeBeat,
		Fields: []Field[*corev1.Node]{
			{"spec.unschedulable", func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) }}},
		Columns: nodeColumns,
		Cells:   nodeCells,
	})

func nodeBeat(n, was *corev1.Node) *corev1.Node {
	c := *n
	c.Status.Conditions = slices.Clone(c.Status.Conditions)
	for i := range min(len(c.Status.Conditions), len(was.Status.Conditions)) {
		c.Status.Conditions[i].LastHeartbeatTime = was.Status.Conditions[i].LastHeartbeatTime
	}
	return &c
}

func defaultNode(n *corev1.Node) {
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	roundUp(n.Status.Capacity)
	roundUp(n.Status.Allocatable)
	// podCIDR is the old singular of podCIDRs. Who says one of them means both; where they differ, validation says so.
	switch {
	case n.Spec.PodCIDR == "" && len(n.Spec.PodCIDRs) > 0:
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	case len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "":
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	}
}

var nodeColumns = table.Columns{
	table.Name,
	table.Column("Status", "string", "Whether the node is ready, and whether it takes new pods."),
	table.Column("Roles", "string", "The roles its labels give it."),
	table.Age,
	table.Column("Version", "string", "The version of its agent."),
	table.Wide("Internal-IP", "string", "Its address inside the cluster."),
	table.Wide("External-IP", "string", "Its address outside of the cluster."),
	table.Wide("OS-Image", "string", "Its operating system."),
	table.Wide("Kernel-Version", "string", "Its kernel and machine."),
	table.Wide("Container-Runtime", "string", "What runs its containers."),
}

func nodeCells(n *corev1.Node, l table.Look) []any {
	info := n.Status.NodeInfo
	kernel := table.OrElse(info.KernelVersion, table.Unknown)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, nodeStatus(n), nodeRoles(n), l.AgeOf(n), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		table.OrElse(info.OSImage, table.Unknown), kernel, table.OrElse(info.ContainerRuntimeVersion, table.Unknown),
	}
}

// nodeStatus is N-11.20.
func nodeStatus(n *corev1.Node) string {
	s := "Unknown"
	if NodeCondition(n, corev1.NodeReady) != nil {
		s = "NotReady"
	}
	if NodeReady(n) {
		s = "Ready"
	}
	if n.Spec.Unschedulable {
		s += ",SchedulingDisabled"
	}
	return s
}

// nodeRoles are the roles of a node's labels: node-role.kubernetes.io/<role>, or kubernetes.io/role=<role>.
func nodeRoles(n *corev1.Node) string {
	roles := map[string]bool{}
	for k, v := range n.Labels {
		if role, ok := strings.CutPrefix(k, "node-role.kubernetes.io/"); ok && role != "" {
			roles[role] = true
		}
		if k == "kubernetes.io/role" && v != "" {
			roles[v] = true
		}
	}
	if len(roles) == 0 {
		return table.None
	}
	out := make([]string, 0, len(roles))
	for r := range roles {
		out = append(out, r)
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return table.None
}
