package httpd

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"ledge/api"
)

// printer makes the rows of a Table (N-11.18, N-11.19). Everything here is a pure function of object and time.
type printer struct {
	columns []metav1.TableColumnDefinition
	row     func(obj api.Object, now time.Time) (cells []any, conditions []metav1.TableRowCondition)
}

const (
	none    = "<none>"
	unknown = "<unknown>"
)

// table makes the Table of some objects.
func (p *printer) table(f form, objs []api.Object, meta metav1.ListMeta, header bool, now time.Time) (*metav1.Table, error) {
	t := &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: f.apiVersion()},
		ListMeta: meta,
		Rows:     make([]metav1.TableRow, 0, len(objs)),
	}
	if header {
		t.ColumnDefinitions = p.columns
	}
	for _, obj := range objs {
		cells, conditions := p.row(obj, now)
		if len(cells) != len(p.columns) {
			return nil, api.NewInternal("ledge bug: %d cells for %d columns of %T", len(cells), len(p.columns), obj)
		}
		row := metav1.TableRow{Cells: cells, Conditions: conditions}
		switch f.include {
		case "None":
		case "Object":
			row.Object = runtime.RawExtension{Object: obj}
		default:
			row.Object = runtime.RawExtension{Object: partial(obj, f.version)}
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// column describes one column. wide ones are shown with -o wide only.
func column(name, kind, text string) metav1.TableColumnDefinition {
	c := metav1.TableColumnDefinition{Name: name, Type: kind, Description: text}
	if name == "Name" {
		c.Format = "name"
	}
	return c
}

func wide(name, kind, text string) metav1.TableColumnDefinition {
	c := column(name, kind, text)
	c.Priority = 1
	return c
}

var (
	nameColumn = column("Name", "string", "The name of the object, unique within its namespace and kind.")
	ageColumn  = column("Age", "string", "The time since the object was created.")
)

// printers are the tables of all kinds.
func printers(stock bool) map[*api.Kind]*printer {
	pod := podPrinter{stock: stock}
	all := map[*api.Kind]*printer{
		api.Nodes:                  {nodeColumns, nodeRow},
		api.Pods:                   {podColumns, pod.row},
		api.Events:                 {eventColumns, eventRow},
		api.Namespaces:             {namespaceColumns, namespaceRow},
		api.ConfigMaps:             {configMapColumns, configMapRow},
		api.Secrets:                {secretColumns, secretRow},
		api.Leases:                 {leaseColumns, leaseRow},
		api.ServiceAccounts:        {serviceAccountColumns, serviceAccountRow},
		api.Services:               {serviceColumns, serviceRow},
		api.PodTemplates:           {podTemplateColumns, podTemplateRow},
		api.RuntimeClasses:         {runtimeClassColumns, runtimeClassRow},
		api.ReplicationControllers: {replicationColumns, replicationRow},
		api.Scales:                 {createdColumns, createdRow},
		api.PodDisruptionBudgets:   {budgetColumns, budgetRow},
		api.ClusterRoles:           {createdColumns, createdRow},
		api.RoleBindings:           {bindingColumns, bindingRow},
		api.ClusterRoleBindings:    {bindingColumns, bindingRow},
		api.MetricsOfNodes:         {measuredColumns, nodeMetricsRow},
		api.MetricsOfPods:          {measuredColumns, podMetricsRow},
		api.PriorityClasses: {
			priorityClassColumns, priorityClassRow,
		},
	}
	for _, k := range api.Views {
		of := all[k.View.Of]
		all[k] = &printer{of.columns, func(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
			return of.row(k.View.Read(obj), now)
		}}
	}
	for _, k := range slices.Concat(api.LaterKinds, api.AbsentKinds) {
		all[k] = &printer{columns: []metav1.TableColumnDefinition{nameColumn, ageColumn}}
	}
	return all
}

var namespaceColumns = []metav1.TableColumnDefinition{
	nameColumn, column("Status", "string", "Whether the namespace is in use or going away."), ageColumn,
}

func namespaceRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	n := obj.(*corev1.Namespace)
	return []any{n.Name, string(n.Status.Phase), age(n.CreationTimestamp, now)}, nil
}

var configMapColumns = []metav1.TableColumnDefinition{
	nameColumn, column("Data", "string", "How many keys it has."), ageColumn,
}

func configMapRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	c := obj.(*corev1.ConfigMap)
	return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), age(c.CreationTimestamp, now)}, nil
}

