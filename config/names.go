package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// nameKeys say whom pods ask for names, and whether the board tells its own.
type nameKeys struct {
	ResolvConf    string   `json:"resolvConf,omitempty"`
	ClusterDNS    []string `json:"clusterDNS,omitempty"`
	ClusterDomain string   `json:"clusterDomain,omitempty"`
	Names         Names    `json:"names,omitempty"`
	MDNS          *bool    `json:"mdns,omitempty"`
}

// Names is how this board itself answers its pods (decision 105). All is on by default.
type Names struct {
	Serve        *bool `json:"serve,omitempty"`
	WalkSearches *bool `json:"walkSearches,omitempty"`
	Stale        *bool `json:"stale,omitempty"`
}

// ServesNames says whether this board answers its pods: nobody else does who is named in the file.
func (k nameKeys) ServesNames() bool { return len(k.ClusterDNS) == 0 && on(k.Names.Serve) }

// Walks says whether the search list of a pod is walked for it.
func (n Names) Walks() bool { return on(n.WalkSearches) }

// GivesStale says whether answers that have run out are given while no resolver answers.
func (n Names) GivesStale() bool { return on(n.Stale) }

func on(b *bool) bool { return b == nil || *b }

// Domain is that of the cluster.
func (k nameKeys) Domain() string {
	if k.ClusterDomain == "" {
		return "cluster.local"
	}
	return k.ClusterDomain
}

func (k nameKeys) check() error {
	// In resolv.conf a name may end in a dot, and be written in capitals.
	if msgs := validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(k.ClusterDomain, "."))); k.ClusterDomain != "" &&
		len(msgs) > 0 {
		return fmt.Errorf("clusterDomain: %q is no domain such as cluster.local", k.ClusterDomain)
	}
	if k.ResolvConf != "" && !filepath.IsAbs(k.ResolvConf) {
		return fmt.Errorf("resolvConf: %q must be an absolute path", k.ResolvConf)
	}
	for _, s := range k.ClusterDNS {
		if _, err := netip.ParseAddr(s); err != nil {
			return fmt.Errorf("clusterDNS: %q is not an address", s)
		}
	}
	if len(k.ClusterDNS) > 0 && k.Names.Serve != nil && *k.Names.Serve {
		return fmt.Errorf("names.serve: pods ask %s, which clusterDNS names: remove one of the two", strings.Join(k.ClusterDNS, ", "))
	}
	return nil
}
