package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
	"ledge/api/coordination"
)

var listCases = []Case{
	{"List", testList},
	{"ListSelectors", testListSelectors},
	{"ListPages", testListPages},
	{"ListPagesOfOneMoment", testListPagesOfOneMoment},
	{"ListRevisions", testListRevisions},
	{"EventFields", testEventFields},
}

func (e *env) list(kind *api.Kind, opts api.ListOptions) api.List {
	e.Helper()
	if kind.Namespaced && opts.Namespace == "" {
		opts.Namespace = e.ns
	}
	l, err := e.c.List(e.ctx, kind, opts)
	e.must(err)
	return l
}

func testList(t *testing.T, c api.Client) {
	e := begin(t, c)
	if l := e.list(coordination.Leases, api.ListOptions{}); len(l.Items) != 0 || l.Revision == "" {
		t.Errorf("an empty list: %+v", l)
	}
	for _, n := range []string{"b", "c", "a"} {
		e.create(e.configMap(n, "k", n))
	}
	var mine []api.Object
	for _, o := range e.list(api.ConfigMaps, api.ListOptions{}).Items {
		if o.GetName() != "kube-root-ca.crt" { // a real cluster puts it everywhere
			mine = append(mine, o)
		}
		if k := o.GetObjectKind().GroupVersionKind(); k != api.ConfigMaps.GVK() {
			t.Errorf("%s is a %v", o.GetName(), k)
		}
	}
	if names(mine) != "a b c" {
		t.Errorf("got %s", names(mine))
	}
	all, err := c.List(e.ctx, api.ConfigMaps, api.ListOptions{})
	e.must(err)
	found := 0
	for _, o := range all.Items {
		if o.GetNamespace() == e.ns {
			found++
		}
	}
	if found < 3 {
		t.Errorf("the list of all namespaces has %d of 3", found)
	}
}

func fieldSel(s string) api.Selection { return api.Selection{Fields: fields.ParseSelectorOrDie(s)} }

func labelSel(t *testing.T, s string) api.Selection {
	t.Helper()
	sel, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return api.Selection{Labels: sel}
}

func testListSelectors(t *testing.T, c api.Client) { // N-11.35, N-11.36
	e := begin(t, c)
	for name, l := range map[string]map[string]string{"a": {"app": "x", "tier": "1"}, "b": {"app": "x"}, "c": {"app": "y"}, "d": nil} {
		p := e.pod(name)
		p.Labels = l
		if name == "b" {
			p.Spec.NodeName = "apitest-no-such-node"
		}
		e.create(p)
	}
	for _, tc := range []struct {
		sel  api.Selection
		want string
	}{
		{labelSel(t, "app=x"), "a b"},
		{labelSel(t, "app!=x"), "c d"},
		{labelSel(t, "app in (x,y),!tier"), "b c"},
		{labelSel(t, "app"), "a b c"},
		{fieldSel("metadata.name=b"), "b"},
		{fieldSel("metadata.name!=b,status.phase=Pending"), "a c d"},
		{fieldSel("spec.nodeName=apitest-no-such-node"), "b"},
		{fieldSel("spec.nodeName="), "a c d"},
		{fieldSel("status.phase!=Succeeded,status.phase!=Failed"), "a b c d"},
		{fieldSel("metadata.namespace=" + e.ns), "a b c d"},
		{api.Selection{Labels: labelSel(t, "app=x").Labels, Fields: fieldSel("spec.nodeName=").Fields}, "a"},
	} {
		if got := names(e.list(api.Pods, api.ListOptions{Selection: tc.sel}).Items); got != tc.want {
			t.Errorf("%v %v: got %q, want %q", tc.sel.Labels, tc.sel.Fields, got, tc.want)
		}
	}
	_, err := c.List(e.ctx, api.Pods, api.ListOptions{Selection: fieldSel("spec.foo=x")})
	e.fails(err, metav1.StatusReasonBadRequest, 400)
	_, err = c.Watch(e.ctx, api.Pods, api.WatchOptions{Selection: fieldSel("spec.foo=x")})
	e.fails(err, metav1.StatusReasonBadRequest, 400)
}

