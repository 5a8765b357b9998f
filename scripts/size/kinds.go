package main

import (
	"cmp"
	"debug/elf"
	"debug/gosym"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strings"

	"ledge/api"
	"ledge/api/kinds"
)

// rooms are the loops and pure rooms that are there for one kind alone, by their directory or file.
var rooms = map[string]string{
	"ledge/controller/autoscale":      "autoscaling HorizontalPodAutoscaler",
	"ledge/controller/autoscalers.go": "autoscaling HorizontalPodAutoscaler",
	"ledge/controller/jobs":           "batch Job", "ledge/controller/jobs.go": "batch Job",
	"ledge/controller/cronjobs": "batch CronJob", "ledge/controller/cronjobs.go": "batch CronJob",
	"ledge/controller/deployments.go": "apps Deployment", "ledge/controller/workload": "apps, several kinds",
	"ledge/controller/budgets.go": "policy PodDisruptionBudget",
}

// prices are what the binary has for the sake of one kind: the code of the types that no other kind has, of the file of its rules,
// and of its loop. What several kinds of a group have is the group's.
type prices struct {
	of    map[string]string // name of a type, of a package of Kubernetes, or of a file: whose it is
	lines *gosym.Table
	sum   sums
}

func newPrices(file *elf.File) (*prices, error) {
	section, text := file.Section(".gopclntab"), file.Section(".text")
	if section == nil || text == nil {
		return nil, fmt.Errorf("no table of lines: is it a Go program?")
	}
	data, err := section.Data()
	if err != nil {
		return nil, err
	}
	lines, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil, err
	}
	return &prices{of: owners(), lines: lines, sum: sums{}}, nil
}

func owners() map[string]string {
	p := &prices{of: map[string]string{}}
	for _, k := range slices.Concat(kinds.All.Kept, kinds.All.Views) {
		p.own(k)
	}
	return p.of
}

// own notes what a kind has, for itself as long as no other kind has it.
func (p *prices) own(k *api.Kind) {
	group := path.Base("/" + strings.SplitN(k.Group, ".", 2)[0])
	if group == "/" {
		group = "core"
	}
	name := group + " " + k.Name
	if k.View != nil {
		name += " " + k.Version
	}
	take := func(what string) {
		switch was := p.of[what]; {
		case was == "" || was == name:
			p.of[what] = name
		case strings.HasPrefix(was, group+" ") || strings.HasPrefix(was, group+","):
			p.of[what] = group + ", several kinds"
		default:
			p.of[what] = "several groups"
		}
	}
	seen := map[reflect.Type]bool{}
	reach(reflect.TypeOf(k.New()), seen)
	reach(reflect.TypeOf(k.NewList()), seen)
	for t := range seen {
		take(t.PkgPath() + "." + t.Name())
		take(t.PkgPath())
	}
	dir := "ledge/api/" + group
	if group == "core" {
		dir = "ledge/api"
	}
	take(dir + "/" + strings.ToLower(k.Name) + ".go")
}

// reach notes the structs of Kubernetes' groups that a type is made of.
func reach(t reflect.Type, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		reach(t.Elem(), seen)
	case reflect.Struct:
		if seen[t] || !strings.HasPrefix(t.PkgPath(), "k8s.io/api/") {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			reach(t.Field(i).Type, seen)
		}
	}
}

// add counts a function for the kind that it is there for, if it is there for one.
func (p *prices) add(symbol string, addr, size uint64) {
	file, _, _ := p.lines.PCToLine(addr)
	whose := cmp.Or(p.of[typeOf(symbol)], rooms[file], rooms[path.Dir(file)], p.of[file], p.of[packageOf(symbol)])
	if whose != "" && whose != "several groups" {
		p.sum[whose] += size
	}
}

// typeOf is the type whose method a symbol is, with its package; "" for functions.
func typeOf(symbol string) string {
	pkg := packageOf(symbol)
	rest, ok := strings.CutPrefix(strings.ReplaceAll(symbol, "%2e", "."), pkg+".")
	if pkg == "" || !ok {
		return ""
	}
	rest, _, _ = strings.Cut(rest, "[")
	name, _, method := strings.Cut(rest, ".")
	if !method {
		return ""
	}
	return pkg + "." + strings.Trim(name, "(*)")
}

func (p *prices) print(w io.Writer) {
	fmt.Fprintln(w, "\nCode that is there for one kind: its types, the file of its rules, its loop. Tables of lines and types come on top.")
	p.sum.print(w)
}
