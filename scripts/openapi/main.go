// Command openapi writes the schemas of everything the API speaks, from the sources of the pinned k8s.io modules: from
// the types, and from the marker comments beside them (listType, listMapKey, default, enum and so on), which reflection
// does not see. It also writes what the markers say that a server has to hold objects to, which a test in api/kinds asks
// of our rules. go generate runs it in api/openapi.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"ledge/api"
	"ledge/api/kinds"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: openapi SCHEMAS FACTS")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func write(schemasTo, factsTo string) error {
	schemas, facts, err := generate()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(schemas); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(schemasTo, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(factsTo, facts, 0o644)
}

// Where the packages of schemas are, and what their schemas are called.
const (
	apiModule       = "k8s.io/api"
	machineryModule = "k8s.io/apimachinery"
	meta            = machineryModule + "/pkg/apis/meta/v1"
	// own has the kinds that are measured: their module, k8s.io/metrics, would be a dependency for two types.
	own = "ledge/api"
)

// others are types that requests and answers have beside those of the kinds.
var others = []string{
	apiModule + "/core/v1.Binding", apiModule + "/policy/v1.Eviction",
	apiModule + "/authentication/v1.SelfSubjectReview", apiModule + "/authentication/v1.TokenRequest",
	apiModule + "/authentication/v1.TokenReview", apiModule + "/authorization/v1.SelfSubjectAccessReview",
	apiModule + "/authorization/v1.SelfSubjectRulesReview", apiModule + "/authorization/v1.SubjectAccessReview",
	apiModule + "/authorization/v1.LocalSubjectAccessReview", apiModule + "/rbac/v1.RoleBinding",
	apiModule + "/rbac/v1.ClusterRoleBinding", apiModule + "/core/v1.ServiceAccount", apiModule + "/autoscaling/v1.Scale",
	meta + ".DeleteOptions", meta + ".Status", meta + ".APIResourceList", meta + ".APIGroup", meta + ".APIGroupList", meta + ".WatchEvent",
}

func generate() (schemas, facts []byte, err error) {
	g := &generator{packages: map[string]*source{}, schemas: map[string]map[string]any{}, dirs: map[string]string{},
		reached: map[string]bool{}}
	for _, module := range []string{apiModule, machineryModule, "ledge"} {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return nil, nil, fmt.Errorf("find %s: %w", module, err)
		}
		g.dirs[module] = strings.TrimSpace(string(out))
	}
	if err := g.addKinds(slices.Concat(kinds.All.Kept, kinds.All.Views)); err != nil {
		return nil, nil, err
	}
	if facts, err = g.table(); err != nil { // what comes below has no rules yet, or is no object
		return nil, nil, err
	}
	if err := g.addRest(); err != nil {
		return nil, nil, err
	}
	schemas, err = json.Marshal(g.schemas)
	return schemas, facts, err
}

func (g *generator) addKinds(list []*api.Kind) error {
	for _, k := range list {
		pkg := packageOf(k.Group, k.Version)
		for _, name := range []string{k.Name, k.Name + "List"} {
			if err := g.add(pkg, name); err != nil {
				return err
			}
			g.mark(pkg, name, k.Group, k.Version)
		}
	}
	return nil
}

func (g *generator) addRest() error {
	if err := g.addKinds(kinds.All.Later); err != nil {
		return err
	}
	for _, k := range kinds.All.Measured {
		if err := g.add(own, k.Name); err != nil {
			return err
		}
		if err := g.addList(own, k.Name); err != nil {
			return err
		}
		g.mark(own, k.Name, k.Group, k.Version)
		g.mark(own, k.Name+"List", k.Group, k.Version)
	}
	for _, name := range others {
		i := strings.LastIndex(name, ".")
		pkg, name := name[:i], name[i+1:]
		if err := g.add(pkg, name); err != nil {
			return err
		}
		group, version := groupOf(pkg)
		g.mark(pkg, name, group, version)
	}
	return nil
}

// packageOf is where the types of a group and version are declared.
func packageOf(group, version string) string {
	first, _, _ := strings.Cut(group, ".")
	if first == "" {
		first = "core"
	}
	return apiModule + "/" + first + "/" + version
}

// groupOf is what the objects of a package say in apiVersion.
func groupOf(pkg string) (group, version string) {
	parts := strings.Split(strings.TrimPrefix(pkg, apiModule+"/"), "/")
	if pkg == meta || len(parts) != 2 || parts[0] == "core" {
		return "", "v1"
	}
	for _, full := range []string{"authentication.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io", "events.k8s.io"} {
		if strings.HasPrefix(full, parts[0]+".") {
			return full, parts[1]
		}
	}
	return parts[0], parts[1]
}
