package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/config"
)

type topOpts struct {
	namespace       string
	all, containers bool
}

func topFlags(c *Command) {
	o := &topOpts{}
	namespaceFlag(c, &o.namespace)
	c.Flags.BoolVar(&o.all, "A", false, "all namespaces")
	c.Flags.BoolVar(&o.containers, "containers", false, "each container of a pod")
	c.Opts = o
}

// top shows what nodes or pods use, those that use most CPU first.
func top(ctx context.Context, c *Command) error {
	o := c.Opts.(*topOpts)
	if len(c.args) < 1 || len(c.args) > 2 {
		return config.Usagef("top: write nodes or pods, and maybe a name")
	}
	kind := kinds.All.Named(c.args[0])
	if kind != api.Nodes && kind != api.Pods {
		return config.Usagef("top: %q is neither nodes nor pods", c.args[0])
	}
	measured := api.MetricsOfNodes
	var opts api.ListOptions
	if kind == api.Pods {
		measured = api.MetricsOfPods
		if !o.all {
			opts.Namespace = o.namespace
		}
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	list, err := cl.List(ctx, measured, opts)
	if err != nil {
		return err
	}
	items := list.Items
	if len(c.args) == 2 {
		items = slices.DeleteFunc(items, func(m api.Object) bool { return m.GetName() != c.args[1] })
		if len(items) == 0 {
			return fmt.Errorf("%s %q has not been measured: it is not there, does not run, or has only just begun to", kind.Singular, c.args[1])
		}
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0)
	if kind == api.Nodes {
		nodes, err := cl.List(ctx, api.Nodes, api.ListOptions{})
		if err != nil {
			return err
		}
		topNodes(w, items, nodes.Items)
	} else {
		topPods(w, items, *o)
	}
	return w.Flush()
}

func topNodes(w *tabwriter.Writer, items, nodes []api.Object) {
	fmt.Fprintln(w, "NAME\tCPU(cores)\tCPU(%)\tMEMORY(bytes)\tMEMORY(%)")
	for _, obj := range items {
		m := obj.(*api.NodeMetrics)
		var whole corev1.ResourceList
		if i := slices.IndexFunc(nodes, func(n api.Object) bool { return n.GetName() == m.Name }); i >= 0 {
			whole = nodes[i].(*corev1.Node).Status.Allocatable
		}
		cpu, memory := m.Usage.Cpu().MilliValue(), m.Usage.Memory().Value()
		row(w, m.Name, fmt.Sprintf("%dm", cpu), percent(cpu, whole.Cpu().MilliValue()), fmt.Sprintf("%dMi", memory>>20),
			percent(memory, whole.Memory().Value()))
	}
}

// percent is a part of what there is, as kubectl rounds it.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "<unknown>"
	}
	return fmt.Sprintf("%d%%", int64(float64(part)/float64(whole)*100))
}

func topPods(w *tabwriter.Writer, items []api.Object, o topOpts) {
	type line struct {
		head        string
		cpu, memory int64
	}
	var lines []line
	for _, obj := range items {
		m := obj.(*api.PodMetrics)
		head := inLine(m.Name)
		if o.all {
			head = inLine(m.Namespace) + "\t" + head
		}
		sum := line{head: head}
		for _, c := range m.Containers {
			cpu, memory := c.Usage.Cpu().MilliValue(), c.Usage.Memory().Value()
			if o.containers {
				lines = append(lines, line{head + "\t" + inLine(c.Name), cpu, memory})
			}
			sum.cpu, sum.memory = sum.cpu+cpu, sum.memory+memory
		}
		if !o.containers {
			lines = append(lines, sum)
		}
	}
	sort.SliceStable(lines, func(i, j int) bool {
		a, b := lines[i], lines[j]
		return cmp.Or(cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.memory, a.memory), cmp.Compare(a.head, b.head)) < 0
	})
	head := "NAME"
	if o.containers {
		head = "POD\tNAME"
	}
	if o.all {
		head = "NAMESPACE\t" + head
	}
	fmt.Fprintln(w, head+"\tCPU(cores)\tMEMORY(bytes)")
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%dm\t%dMi\n", l.head, l.cpu, l.memory>>20)
	}
}
