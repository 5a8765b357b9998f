package deps

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"ledge/api"
)

// The project was designed on these versions; below them stand faults it does not guard against itself.
var floors = map[string]string{
	"github.com/opencontainers/runc":        "v1.5.2",
	"github.com/opencontainers/cgroups":     "v0.1.0",
	"github.com/cyphar/filepath-securejoin": "v0.7.0",
	"github.com/opencontainers/selinux":     "v1.13.1",
	"go.etcd.io/bbolt":                      "v1.5.0",
}

const goFloor = "v1.26.5"

func TestDependencyFloors(t *testing.T) {
	path := filepath.Join(top, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse(path, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if mod.Module.Mod.Path != "ledge" {
		t.Errorf("module path is %s, want ledge", mod.Module.Mod.Path)
	}
	if mod.Go == nil || semver.Compare("v"+mod.Go.Version, goFloor) < 0 {
		t.Errorf("go.mod asks for Go %v, want at least %s", mod.Go, goFloor)
	}
	have := map[string]string{}
	for _, r := range mod.Require {
		have[r.Mod.Path] = r.Mod.Version
	}
	for _, path := range sortedKeys(floors) {
		switch {
		case have[path] == "":
			t.Errorf("%s is not required any more: drop its floor", path)
		case semver.Compare(have[path], floors[path]) < 0:
			t.Errorf("%s is %s, want at least %s", path, have[path], floors[path])
		}
	}
	// The release that ledge names to clients is the one whose types it is built with: v1.37.2 is v0.37.2 of the modules.
	if want := "v0" + strings.TrimPrefix(api.Kubernetes, "v1"); have["k8s.io/api"] != want {
		t.Errorf("api.Kubernetes is %s, and k8s.io/api %s", api.Kubernetes, have["k8s.io/api"])
	}
	for _, r := range mod.Replace {
		t.Errorf("go.mod replaces %s: the floors would not mean what they say", r.Old.Path)
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Stripped, each architecture. 28,000,000 until workloads, Services and claims began to come (docs/decisions/0029).
const binaryBudget = 36_000_000

func TestBinaries(t *testing.T) {
	for _, name := range []string{"ledge", "ledge-linux-amd64", "ledge-linux-arm64", "ledge-linux-armv7"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(top, "bin", name)
			data, err := os.ReadFile(path)
			if os.IsNotExist(err) {
				t.Skipf("bin/%s is not built: make build, make cross", name)
			} else if err != nil {
				t.Fatal(err)
			}
			if len(data) > binaryBudget {
				t.Errorf("%s has %d bytes, the budget is %d", name, len(data), binaryBudget)
			}
			file, err := elf.NewFile(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range file.Progs {
				if p.Type == elf.PT_INTERP {
					t.Error("the binary asks for a dynamic loader: it is not static")
				}
			}
			if libs, err := file.ImportedLibraries(); err == nil && len(libs) > 0 {
				t.Errorf("the binary needs %v", libs)
			}
			if file.Section(".symtab") != nil || file.Section(".debug_info") != nil {
				t.Error("the binary is not stripped")
			}
			// The names of all linked functions stand in the runtime's own table, also in a stripped binary.
			for _, banned := range []string{"go-criu", "k8s.io/client-go/informers", "k8s.io/client-go/kubernetes.",
				"net/http/pprof.", "google.golang.org/grpc.", "testing.(*T)"} {
				if bytes.Contains(data, []byte(banned)) {
					t.Errorf("the binary contains %s", banned)
				}
			}
			for _, wanted := range []string{"seccomp/libseccomp-golang", "runc/libcontainer"} {
				if !bytes.Contains(data, []byte(wanted)) {
					t.Errorf("the binary does not contain %s: built without its tags?", wanted)
				}
			}
		})
	}
}

// packagesBudget holds the number of packages in the binary, the standard library's included: each costs bytes and, by
// its package variables, start-up time of every container. Raise it in the change that needs it, with the reason.
// 592: node/grpc and node/plugins (decision 154).
const packagesBudget = 592

func TestLinkedPackages(t *testing.T) {
	linked, err := goList("-deps", "./cmd/ledge")
	if err != nil {
		t.Fatal(err)
	}
	if len(linked) < 50 {
		t.Skip("cmd/ledge has no sources yet")
	}
	if len(linked) > packagesBudget {
		t.Errorf("%d packages are linked, the budget is %d", len(linked), packagesBudget)
	}
	t.Logf("%d packages linked", len(linked))
	// What ledge was designed around is what it runs on (docs/decisions/0008).
	for _, used := range []string{"github.com/coreos/go-systemd/v22/daemon", "github.com/coreos/go-systemd/v22/activation",
		"github.com/opencontainers/runc/libcontainer", "github.com/containerd/cgroups/v3", "github.com/vishvananda/netlink",
		"go.etcd.io/bbolt", "github.com/shirou/gopsutil/v3/mem"} {
		if !slices.ContainsFunc(linked, func(p pkg) bool { return p.ImportPath == used }) {
			t.Errorf("%s is not linked any more", used)
		}
	}
	for _, p := range linked {
		if rest, ok := strings.CutPrefix(p.ImportPath, "k8s.io/client-go/"); ok {
			for _, heavy := range []string{"kubernetes", "informers", "listers", "dynamic", "discovery", "applyconfigurations"} {
				if matches(heavy+"/...", rest) {
					t.Errorf("%s is linked: only rest and tools/clientcmd are paid for", p.ImportPath)
				}
			}
		}
		if slices.Contains([]string{"testing", "net/http/httptest", "net/http/pprof", "expvar"}, p.ImportPath) {
			t.Errorf("%s is linked", p.ImportPath)
		}
	}
}
