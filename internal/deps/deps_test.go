// Package deps holds the import table and the budgets, as tests.
package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "ledge/"
	top    = "../.."
	tags   = "netgo osusergo seccomp runc_nocriu"
)

// table says which of ledge's own packages a package may import; tests are free. A name stands for itself and a name
// with /... for everything below it too; the most specific row counts. "everything" is for the places that join the
// rooms. A package that no row names fails the test: a new room is a decision.
var table = map[string][]string{
	"api":           {"api/table", "api/valid"}, // decision 93, as are the groups of kinds
	"runtime":       {},
	"images":        {"internal/durable"},
	"network":       {},
	"storage/...":   {"api", "api/kinds", "internal/durable"},
	"scheduler/...": {"api", "api/policy", "api/storage"},
	"node/pressure": {"api"},
	// decisions 10 and 12
	"api/httpd/...": {"api", "api/kinds", "api/apps", "api/batch", "api/board", "api/coordination", "api/discovery", "api/networking",
		"api/node", "api/rbac", "api/storage",
		"api/table", "api/openapi", "api/websocket"},
	"api/websocket": {},
	"api/valid":     {},
	"api/table":     {},
	"api/kinds": {"api", "api/apps", "api/autoscaling", "api/batch", "api/coordination", "api/discovery", "api/events", "api/networking",
		"api/node", "api/policy", "api/rbac", "api/scheduling", "api/storage"},

	// One package for the kinds of each API group; those of the core group are in api.
	"api/apps":         {"api", "api/table", "api/valid"},
	"api/autoscaling":  {"api", "api/table", "api/valid"},
	"api/batch":        {"api", "api/table", "api/valid"},
	"api/coordination": {"api", "api/table", "api/valid"},
	"api/discovery":    {"api", "api/table", "api/valid"},
	"api/events":       {"api"},
	"api/networking":   {"api", "api/table", "api/valid"},
	"api/node":         {"api", "api/table", "api/valid"},
	"api/policy":       {"api", "api/table", "api/valid"},
	"api/rbac":         {"api", "api/table", "api/valid"},
	"api/scheduling":   {"api", "api/table", "api/valid"},
	"api/storage":      {"api", "api/table", "api/valid"},

	"api/board":    {"images", "node/pressure", "pki"}, // plain types that it answers with
	"api/openapi":  {},
	"api/manifest": {"api", "api/coordination", "api/kinds"},
	"api/rest/...": {"api", "api/coordination"},
	"api/apitest": {"internal/testrun", "api", "api/kinds", "api/apps", "api/autoscaling", "api/batch", "api/coordination",
		"api/discovery", "api/events", "api/networking", "api/node", "api/policy", "api/rbac", "api/scheduling", "api/storage"},
	"lease/...":     {"api", "api/coordination"},
	"shutdown/...":  {"api", "internal/durable"},
	"node/podstate": {"api", "runtime"},
	// decision 11
	"api/managed": {"api", "api/kinds", "api/openapi"},
	// decision 11
	"api/quota": {"api"},
	"api/local/...": {"api", "api/batch", "api/coordination", "api/local/allocate", "api/networking", "api/node", "api/policy", "api/quota",
		"api/rbac", "api/scheduling", "api/storage", "storage", "api/managed"},
	"api/mirror/...": {"api", "api/networking", "storage"},
	"controller/...": {"api", "api/apps", "api/autoscaling", "api/batch", "api/coordination", "api/discovery", "api/kinds", "api/networking",
		"api/policy", "api/rbac", "api/storage", "lease", "scheduler", "controller/autoscale", "controller/claims", "controller/cronjobs",
		"controller/endpoints", "controller/jobs",
		"controller/workload"},
	"controller/workload": {"api"},
	"controller/jobs":     {"api", "api/batch", "controller/workload"},
	"controller/machines": {"controller"},
	"node":                {"api", "api/node", "api/storage", "runtime", "images", "network", "lease", "node/...", "internal/durable", "internal/grumble"},
	"node/claims":         {"api", "api/storage", "host/quota", "internal/durable", "internal/grumble"}, // decision 117
	"node/devices":        {"internal/durable", "internal/grumble"},                                     // decision 157
	"node/downward":       {"api"},
	"node/grpc":           {},                                                                           // decision 154
	"node/plugins":        {"api", "internal/durable", "internal/grumble", "node/devices", "node/grpc"}, // decision 154
	"node/kubeport":       {"api", "internal/durable"},                                                  // decision 130
	"node/evict":          {"api", "internal/grumble", "node/machine", "node/podstate", "node/pressure", "node/stats", "node/volume"},
	"node/machine/...":    {"node/machine", "node/pressure"},
	"node/podspec":        {"api", "images", "node/devices", "node/downward", "node/podlog", "node/podstate", "node/pressure", "node/volume", "runtime"},
	"node/podlog":         {"api", "node/podstate", "runtime"},
	"node/static":         {"api", "api/manifest", "internal/durable", "internal/grumble"},
	"node/volume":         {"api", "host/nfs", "runtime", "node/downward"},
	"node/poster":         {"api", "images", "internal/grumble", "node/devices", "node/machine", "node/pressure"},
	"node/probe":          {"node/grpc", "runtime"},
	"node/stats":          {"api"},
	"node/join":           {"api", "internal/durable"}, // decision 127
	"node/services":       {"api", "api/discovery", "internal/grumble", "network", "network/service"},
	"node/policies":       {"api", "api/networking", "internal/grumble", "network", "network/policy"}, // decision 113
	"pki/...":             {"api", "internal/durable"},
	"runtime/...":         {"runtime/...", "internal/durable"},
	"images/...":          {"images/..."},
	"network/...":         {"network/...", "internal/durable"},
	"network/given":       {"api", "network", "network/plan"},
	"network/service":     {"network"},
	"network/policy":      {"network"},                                                      // decision 113
	"network/cni":         {"internal/durable", "network", "network/netns", "network/plan"}, // decision 161
	"network/fence":       {"network", "network/netns", "network/nft"},
	"network/proxy":       {"network", "network/netns", "network/nft", "network/service"},
	"network/share":       {},                                   // decision 147
	"network/dns":         {"network/service", "network/share"}, // decisions 105, 115
	"network/mdns":        {"internal/grumble"},                 // decision 128
	"host/...":            {"host", "internal/durable"},
	"host/quota":          {},                                                                                            // decision 117
	"host/nfs":            {},                                                                                            // decision 118
	"page":                {"api", "api/apps", "api/batch", "api/board", "api/networking", "api/table", "node/pressure"}, // decision 146
	"page/password":       {},
	"console":             {"internal/durable", "internal/grumble", "page"}, // decision 162
	"firstboot":           {},
	"upgrade/...":         {"upgrade/...", "internal/durable"},
	// decision 114: a program of its own, in a pod
	"network/ingress":      {"api", "api/networking"},
	"network/ingress/door": {"api", "api/discovery", "api/networking", "api/rest", "network/ingress", "network/share"},
	"config": {"api", "api/storage", "api/httpd/auditlog", "api/local", "api/local/allocate", "api/rest", "controller",
		"controller/machines", "api/manifest", "firstboot",
		"host", "host/ntp", "images", "images/registry", "lease", "network/bridge", "network/plan", "node/devices", "node/join", "node/podlog", "node/podspec",
		"node/poster", "node/pressure", "node/static", "page/password", "pki", "scheduler", "shutdown", "storage", "upgrade", "internal/durable"},
	// decision 94: it opens nothing of a machine
	"brain": {"api", "api/board", "api/coordination", "api/httpd", "api/httpd/auditlog", "api/local", "api/local/allocate", "api/manifest", "api/mirror",
		"api/rbac", "api/rest", "boot/ending", "brain/place", "config", "console", "controller", "firstboot", "firstboot/card", "host", "host/alive",
		"host/ntp", "host/heap", "images", "images/archives", "internal/durable", "internal/grumble",
		"api/discovery", "api/kinds", "api/networking", "node/claims", "node/devices", "node/kubeport", "node/plugins", "node/policies", "node/services",
		"network", "network/dns", "network/given",
		"network/hostnet", "network/mdns", "network/netns", "network/plan",
		"node", "node/join", "node/machine", "node/podstate", "node/static", "node/stats", "page", "page/password", "pki", "runtime", "shutdown",
		"storage", "upgrade"},
	"brain/played":     {"api", "api/httpd", "brain", "host", "host/quota", "images", "network", "node", "runtime", "shutdown", "storage"},
	"brain/place":      {"api/httpd", "config", "host"},
	"cli":              {"everything"},
	"boot":             {"everything"},
	"boot/ending":      {},
	"firstboot/card":   {"config", "firstboot", "host"},
	"cmd/...":          {"everything"},
	"e2e":              {"everything"},
	"internal/sim":     {"everything"},
	"internal/deps":    {},
	"internal/durable": {}, // decision 96: the ground below every room
	"internal/grumble": {},
	"lab/...":          {"everything"},
	"packaging/...":    {"everything"},
	"scripts/...":      {"everything"},

	// Only tests import these.
	"internal/testrun":        {},
	"internal/nspawn":         {"internal/testrun"},
	"internal/original":       {"internal/testrun"},
	"runtime/runtimetest/...": {"runtime/...", "internal/testrun"},

	"controller/autoscale": {"api", "api/autoscaling"},
	"controller/claims":    {"api", "api/storage"},
	"controller/cronjobs":  {"api/batch"},
	"controller/endpoints": {"api"},
}

