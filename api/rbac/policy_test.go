package rbac_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/rbac"
)

// TestAllows: one role, one binding, one question.
func TestAllows(t *testing.T) {
	rule := func(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: strings.Split(groups, ","), Resources: strings.Fields(resources),
			ResourceNames: names}
	}
	paths := func(verbs string, urls ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: strings.Fields(verbs), NonResourceURLs: urls}
	}
	res := func(verb, group, resource, sub, name string) rbac.Ask {
		return rbac.Ask{Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: "n", Name: name}
	}
	path := func(verb, path string) rbac.Ask { return rbac.Ask{Verb: verb, Path: path} }
	for i, tc := range []struct {
		rule rbacv1.PolicyRule
		ask  rbac.Ask
		want bool
	}{
		{rule("get", "", "pods"), res("get", "", "pods", "", "x"), true},
		{rule("get", "", "pods"), res("list", "", "pods", "", ""), false},
		{rule("get", "", "pods"), res("get", "apps", "pods", "", "x"), false},
		{rule("get", "", "pods"), res("get", "", "pods", "log", "x"), false},
		{rule("get", "", "pods/log"), res("get", "", "pods", "log", "x"), true},
		{rule("get", "", "pods/log"), res("get", "", "pods", "", "x"), false},
		{rule("get", "", "*/log"), res("get", "", "pods", "log", "x"), true},
		{rule("get", "", "*/log"), res("get", "", "pods", "exec", "x"), false},
		{rule("get", "", "*/log"), res("get", "", "pods", "", "x"), false},
		{rule("get", "", "pods/*"), res("get", "", "pods", "log", "x"), false}, // as upstream: this is no pattern
		{rule("get", "", "*"), res("get", "", "pods", "log", "x"), true},
		{rule("*", "*", "*"), res("impersonate", "x", "y", "z", ""), true},
		{rule("get", ",apps", "deployments"), res("get", "apps", "deployments", "", "x"), true},
		{rule("get", "", "pods", "a", "b"), res("get", "", "pods", "", "b"), true},
		{rule("get", "", "pods", "a", "b"), res("get", "", "pods", "", "c"), false},
		{rule("create", "", "pods", "a"), res("create", "", "pods", "", ""), false}, // a create names nothing
		{rule("list", "", "pods", "a"), res("list", "", "pods", "", ""), false},
		{rule("*", "*", "*"), path("get", "/metrics"), false},
		{paths("get", "/metrics"), path("get", "/metrics"), true},
		{paths("get", "/metrics"), path("get", "/metrics/x"), false},
		{paths("get", "/metrics"), path("post", "/metrics"), false},
		{paths("get", "/metrics/*"), path("get", "/metrics/x"), true},
		{paths("get", "/metrics/*"), path("get", "/metrics"), false},
		{paths("get", "*"), path("get", "/any"), true},
		{paths("*", "*"), path("*", "*"), true},
		{paths("get", "*"), path("*", "*"), false},
		{paths("*", "/*"), path("*", "*"), false},
		{paths("*", "*"), res("get", "", "pods", "", "x"), false},
	} {
		var p rbac.Policy
		p.Set(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{tc.rule}})
		p.Set(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}}})
		if _, got := p.Allows(api.User{Name: "bob"}, tc.ask); got != tc.want {
			t.Errorf("%d: %v asks %+v: %v", i, tc.rule, tc.ask, got)
		}
		if _, got := p.Allows(api.User{Name: "bo"}, tc.ask); got {
			t.Errorf("%d: somebody else may", i)
		}
	}
}

