package initramfs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// PodModules are what containers, the bridge and the firewall need and Debian's kernels build as modules. Names that a kernel
// has built in or lacks are passed over; ledge doctor says what is missing.
// crc32c_generic is what libcrc32c wants at its load without saying so in modules.dep.
var PodModules = []string{"crc32c_generic", "overlay", "loop", "veth", "bridge", "br_netfilter", "nf_tables", "nf_conntrack",
	"nf_conntrack_netlink", "nf_nat", "nft_ct", "nft_chain_nat", "nft_nat", "nft_masq", "nft_redir", "nft_fib_inet", "nft_reject_inet",
	"nft_meta_bridge"}

// Modules are a kernel's, as depmod lists them.
type Modules struct {
	Top   string // .../lib/modules/VERSION
	needs map[string][]string
	files map[string]string // by name, as the kernel spells it
}

// ReadModules reads the list of the one kernel below lib/modules.
func ReadModules(top string) (*Modules, error) {
	versions, err := os.ReadDir(top)
	if err != nil {
		return nil, err
	}
	if len(versions) != 1 {
		return nil, fmt.Errorf("%d kernels in %s, want 1", len(versions), top)
	}
	top = filepath.Join(top, versions[0].Name())
	text, err := os.ReadFile(filepath.Join(top, "modules.dep"))
	if err != nil {
		return nil, err
	}
	m := &Modules{Top: top}
	m.parse(string(text))
	return m, nil
}

func (m *Modules) parse(dep string) {
	m.needs, m.files = map[string][]string{}, map[string]string{}
	for row := range strings.Lines(dep) {
		file, needs, _ := strings.Cut(strings.TrimSpace(row), ":")
		m.needs[file] = strings.Fields(needs) // nearest first
		m.files[ModuleName(file)] = file
	}
}

// ModuleName is a module's own, where file names may have hyphens.
func ModuleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}

// InOrder gives the files of named modules and of those they need, these first, each once, relative to Top. Names that this
// kernel has built in or lacks are passed over. One that ends in a slash is a directory of them, one with an asterisk a pattern.
func (m *Modules) InOrder(names []string) []string {
	var order []string
	seen := map[string]bool{}
	add := func(file string) {
		all := append([]string{file}, m.needs[file]...)
		for i := len(all) - 1; i >= 0; i-- {
			if !seen[all[i]] {
				seen[all[i]] = true
				order = append(order, all[i])
			}
		}
	}
	for _, name := range names {
		if !strings.ContainsAny(name, "/*") {
			if file, ok := m.files[ModuleName(name)]; ok {
				add(file)
			}
			continue
		}
		for _, file := range m.sorted() {
			if match, _ := path.Match(name, file); match || strings.HasSuffix(name, "/") && strings.HasPrefix(file, name) {
				add(file)
			}
		}
	}
	return order
}

func (m *Modules) sorted() []string {
	files := make([]string, 0, len(m.needs))
	for f := range m.needs {
		files = append(files, f)
	}
	slices.Sort(files)
	return files
}