// thirdParty says which rooms may import a module (or standard package) that brings weight or power with it.
var thirdParty = map[string][]string{
	"go.etcd.io/bbolt":                  {"storage/..."},
	"github.com/opencontainers/runc":    {"runtime/libct/..."},
	"github.com/opencontainers/cgroups": {"runtime/libct/..."},
	"github.com/coreos/go-systemd":      {"shutdown/...", "host/alive", "brain", "cmd/..."},
	"github.com/containerd/cgroups":     {"host/..."},
	"github.com/shirou/gopsutil":        {"host/..."},
	// host: routes and the board's own address (decisions 55 and 70)
	"github.com/vishvananda/netlink":         {"network/bridge/...", "network/cni", "network/fence", "network/nft", "network/proxy", "host"},
	"github.com/vishvananda/netns":           {},
	"github.com/google/nftables":             {"network/bridge/...", "network/fence", "network/nft", "network/proxy"}, // decisions 104, 113
	"github.com/google/go-containerregistry": {},
	"github.com/robfig/cron":                 {"api/batch"}, // its parser: decision 107
	"k8s.io/client-go/rest":                  {"api/rest/..."},
	"k8s.io/client-go/tools/clientcmd":       {"api/rest/..."},
	"k8s.io/client-go":                       {}, // no other part of it, anywhere
	"github.com/checkpoint-restore":          {},
	"github.com/google/go-cmp":               {},
	"github.com/stretchr":                    {},
	"google.golang.org/grpc":                 {},
	"net/http/pprof":                         {},
	"expvar":                                 {},
	"plugin":                                 {},
	"unsafe":                                 {"host/...", "runtime/...", "network/bridge/...", "shutdown/..."},
	"C":                                      {"runtime/libct/..."},
	"net/http": {"api", "api/board", "api/local", "api/httpd/...", "api/websocket", "api/rest/...",
		"images/registry/...", "images/imagestest", "node/grpc", "node/join", "node/plugins",
		"node/probe", "node/services", "network/ingress/door", "controller/machines", "page",
		"brain", "brain/place", "cli", "internal/original"},
	"net/http/httptest": {},
	"os/exec": {"boot", "cli", "controller/machines", "host/nfs", "network/cni", "runtime/keeper/...",
		"runtime/runtimetest/...", "storage/...", "internal/original", "internal/nspawn"},
	"github.com/opencontainers/runc/tests":                {},
	"k8s.io/apimachinery/pkg/util/wait":                   {}, // its timers do not sit well in a synctest bubble
	"github.com/moby/spdystream":                          {"api/httpd/..."},
	"k8s.io/kubernetes":                                   {},
	"k8s.io/pod-security-admission":                       {"api/local"},
	"k8s.io/component-base":                               {},
	"github.com/prometheus/client_golang":                 {},
	"github.com/spf13":                                    {},
	"github.com/sirupsen/logrus":                          {},
	"golang.org/x/tools":                                  {},
	"github.com/opencontainers/runtime-spec":              {"runtime/libct/..."},
	"github.com/opencontainers/selinux":                   {},
	"github.com/opencontainers/image-spec":                {"images/..."},
	"github.com/klauspost/compress":                       {"images/..."},
	"github.com/evanphx/json-patch":                       {},
	"gopkg.in/evanphx/json-patch.v4":                      {},
	"github.com/opencontainers/runc/libcontainer/nsenter": {"runtime/libct/..."},
}

