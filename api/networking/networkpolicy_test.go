package networking

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// TestNetworkPolicies: what a policy may not say is refused by its path, and what is too long is not looked at whole (N-14.5).
func TestNetworkPolicies(t *testing.T) {
	in := func(rule string) string { return `{"podSelector":{},"ingress":[` + rule + `]}` }
	many := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for _, c := range []struct{ spec, want string }{
		{`{}`, ""},
		{in(`{"ports":[{"port":80,"endPort":90},{"port":"web","protocol":"UDP"},{}],"from":[{"podSelector":{}},{"namespaceSelector":{}},` +
			`{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}},{"ipBlock":{"cidr":"fd00::/8"}}]}`), ""},
		{in(`{"ports":[{"port":90,"endPort":80}]}`), "spec.ingress[0].ports[0].endPort"},
		{in(`{"ports":[{"port":"web","endPort":80}]}`), "spec.ingress[0].ports[0].endPort"},
		{in(`{"ports":[{"endPort":80}]}`), "spec.ingress[0].ports[0].endPort"},
		{in(`{"ports":[{"port":0}]}`), "spec.ingress[0].ports[0].port"},
		{in(`{"ports":[{"port":65000,"endPort":65536}]}`), "spec.ingress[0].ports[0].endPort"},
		{in(`{"ports":[{"port":"Not a name"}]}`), "spec.ingress[0].ports[0].port"},
		{in(`{"ports":[{"protocol":"ICMP"}]}`), "spec.ingress[0].ports[0].protocol"},
		{in(`{"from":[{}]}`), "spec.ingress[0].from[0]"},
		{in(`{"from":[{"ipBlock":{"cidr":"10.0.0.0/8"},"podSelector":{}}]}`), "spec.ingress[0].from[0]"},
		{in(`{"from":[{"ipBlock":{}}]}`), "spec.ingress[0].from[0].ipBlock.cidr"},
		{in(`{"from":[{"ipBlock":{"cidr":"10.0.0.1"}}]}`), "spec.ingress[0].from[0].ipBlock.cidr"},
		{in(`{"from":[{"ipBlock":{"cidr":"010.0.0.0/8"}}]}`), "spec.ingress[0].from[0].ipBlock.cidr"},
		{in(`{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16","11.0.0.0/16"]}}]}`), "spec.ingress[0].from[0].ipBlock.except[1]"},
		{in(`{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0.0/8"]}}]}`), "spec.ingress[0].from[0].ipBlock.except[0]"},
		{in(`{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["fd00::/16"]}}]}`), "spec.ingress[0].from[0].ipBlock.except[0]"},
		{in(`{"from":[{"podSelector":{"matchExpressions":[{"key":"a","operator":"Like"}]}}]}`),
			"spec.ingress[0].from[0].podSelector.matchExpressions[0].operator"},
		{`{"podSelector":{"matchLabels":{"a":"not a value"}}}`, "spec.podSelector.matchLabels"},
		{`{"podSelector":{},"policyTypes":["Ingress","Sideways"]}`, "spec.policyTypes[1]"},
		{`{"podSelector":{},"policyTypes":["Ingress","Egress","Ingress"]}`, "spec.policyTypes"},
		{`{"podSelector":{"matchExpressions":[{"key":"a","operator":"In","values":[` + many(mostValues+1, `"x"`) + `]}]}}`,
			"spec.podSelector.matchExpressions[0].values"},
		{`{"podSelector":{"matchExpressions":[` + many(mostTerms+1, `{"key":"a","operator":"Exists"}`) + `]}}`, "spec.podSelector.matchExpressions"},
		{in(many(mostRules+1, `{}`)), "spec.ingress"},
		{in(`{"ports":[` + many(mostPorts+1, `{"port":80}`) + `]}`), "spec.ingress[0].ports"},
		{in(`{"from":[` + many(mostPeers+1, `{"podSelector":{}}`) + `]}`), "spec.ingress[0].from"},
		{in(`{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":[` + many(mostExcept+1, `"10.1.0.0/16"`) + `]}}]}`),
			"spec.ingress[0].from[0].ipBlock.except"},
		{`{"podSelector":{},"egress":[{"to":[{}]}]}`, "spec.egress[0].to[0]"},
	} {
		p := &networkingv1.NetworkPolicy{}
		if err := json.Unmarshal([]byte(`{"spec":`+c.spec+`}`), p); err != nil {
			t.Fatal(err)
		}
		defaultPolicy(p)
		var paths []string
		for _, err := range validatePolicy(p, nil) {
			paths = append(paths, err.Field)
		}
		if got := strings.Join(slices.Compact(paths), " "); got != c.want {
			t.Errorf("%.200s: refused by %q, want %q", c.spec, got, c.want)
		}
	}
	// What was in a policy may stay.
	p := &networkingv1.NetworkPolicy{}
	old := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "010.0.0.0/8"}}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{old}}}
	if errs := validatePolicy(p, cidrsOf(p)); len(errs) > 0 {
		t.Error(errs)
	}
	if w := policyWarnings(p); len(w) != 1 {
		t.Error(w)
	}
}

// TestPolicyDefaults: the types follow from the rules, and a port is one of TCP (N-14.5).
func TestPolicyDefaults(t *testing.T) {
	for spec, want := range map[string]string{`{}`: "[Ingress]", `{"egress":[{"ports":[{"port":1}]}]}`: "[Ingress Egress]", `{"egress":[]}`: "[Ingress]",
		`{"policyTypes":["Egress"]}`: "[Egress]"} {
		p := &networkingv1.NetworkPolicy{}
		if err := json.Unmarshal([]byte(`{"spec":`+spec+`}`), p); err != nil {
			t.Fatal(err)
		}
		defaultPolicy(p)
		if got := fmt.Sprint(p.Spec.PolicyTypes); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
		for _, r := range p.Spec.Egress {
			if *r.Ports[0].Protocol != "TCP" {
				t.Errorf("%s: %s", spec, *r.Ports[0].Protocol)
			}
		}
	}
}