// TestSubjects: whom a binding names, and what it says about it.
func TestSubjects(t *testing.T) {
	account := api.AccountUser("n", "a")
	for _, tc := range []struct {
		name      string
		namespace string // of the binding
		subjects  []rbacv1.Subject
		user      api.User
		want      string // of what is said; "" is no
	}{
		{"user", "", []rbacv1.Subject{{Kind: "User", Name: "bob"}}, api.User{Name: "bob"},
			`ClusterRoleBinding "b" of ClusterRole "r" to User "bob"`},
		{"another user", "", []rbacv1.Subject{{Kind: "User", Name: "bob"}}, api.User{Name: "bo"}, ""},
		{"a user called like the group", "", []rbacv1.Subject{{Kind: "Group", Name: "bob"}}, api.User{Name: "bob"}, ""},
		{"a group called like the user", "", []rbacv1.Subject{{Kind: "User", Name: "ops"}}, api.User{Name: "bob", Groups: []string{"ops"}}, ""},
		{"group", "n", []rbacv1.Subject{{Kind: "Group", Name: "ops"}}, api.User{Name: "bob", Groups: []string{"x", "ops"}},
			`RoleBinding "b/n" of ClusterRole "r" to Group "ops"`},
		{"everybody", "", []rbacv1.Subject{{Kind: "Group", Name: api.AuthenticatedGroup}}, account, `Group "system:authenticated"`},
		{"account", "", []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "n", Name: "a"}}, account, `to ServiceAccount "a/n"`},
		{"account of another namespace", "", []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "m", Name: "a"}}, account, ""},
		{"account of the binding's namespace", "n", []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a"}}, account, `to ServiceAccount "a/n"`},
		{"account without a namespace", "", []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a"}}, api.User{Name: "system:serviceaccount::a"},
			""},
		{"account without a namespace, of nobody", "", []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a"}}, api.User{}, ""},
		{"account as a user", "", []rbacv1.Subject{{Kind: "User", Name: account.Name}}, account, `to User "system:serviceaccount:n:a"`},
		{"all accounts of a namespace", "n", []rbacv1.Subject{{Kind: "Group", Name: "system:serviceaccounts:n"}}, account, "to Group"},
		{"the second subject", "", []rbacv1.Subject{{Kind: "User", Name: "x"}, {Kind: "User", Name: "bob"}}, api.User{Name: "bob"},
			`to User "bob"`},
		{"nobody", "", nil, api.User{Name: "bob"}, ""},
		{"a robot", "", []rbacv1.Subject{{Kind: "Robot", Name: "bob"}}, api.User{Name: "bob"}, ""},
		{"a node", "", []rbacv1.Subject{{Kind: "User", Name: "system:node:x"}, {Kind: "Group", Name: api.NodesGroup}},
			api.User{Name: "system:node:x", Groups: []string{api.NodesGroup}}, ""},
		{"nobody known", "", []rbacv1.Subject{{Kind: "User", Name: "system:anonymous"}, {Kind: "Group", Name: api.UnauthenticatedGroup}},
			api.User{Name: "system:anonymous", Groups: []string{api.UnauthenticatedGroup}}, ""},
	} {
		var p rbac.Policy
		p.Set(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: rbac.Everything()})
		ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}
		if tc.namespace == "" {
			p.Set(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: ref, Subjects: tc.subjects})
		} else {
			p.Set(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: tc.namespace}, RoleRef: ref, Subjects: tc.subjects})
		}
		grant, ok := p.Allows(tc.user, rbac.Ask{Verb: "get", Resource: "pods", Namespace: "n"})
		if ok != (tc.want != "") || ok && !strings.Contains(grant.String(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, ok, tc.want)
			if ok {
				t.Log(grant)
			}
		}
		if got := len(p.Rules(tc.user, "n")) > 0; got != ok {
			t.Errorf("%s: rules say %v", tc.name, got)
		}
	}
}

// world makes roles, bindings, users and questions of few words, so that they meet.
type world struct{ *rand.Rand }

func (w world) pick(of ...string) string { return of[w.IntN(len(of))] }

func (w world) some(of ...string) (out []string) {
	for range 1 + w.IntN(2) {
		out = append(out, w.pick(of...))
	}
	return out
}

func (w world) rules(paths bool) (out []rbacv1.PolicyRule) {
	for range w.IntN(3) {
		r := rbacv1.PolicyRule{Verbs: w.some("get", "list", "*")}
		if paths && w.IntN(3) == 0 {
			r.NonResourceURLs = w.some("/a", "/a/*", "/a*", "*", "/b")
		} else {
			r.APIGroups, r.Resources = w.some("", "apps", "*"), w.some("pods", "pods/log", "*/log", "nodes", "*")
			if w.IntN(2) == 0 {
				r.ResourceNames = w.some("x", "y")
			}
		}
		out = append(out, r)
	}
	return out
}

func (w world) object() api.Object {
	meta := metav1.ObjectMeta{Name: w.pick("a", "b", "c"), Namespace: w.pick("m", "n")}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: w.pick("Role", "ClusterRole"), Name: w.pick("a", "b", "c")}
	var subjects []rbacv1.Subject
	for range w.IntN(3) {
		subjects = append(subjects, rbacv1.Subject{Kind: w.pick("User", "Group", "ServiceAccount"), Name: w.pick("u", "v", "g"),
			Namespace: w.pick("", "m", "n")})
	}
	switch w.IntN(4) {
	case 0:
		return &rbacv1.Role{ObjectMeta: meta, Rules: w.rules(false)}
	case 1:
		meta.Namespace = ""
		return &rbacv1.ClusterRole{ObjectMeta: meta, Rules: w.rules(true)}
	case 2:
		return &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
	}
	meta.Namespace, ref.Kind = "", "ClusterRole"
	return &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
}