func testListPages(t *testing.T, c api.Client) { // N-11.29
	e := begin(t, c)
	for i := range 7 {
		e.create(e.pod(counted(i)))
	}
	var got []api.Object
	opts := api.ListOptions{Limit: 3}
	for pages := 1; ; pages++ {
		l := e.list(api.Pods, opts)
		got = append(got, l.Items...)
		if pages == 1 && (l.Remaining == nil || *l.Remaining != 4) {
			t.Errorf("remaining: %v", l.Remaining)
		}
		if l.Continue == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		if int64(len(l.Items)) != opts.Limit {
			t.Errorf("a page of %d", len(l.Items))
		}
		opts.Continue = l.Continue
	}
	if names(got) != "x000 x001 x002 x003 x004 x005 x006" {
		t.Errorf("got %s", names(got))
	}
	_, err := c.List(e.ctx, api.Pods, api.ListOptions{Selection: api.Selection{Namespace: e.ns}, Limit: 3, Continue: "no token"})
	e.fails(err, metav1.StatusReasonBadRequest, 400)
}

// What changes between two pages does not show: the pages are one list.
func testListPagesOfOneMoment(t *testing.T, c api.Client) {
	e := begin(t, c)
	for i := range 6 {
		e.create(e.pod(counted(i)))
	}
	first := e.list(api.Pods, api.ListOptions{Limit: 2})
	e.delete(e.pod("x003"), api.DeleteOptions{})
	e.create(e.pod("x0041"))
	_, err := e.c.Patch(e.ctx, api.Pods, e.ns, "x004",
		api.Patch{Type: "application/merge-patch+json", Data: []byte(`{"metadata":{"labels":{"new":"yes"}}}`)}, api.WriteOptions{})
	e.must(err)
	rest := e.list(api.Pods, api.ListOptions{Continue: first.Continue})
	if got := names(append(first.Items, rest.Items...)); got != "x000 x001 x002 x003 x004 x005" {
		t.Errorf("got %s", got)
	}
	if rest.Revision != first.Revision {
		t.Errorf("the pages are of %s and %s", first.Revision, rest.Revision)
	}
	for _, o := range rest.Items {
		if o.GetLabels()["new"] != "" {
			t.Errorf("%s is newer than the list", o.GetName())
		}
	}
	if got := names(e.list(api.Pods, api.ListOptions{}).Items); got != "x000 x001 x002 x004 x0041 x005" {
		t.Errorf("a new list: got %s", got)
	}
}

func testListRevisions(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.pod("a"))
	before := e.list(api.Pods, api.ListOptions{})
	b := e.create(e.pod("b"))
	for what, opts := range map[string]api.ListOptions{
		"a b": {Revision: b.GetResourceVersion()},
		"a":   {Revision: before.Revision, Match: metav1.ResourceVersionMatchExact},
	} {
		l := e.list(api.Pods, opts)
		if names(l.Items) != what {
			t.Errorf("%+v: got %s, want %s", opts, names(l.Items), what)
		}
	}
	if l := e.list(api.Pods, api.ListOptions{Revision: "0"}); len(l.Items) > 2 {
		t.Errorf("any revision: got %s", names(l.Items))
	}
	_, err := c.List(e.ctx, api.Pods, api.ListOptions{Revision: "9223372036854775807"})
	if !apierrors.IsTimeout(err) {
		t.Errorf("want a timeout, got %v", err)
	}
	if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("no cause ResourceVersionTooLarge: %v", err)
	}
	_, err = c.List(e.ctx, api.Pods, api.ListOptions{Revision: "x"})
	if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		t.Errorf("want 400, got %v", err)
	}
}

func testEventFields(t *testing.T, c api.Client) { // N-11.37
	e := begin(t, c)
	for _, name := range []string{"a", "b"} {
		e.create(&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: e.ns},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: e.ns, Name: "pod-" + name, UID: "uid-1"},
			Reason:         "Tested", Type: corev1.EventTypeNormal, Source: corev1.EventSource{Component: "apitest"},
		})
	}
	for sel, want := range map[string]string{
		"involvedObject.name=pod-a":                               "a",
		"involvedObject.uid=uid-1,involvedObject.kind=Pod":        "a b",
		"involvedObject.kind=Node":                                "",
		"reason=Tested,type=Normal":                               "a b",
		"source=apitest,involvedObject.namespace=" + e.ns:         "a b",
		"involvedObject.apiVersion=v1,involvedObject.name!=pod-a": "b",
	} {
		if got := names(e.list(api.Events, api.ListOptions{Selection: fieldSel(sel)}).Items); got != want {
			t.Errorf("%s: got %q, want %q", sel, got, want)
		}
	}
}