// These may use what they like: nothing of them is in the binary.
var unbound = []string{"lab/...", "packaging/...", "scripts/..."}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
}

// list asks the go command once for every package of the module, as a linux build with our tags sees it.
var list = sync.OnceValues(func() ([]pkg, error) { return goList("./...") })

func goList(args ...string) ([]pkg, error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-tags", tags, "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports"}, args...)...)
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages listed: the module was not found", len(all))
	}
	return all
}

// matches tells whether name is what pattern means.
func matches(pattern, name string) bool {
	base, deep := strings.CutSuffix(pattern, "/...")
	return pattern == "everything" || name == base || deep && strings.HasPrefix(name, base+"/")
}

// row is the most specific row of the table for name: its first column, or none.
func row(name string) (best string, ok bool) {
	specific := func(pattern string) int { // a room itself comes before the room with all below it
		if below, ok := strings.CutSuffix(pattern, "/..."); ok {
			return 2 * len(below)
		}
		return 2*len(pattern) + 1
	}
	for pattern := range table {
		if matches(pattern, name) && (!ok || specific(pattern) > specific(best)) {
			best, ok = pattern, true
		}
	}
	return best, ok
}

func TestImportTable(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		room, ok := row(name)
		allowed := table[room]
		if !ok {
			t.Errorf("%s stands in no row of the import table (architecture: Who may import whom)", name)
			continue
		}
		for _, imported := range p.Imports {
			of, ours := strings.CutPrefix(imported, module)
			if ours && !slices.ContainsFunc(allowed, func(a string) bool { return matches(a, of) }) {
				t.Errorf("%s imports %s, may import: %s", name, of, strings.Join(allowed, ", "))
			}
		}
	}
}