func (w world) user() api.User {
	if w.IntN(3) == 0 {
		return api.AccountUser(w.pick("m", "n"), w.pick("u", "v"))
	}
	u := api.User{Name: w.pick("u", "v", "g"), Groups: w.some("g", "u", "x")}
	if w.IntN(8) == 0 {
		u.Groups = append(u.Groups, api.NodesGroup)
	}
	return u
}

func (w world) ask() rbac.Ask {
	if w.IntN(4) == 0 {
		return rbac.Ask{Verb: w.pick("get", "list"), Path: w.pick("/a", "/a/x", "/ab", "/b", "*")}
	}
	return rbac.Ask{Verb: w.pick("get", "list", "watch"), Group: w.pick("", "apps"), Resource: w.pick("pods", "nodes"),
		Subresource: w.pick("", "", "log"),
		Namespace:   w.pick("", "m", "n"), Name: w.pick("", "x", "y")}
}

// slow answers from lists, by the sentences of Kubernetes' documents: what Policy must agree with.
type slow map[string]api.Object

func (s slow) key(o api.Object) string {
	return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
}

func (s slow) allows(u api.User, a rbac.Ask) bool {
	if slices.Contains(u.Groups, api.NodesGroup) {
		return false
	}
	for _, o := range s {
		ref, subjects := rbac.BindingOf(o)
		if ns := o.GetNamespace(); ns != "" && (ns != a.Namespace || a.Resource == "") ||
			!slices.ContainsFunc(subjects, func(j rbacv1.Subject) bool {
				switch j.Kind {
				case "User":
					return j.Name == u.Name
				case "Group":
					return slices.Contains(u.Groups, j.Name)
				}
				if j.Namespace == "" {
					j.Namespace = ns
				}
				return j.Namespace != "" && u.Name == "system:serviceaccount:"+j.Namespace+":"+j.Name
			}) {
			continue
		}
		key := "*v1.ClusterRole /" + ref.Name
		if ref.Kind == "Role" {
			key = "*v1.Role " + o.GetNamespace() + "/" + ref.Name
		}
		role, ok := s[key]
		if !ok {
			continue
		}
		rules, _ := rbac.RulesOf(role)
		if slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slowRule(r, a) }) {
			return true
		}
	}
	return false
}

func slowRule(r rbacv1.PolicyRule, a rbac.Ask) bool {
	one := func(list []string, want ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(want, s) })
	}
	if !one(r.Verbs, a.Verb, "*") {
		return false
	}
	if a.Resource == "" {
		return slices.ContainsFunc(r.NonResourceURLs, func(url string) bool {
			return url == a.Path || strings.HasSuffix(url, "*") && strings.HasPrefix(a.Path, url[:len(url)-1])
		})
	}
	what := []string{"*", a.Resource}
	if a.Subresource != "" {
		what = []string{"*", a.Resource + "/" + a.Subresource, "*/" + a.Subresource}
	}
	return one(r.APIGroups, a.Group, "*") && one(r.Resources, what...) && (len(r.ResourceNames) == 0 || one(r.ResourceNames, a.Name))
}

// FuzzPolicy: after any changes, Policy says what all lists together say, and weighs nothing once everything is gone.
func FuzzPolicy(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint16(60))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		w := world{rand.New(rand.NewPCG(seed, 1))}
		var p rbac.Policy
		all := slow{}
		for range steps % 300 {
			o := w.object()
			if w.IntN(3) == 0 {
				p.Remove(o)
				delete(all, all.key(o))
			} else {
				p.Set(o)
				all[all.key(o)] = o
			}
			u, a := w.user(), w.ask()
			grant, got := p.Allows(u, a)
			if want := all.allows(u, a); got != want {
				t.Fatalf("%v may %+v: %v, want %v (%v)", u, a, got, want, all)
			}
			if got && grant.String() == "" {
				t.Fatal("a grant says nothing")
			}
			// Rules are the same in other words.
			if in := slices.ContainsFunc(p.Rules(u, a.Namespace), func(r rbacv1.PolicyRule) bool { return slowRule(r, a) }); in != got {
				t.Fatalf("%v may %+v: %v, its rules say %v", u, a, got, in)
			}
		}
		for _, o := range all {
			p.Remove(o)
		}
		for _, ns := range []string{"", "m", "n"} {
			if p.Held(ns) != 0 {
				t.Errorf("%d bytes are left in %q", p.Held(ns), ns)
			}
		}
	})
}

