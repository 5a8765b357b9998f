package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/config"
)

type getOpts struct {
	namespace, format, selector string
	all, watch                  bool
}

func getFlags(c *Command) {
	o := &getOpts{}
	namespaceFlag(c, &o.namespace)
	c.Flags.BoolVar(&o.all, "A", false, "all namespaces")
	c.Flags.StringVar(&o.format, "o", "", "wide, yaml, json or name")
	c.Flags.StringVar(&o.selector, "l", "", "label selector")
	c.Flags.BoolVar(&o.watch, "w", false, "go on and show changes")
	c.Opts = o
}

func namespaceFlag(c *Command, to *string) {
	c.Flags.StringVar(to, "n", "default", "namespace")
	c.Flags.StringVar(to, "namespace", "default", "namespace")
}

const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io"

func get(ctx context.Context, c *Command) error {
	o := c.Opts.(*getOpts)
	if len(c.args) == 0 {
		return config.Usagef("get: say what: ledge get pods")
	}
	kind, name, err := kindAndName(c.args)
	if err != nil {
		return err
	}
	switch o.format {
	case "", "wide":
		return c.getTable(ctx, kind, name, o)
	case "json", "yaml", "name":
		if o.watch {
			return config.Usagef("get: -w goes with the table only")
		}
		return c.getObjects(ctx, kind, name, o)
	}
	return config.Usagef("get: -o %s is not a format; there are wide, yaml, json and name", o.format)
}

// kindAndName reads "pods", "pod web" and "pod/web".
func kindAndName(args []string) (*api.Kind, string, error) {
	word, name, slash := strings.Cut(args[0], "/")
	kind := kinds.All.Named(word)
	if kind == nil {
		var all []string
		for _, k := range kinds.All.Kept {
			all = append(all, k.Resource)
		}
		return nil, "", config.Usagef("there is no kind %q; there are %s", word, strings.Join(all, ", "))
	}
	switch {
	case slash && len(args) == 1, !slash && len(args) == 1:
		return kind, name, nil
	case !slash && len(args) == 2:
		return kind, args[1], nil
	}
	return nil, "", config.Usagef("write KIND NAME or KIND/NAME")
}

func urlOf(kind *api.Kind, namespace, name string) string {
	p := "/api/v1"
	if kind.Group != "" {
		p = "/apis/" + kind.Group + "/" + kind.Version
	}
	if kind.Namespaced && namespace != "" {
		p = path.Join(p, "namespaces", namespace)
	}
	return path.Join(p, kind.Resource, name)
}

func (c *Command) getTable(ctx context.Context, kind *api.Kind, name string, o *getOpts) error {
	ns := o.namespace
	if o.all {
		ns = ""
	}
	q := url.Values{}
	if o.selector != "" {
		q.Set("labelSelector", o.selector)
	}
	var t metav1.Table
	resp, err := c.Raw(ctx, "GET", urlOf(kind, ns, name), q, tableAccept, nil)
	if err != nil {
		return err
	}
	err = json.NewDecoder(resp.Body).Decode(&t)
	resp.Body.Close()
	if err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	p := &tablePrinter{w: tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0), wide: o.format == "wide", namespaces: o.all && kind.Namespaced}
	if len(t.Rows) == 0 && !o.watch {
		where := ""
		if kind.Namespaced && !o.all {
			where = fmt.Sprintf(" in %s namespace", ns)
		}
		_, err := say(c.Err, "No resources found%s.\n", where)
		return err
	}
	if err := p.print(t); err != nil || !o.watch {
		return err
	}
	return c.watchTable(ctx, kind, ns, name, t.ResourceVersion, q, p)
}

func (c *Command) watchTable(ctx context.Context, kind *api.Kind, ns, name, rev string, q url.Values, p *tablePrinter) error {
	q.Set("watch", "true")
	q.Set("resourceVersion", rev)
	if name != "" {
		q.Set("fieldSelector", "metadata.name="+name)
	}
	resp, err := c.Raw(ctx, "GET", urlOf(kind, ns, ""), q, tableAccept, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		var e struct {
			Type   string       `json:"type"`
			Object metav1.Table `json:"object"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if e.Type == "ERROR" {
			return fmt.Errorf("watch ended: %s", line)
		}
		if e.Type != string(api.Bookmark) {
			if err := p.print(e.Object); err != nil {
				return err
			}
		}
	}
}

// tablePrinter writes tables the way kubectl does.
type tablePrinter struct {
	w          *tabwriter.Writer
	wide       bool
	namespaces bool
	columns    []metav1.TableColumnDefinition
}

func (p *tablePrinter) print(t metav1.Table) error {
	if p.columns == nil {
		p.columns = t.ColumnDefinitions
		var head []any
		if p.namespaces {
			head = append(head, "NAMESPACE")
		}
		for _, col := range p.columns {
			if p.wide || col.Priority == 0 {
				head = append(head, strings.ToUpper(col.Name))
			}
		}
		row(p.w, head...)
	}
	for _, line := range t.Rows {
		var cells []any
		if p.namespaces {
			var m metav1.PartialObjectMetadata
			if err := json.Unmarshal(line.Object.Raw, &m); err != nil {
				return fmt.Errorf("read the node's answer: %w", err)
			}
			cells = append(cells, m.Namespace)
		}
		for i, cell := range line.Cells {
			if i < len(p.columns) && (p.wide || p.columns[i].Priority == 0) {
				cells = append(cells, cell)
			}
		}
		row(p.w, cells...)
	}
	return p.w.Flush()
}

func (c *Command) getObjects(ctx context.Context, kind *api.Kind, name string, o *getOpts) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if name != "" {
		obj, err := cl.Get(ctx, kind, o.namespace, name)
		if err != nil {
			return err
		}
		return c.printObjects(kind, o.format, obj, []api.Object{obj})
	}
	opts := api.ListOptions{}
	if !o.all && kind.Namespaced {
		opts.Namespace = o.namespace
	}
	if o.selector != "" {
		if opts.Labels, err = labels.Parse(o.selector); err != nil {
			return config.Usagef("get: -l %s: %v", o.selector, err)
		}
	}
	list, err := cl.List(ctx, kind, opts)
	if err != nil {
		return err
	}
	whole := map[string]any{"apiVersion": "v1", "kind": "List", "items": list.Items,
		"metadata": map[string]string{"resourceVersion": list.Revision}}
	return c.printObjects(kind, o.format, whole, list.Items)
}

func (c *Command) printObjects(kind *api.Kind, format string, whole any, items []api.Object) error {
	if format == "name" {
		var names []string
		for _, o := range items {
			names = append(names, kind.Singular+"/"+o.GetName())
		}
		slices.Sort(names)
		for _, n := range names {
			say(c.out, "%s\n", n)
		}
		return nil
	}
	data, err := json.MarshalIndent(whole, "", "    ")
	data = visibleJSON(data)
	if err == nil && format == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stream(c.out), strings.TrimRight(string(data), "\n")) // which must stay what it is
	return err
}