func TestThirdPartyTable(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if name == "internal/deps" || slices.ContainsFunc(unbound, func(rooms string) bool { return matches(rooms, name) }) {
			continue
		}
		for _, imported := range p.Imports {
			rule, rooms := thirdPartyRule(imported)
			if rule != "" && !slices.ContainsFunc(rooms, func(r string) bool { return matches(r, name) }) {
				t.Errorf("%s imports %s, which only these may: %s", name, imported, strings.Join(rooms, ", "))
			}
		}
	}
}

// What no package of a room imports the room may not import either: else the table says less every year.
func TestTablesAreTight(t *testing.T) {
	ours := map[string][]string{} // by row: what its packages import
	for _, p := range packages(t) {
		room, _ := row(strings.TrimPrefix(p.ImportPath, module))
		ours[room] = append(ours[room], p.Imports...)
	}
	for room, allowed := range table {
		for _, a := range allowed {
			if a != "everything" && !slices.ContainsFunc(ours[room], func(i string) bool { return matches(module+a, i) }) {
				t.Errorf("%s may import %s, and nothing there does", room, a)
			}
		}
	}
	used := map[string][]string{} // by rule: who imports what it governs
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			rule, _ := thirdPartyRule(imported)
			used[rule] = append(used[rule], strings.TrimPrefix(p.ImportPath, module))
		}
	}
	for rule, rooms := range thirdParty {
		for _, room := range rooms {
			if !slices.ContainsFunc(used[rule], func(name string) bool { return matches(room, name) }) {
				t.Errorf("%s may import %s, and nothing there does", room, rule)
			}
		}
	}
}

// thirdPartyRule finds the longest rule whose path is imported or above it.
func thirdPartyRule(imported string) (rule string, rooms []string) {
	for path, may := range thirdParty {
		if (imported == path || strings.HasPrefix(imported, path+"/")) && len(path) > len(rule) {
			rule, rooms = path, may
		}
	}
	// The standard library's packages mean only themselves: net/http says nothing about net/http/httptest.
	if first, _, _ := strings.Cut(rule, "/"); !strings.Contains(first, ".") && rule != imported {
		return "", nil
	}
	return rule, rooms
}

// The binary starts itself anew for every container and pays for each init function.
func TestNoInitFunctions(t *testing.T) {
	eachFile(t, func(name, path string, file *ast.File, fset *token.FileSet) {
		if matches("cmd/ledge", name) || matches("runtime/libct", name) {
			return
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init() outside cmd/ledge and runtime/libct", fset.Position(f.Pos()))
			}
		}
	})
}