// FuzzMissing: who lacks nothing of some rules may do all that they allow, and who lacks something is told what.
func FuzzMissing(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := world{rand.New(rand.NewPCG(seed, 2))}
		have := slices.Concat(w.rules(true), w.rules(true), w.rules(true))
		want := w.rules(true)
		missing, err := rbac.Missing(have, want)
		if err != nil {
			t.Fatal(err)
		}
		allows := func(rules []rbacv1.PolicyRule, a rbac.Ask) bool {
			return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slowRule(r, a) })
		}
		for range 300 {
			if a := w.ask(); len(missing) == 0 && allows(want, a) && !allows(have, a) {
				t.Fatalf("%v is said to hold all of %v, but may not %+v", have, want, a)
			}
		}
		if own, err := rbac.Missing(want, want); err != nil || len(own) > 0 {
			t.Errorf("%v lacks %v of itself: %v", want, own, err)
		}
		if all, err := rbac.Missing(rbac.Everything(), want); err != nil || len(all) > 0 {
			t.Errorf("everything lacks %v of %v: %v", all, want, err)
		}
	})
}

// TestMissingSaysWhat: in Kubernetes' words, of what came first, and never of more than a person reads.
func TestMissingSaysWhat(t *testing.T) {
	r := func(verbs, groups, resources, names []string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: groups, Resources: resources, ResourceNames: names}
	}
	core, get := []string{""}, []string{"get"}
	for _, tc := range []struct {
		name       string
		have, want []rbacv1.PolicyRule
		missing    []string
	}{
		{"two together", []rbacv1.PolicyRule{r(get, core, []string{"pods"}, nil), r([]string{"list"}, core, []string{"pods"}, nil)},
			[]rbacv1.PolicyRule{r([]string{"get", "list"}, core, []string{"pods"}, nil)}, nil},
		{"one verb", []rbacv1.PolicyRule{r(get, core, []string{"pods"}, nil)},
			[]rbacv1.PolicyRule{r([]string{"get", "list", "watch"}, core, []string{"pods"}, nil)},
			[]string{`{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}`}},
		{"all for some", []rbacv1.PolicyRule{r(get, core, []string{"pods"}, []string{"a"})},
			[]rbacv1.PolicyRule{r(get, core, []string{"pods"}, nil)},
			[]string{`{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`}},
		{"some of all", []rbacv1.PolicyRule{r(get, core, []string{"pods"}, nil)},
			[]rbacv1.PolicyRule{r(get, core, []string{"pods"}, []string{"a"})}, nil},
		{"one name", []rbacv1.PolicyRule{r(get, core, []string{"pods"}, []string{"a"})},
			[]rbacv1.PolicyRule{r(get, core, []string{"pods"}, []string{"a", "b"})},
			[]string{`{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}`}},
		{"verbs are not all verbs", []rbacv1.PolicyRule{r([]string{"get", "list"}, core, core, nil)},
			[]rbacv1.PolicyRule{r([]string{"*"}, core, core, nil)},
			[]string{`{APIGroups:[""], Resources:[""], Verbs:["*"]}`}},
		{"a path", nil, []rbacv1.PolicyRule{{Verbs: get, NonResourceURLs: []string{"/x"}}}, []string{`{NonResourceURLs:["/x"], Verbs:["get"]}`}},
	} {
		if got, err := rbac.Missing(tc.have, tc.want); err != nil || !slices.Equal(got, tc.missing) {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.missing)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("x", i))
	}
	if got, err := rbac.Missing(nil, []rbacv1.PolicyRule{r(many, core, many, nil)}); err != nil || len(got) != 11 || got[10] != "and more" {
		t.Errorf("a hundred of each: %q, %v", got, err)
	}
	huge := []rbacv1.PolicyRule{r(many, many, many, many)}
	if got, err := rbac.Missing(nil, huge); err == nil || !strings.Contains(err.Error(), "write it as several rules") {
		t.Errorf("a hundred of each, four times: %q, %v", got, err)
	}
	held := slices.Repeat([]rbacv1.PolicyRule{r(many, core, many, many)}, 100)
	if got, err := rbac.Missing(held, slices.Repeat(held, 20)); err == nil {
		t.Errorf("much of much: %q", got)
	}
	if got, err := rbac.Missing(rbac.Everything(), huge); err != nil || len(got) > 0 {
		t.Errorf("a hundred of each, four times, of somebody who holds all: %q, %v", got, err)
	}
}