var secretColumns = []metav1.TableColumnDefinition{
	nameColumn,
	column("Type", "string", "What the secret is for, which says which keys it has."),
	column("Data", "string", "How many keys it has."),
	ageColumn,
}

func secretRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	s := obj.(*corev1.Secret)
	return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s.CreationTimestamp, now)}, nil
}

var leaseColumns = []metav1.TableColumnDefinition{
	nameColumn, column("Holder", "string", "Who holds the lease."), ageColumn,
}

func leaseRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	l := obj.(*coordinationv1.Lease)
	holder := ""
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	return []any{l.Name, holder, age(l.CreationTimestamp, now)}, nil
}

var priorityClassColumns = []metav1.TableColumnDefinition{
	nameColumn,
	column("Value", "integer", "The priority that pods of this class get."),
	column("Global-Default", "boolean", "Whether pods that name no class get this one."),
	ageColumn,
	column("PreemptionPolicy", "string", "Whether pods of this class may push out others."),
}

func priorityClassRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	p := obj.(*schedulingv1.PriorityClass)
	policy := ""
	if p.PreemptionPolicy != nil {
		policy = string(*p.PreemptionPolicy)
	}
	return []any{p.Name, int64(p.Value), p.GlobalDefault, age(p.CreationTimestamp, now), policy}, nil
}

var eventColumns = []metav1.TableColumnDefinition{
	column("Last Seen", "string", "When it happened last."),
	column("Type", "string", "Normal, or Warning."),
	column("Reason", "string", "Why, in one word."),
	column("Object", "string", "What it happened to."),
	wide("Subobject", "string", "Which part of it."),
	wide("Source", "string", "Who says so."),
	column("Message", "string", "What happened."),
	wide("First Seen", "string", "When it happened first."),
	wide("Count", "string", "How often it happened."),
	wide("Name", "string", "The name of the event."),
}

func eventRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	e := obj.(*corev1.Event)
	first, last, count := e.FirstTimestamp.Time, e.LastTimestamp.Time, int64(e.Count)
	if first.IsZero() {
		first = e.EventTime.Time
	}
	if last.IsZero() {
		last = first
	}
	// Events of the newer API count in a series.
	if e.Series != nil {
		last, count = e.Series.LastObservedTime.Time, int64(e.Series.Count)
	}
	count = max(count, 1)
	about := e.InvolvedObject.Name
	if e.InvolvedObject.Kind != "" {
		about = strings.ToLower(e.InvolvedObject.Kind) + "/" + about
	}
	source := []string{e.Source.Component, e.Source.Host}
	if e.Source.Component == "" {
		source = []string{e.ReportingController, e.ReportingInstance}
	}
	return []any{
		since(last, now), e.Type, e.Reason, about, e.InvolvedObject.FieldPath, strings.TrimSuffix(strings.Join(source, ", "), ", "),
		strings.TrimSpace(e.Message), since(first, now), count, e.Name,
	}, nil
}

var nodeColumns = []metav1.TableColumnDefinition{
	nameColumn,
	column("Status", "string", "Whether the node is ready, and whether it takes new pods."),
	column("Roles", "string", "The roles its labels give it."),
	ageColumn,
	column("Version", "string", "The version of its agent."),
	wide("Internal-IP", "string", "Its address inside the cluster."),
	wide("External-IP", "string", "Its address outside of the cluster."),
	wide("OS-Image", "string", "Its operating system."),
	wide("Kernel-Version", "string", "Its kernel and machine."),
	wide("Container-Runtime", "string", "What runs its containers."),
}

func nodeRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	n := obj.(*corev1.Node)
	info := n.Status.NodeInfo
	kernel := orElse(info.KernelVersion, unknown)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, nodeStatus(n), nodeRoles(n), age(n.CreationTimestamp, now), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		orElse(info.OSImage, unknown), kernel, orElse(info.ContainerRuntimeVersion, unknown),
	}, nil
}

// nodeStatus is N-11.20.
func nodeStatus(n *corev1.Node) string {
	s := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if s = "NotReady"; c.Status == corev1.ConditionTrue {
				s = "Ready"
			}
		}
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
		return none
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
	return none
}

// age is how long ago an object was made.
func age(t metav1.Time, now time.Time) string { return since(t.Time, now) }

func since(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// signalOrCode is how a container ended, when it gave no reason.
func signalOrCode(t *corev1.ContainerStateTerminated) string {
	if t.Signal != 0 {
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return "ExitCode:" + strconv.Itoa(int(t.ExitCode))
}