// calls that only programs (package main) may make, by the way they are written: what they decide is a program's to
// decide, or they have no end.
var calls = []string{"os.Exit", "log.Fatal", "log.Printf", "fmt.Print", "fmt.Printf", "fmt.Println", "slog.SetDefault",
	"http.ListenAndServe", "http.ListenAndServeTLS", "http.Get", "time.Tick", "rand.Seed"}

func TestForbiddenCalls(t *testing.T) {
	eachFile(t, func(name, path string, file *ast.File, fset *token.FileSet) {
		if file.Name.Name == "main" || name == "cli" || name == "boot" { // a program may print and exit, and these two are most of one
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			call := x.Name + "." + sel.Sel.Name
			if slices.Contains(calls, call) {
				t.Errorf("%s: %s outside a program", fset.Position(sel.Pos()), call)
			}
			// A server of HTTP is made in one place: there its limits are. The ports at which load balancers ask have fewer (decision 104), and
			// the pod that takes strangers in has its own (decision 114), as has the socket at which device plugins register (decision 154).
			if call == "http.Server" && name != "node/plugins" && !matches("api/httpd/...", name) && name != "node/services" && name != "network/ingress/door" {
				t.Errorf("%s: http.Server outside api/httpd", fset.Position(sel.Pos()))
			}
			// Whoever enters a namespace elsewhere does so on the process's first thread some day.
			if (call == "unix.Setns" || call == "unix.Unshare") && name != "network/netns" && name != "runtime/libct" {
				t.Errorf("%s: %s outside network/netns", fset.Position(sel.Pos()), call)
			}
			return true
		})
	})
}

// eachFile parses the sources that go into a build, not the tests.
func eachFile(t *testing.T, f func(name, path string, file *ast.File, fset *token.FileSet)) {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages(t) {
		for _, file := range all[p.ImportPath] {
			f(strings.TrimPrefix(p.ImportPath, module), sources.File(file.Pos()).Name(), file, sources)
		}
	}
}

var sources = token.NewFileSet()

// parsed are the files of each package, without tests. They are read once for all that look at them.
var parsed = sync.OnceValues(func() (map[string][]*ast.File, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	out := map[string][]*ast.File{}
	for _, p := range all {
		for _, source := range slices.Concat(p.GoFiles, p.CgoFiles) {
			file, err := parser.ParseFile(sources, filepath.Join(p.Dir, source), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			out[p.ImportPath] = append(out[p.ImportPath], file)
		}
	}
	return out, nil
})

func TestRulesOfTheTables(t *testing.T) {
	for _, c := range []struct {
		name, imported string
		ok             bool
	}{
		{"node", "node/podstate", true}, {"node", "storage", false}, {"node/podstate", "node", false},
		{"runtime/libct", "runtime", true}, {"runtime/keeper", "api", false}, {"api", "storage", false},
		{"api/httpd", "storage", false}, {"api/local", "storage", true}, {"cmd/ledge", "storage", true},
		{"shutdown", "node", false}, {"controller", "runtime", false},
	} {
		room, ok := row(c.name)
		if !ok {
			t.Fatalf("no row for %s", c.name)
		}
		if got := slices.ContainsFunc(table[room], func(a string) bool { return matches(a, c.imported) }); got != c.ok {
			t.Errorf("%s -> %s: allowed %v, want %v", c.name, c.imported, got, c.ok)
		}
	}
	if _, ok := row("toolbox"); ok {
		t.Error("an unknown room has a row")
	}
	for imported, want := range map[string]string{
		"k8s.io/client-go/kubernetes": "k8s.io/client-go", "k8s.io/client-go/rest": "k8s.io/client-go/rest",
		"net/http/httptest": "net/http/httptest", "net/http/httptrace": "", "k8s.io/api/core/v1": "",
		"github.com/coreos/go-systemd/v22/daemon": "github.com/coreos/go-systemd",
	} {
		if got, _ := thirdPartyRule(imported); got != want {
			t.Errorf("rule for %s is %q, want %q", imported, got, want)
		}
	}
}

// What is left of the program joins rooms and does nothing itself.
func TestProgramIsSmall(t *testing.T) {
	const most = 400
	lines := 0
	eachFile(t, func(name, path string, file *ast.File, fset *token.FileSet) {
		if name == "cmd/ledge" {
			lines += fset.Position(file.FileEnd).Line
		}
	})
	if lines == 0 || lines >= most {
		t.Errorf("cmd/ledge has %d lines without tests, may have fewer than %d: what is more belongs to a room", lines, most)
	}
}
