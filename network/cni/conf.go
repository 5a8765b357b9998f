package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/network"
)

// The bounds of what is read: the directory is the administrator's, but pods that install a plugin write there too.
const (
	maxFile    = 256 << 10
	maxPlugins = 32 // of one network
)

// versions are those of the specification that are spoken here, the oldest first. Older ones have results of another form.
var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// list is a network: the plugins that make it, in their order.
type list struct {
	Name      string   `json:"name"`
	Version   string   `json:"cniVersion,omitempty"`
	Versions  []string `json:"cniVersions,omitempty"`
	DisableGC bool     `json:"disableGC,omitempty"`
	Inlined   bool     `json:"loadOnlyInlinedPlugins,omitempty"`
	Plugins   []plugin `json:"plugins"`
}

// plugin is what the configuration says of one: passed on as it is.
type plugin map[string]json.RawMessage

// kind is the name of the plugin's program.
func (p plugin) kind() string {
	var s string
	_ = json.Unmarshal(p["type"], &s) // checked when it was read
	return s
}

// can tells whether the configuration declares a capability.
func (p plugin) can(capability string) bool {
	var all map[string]bool
	_ = json.Unmarshal(p["capabilities"], &all)
	return all[capability]
}

// speaks tells whether the network has this version of the specification or a later one.
func (l *list) speaks(version string) bool {
	return slices.Index(versions, l.Version) >= slices.Index(versions, version)
}

// can tells whether a plugin of the network has a capability.
func (l *list) can(capability string) bool {
	return slices.ContainsFunc(l.Plugins, func(p plugin) bool { return p.can(capability) })
}

// nameShape is what the specification takes as a name, of a network and of an attachment.
var nameShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

func isName(s string) bool { return len(s) <= 128 && nameShape.MatchString(s) }

var (
	errNone = errors.New("there is no configuration of a network yet: a cluster's network brings it, as a file NAME.conflist")
)

// load reads the network of a directory: the first file by name that is one, as container runtimes do. A file that is damaged is not
// passed over, since the next one would be another network.
func load(dir string) (*list, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for networks of pods: %w", err)
	}
	for _, e := range entries { // sorted by name
		path := filepath.Join(dir, e.Name())
		single := false
		switch filepath.Ext(e.Name()) {
		case ".conflist":
		case ".conf", ".json":
			single = true
		default:
			continue
		}
		l, err := loadFile(path, single)
		if err != nil {
			return nil, fmt.Errorf("network of pods in %s: %w", path, err)
		}
		return l, nil
	}
	return nil, fmt.Errorf("network of pods in %s: %w", dir, errNone)
}

func loadFile(path string, single bool) (*list, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	l, err := parse(data, single)
	if err != nil {
		return nil, err
	}
	if !single && !l.Inlined {
		others, err := besides(filepath.Join(filepath.Dir(path), l.Name))
		if err != nil {
			return nil, err
		}
		l.Plugins = append(l.Plugins, others...)
	}
	return l, l.check()
}

// besides are plugins whose configuration stands in files of their own, in a directory with the network's name.
func besides(dir string) (out []plugin, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.conf"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		data, err := readFile(path)
		if err != nil {
			return nil, err
		}
		var p plugin
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if out = append(out, p); len(out) > maxPlugins {
			break // check says so
		}
	}
	return out, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return data, err
}

// parse reads a list of plugins, or one plugin, which is a list of one.
func parse(data []byte, single bool) (*list, error) {
	var l list
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, err
	}
	if single {
		var p plugin
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, err
		}
		l = list{Name: l.Name, Version: l.Version, Plugins: []plugin{p}}
	}
	return &l, nil
}

// check says what cannot be used of a list, and chooses its version.
func (l *list) check() error {
	if !isName(l.Name) {
		return fmt.Errorf("name %q: want letters, digits, ., _ and -", l.Name)
	}
	offered := l.Versions
	if l.Version != "" {
		offered = append(slices.Clone(offered), l.Version)
	}
	best := -1
	for _, v := range offered {
		best = max(best, slices.Index(versions, v))
	}
	if best < 0 {
		return fmt.Errorf("cniVersion %q: ledge speaks %s", strings.Join(offered, ", "), strings.Join(versions, ", "))
	}
	l.Version, l.Versions = versions[best], nil
	if len(l.Plugins) == 0 || len(l.Plugins) > maxPlugins {
		return fmt.Errorf("it has %d plugins: want 1 to %d", len(l.Plugins), maxPlugins)
	}
	for i, p := range l.Plugins {
		var kind string
		if err := json.Unmarshal(p["type"], &kind); err != nil || !isName(kind) {
			return fmt.Errorf("plugins[%d].type: want the name of a program, without a path", i)
		}
		var can map[string]bool
		if raw, has := p["capabilities"]; has {
			if err := json.Unmarshal(raw, &can); err != nil {
				return fmt.Errorf("plugins[%d].capabilities: %w", i, err)
			}
		}
	}
	return nil
}

// portMapping is a host port as plugins read it.
type portMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// asks is what a request for one attachment says besides the configuration.
type asks struct {
	previous json.RawMessage // the result so far; nil: none
	ports    []network.Port
	wanted   []netip.Addr // that the pod had before, for plugins that can give the same again
	valid    []attachment // for GC; nil: it is none
}

// attachment is a pod's interface, as GC names it.
type attachment struct {
	ID        string `json:"containerID"`
	Interface string `json:"ifname"`
}

// request is what a plugin reads: its configuration as it is, and what is asked of it.
func (l *list) request(p plugin, a asks) ([]byte, error) {
	out := maps.Clone(p)
	maps.DeleteFunc(out, func(key string, _ json.RawMessage) bool {
		return key == "capabilities" || key == "runtimeConfig" || key == "args" || key == "prevResult" || strings.HasPrefix(key, "cni.dev/")
	})
	set := func(key string, v any) (err error) {
		out[key], err = json.Marshal(v)
		return err
	}
	err := errors.Join(set("cniVersion", l.Version), set("name", l.Name))
	if a.previous != nil {
		out["prevResult"] = a.previous
	}
	if a.valid != nil {
		err = errors.Join(err, set("cni.dev/valid-attachments", a.valid))
	}
	runtime := map[string]any{}
	if len(a.ports) > 0 && p.can("portMappings") {
		var list []portMapping
		for _, p := range a.ports {
			m := portMapping{HostPort: p.HostPort, ContainerPort: p.ContainerPort, Protocol: strings.ToLower(p.Protocol)}
			if p.HostIP.IsValid() {
				m.HostIP = p.HostIP.String()
			}
			list = append(list, m)
		}
		runtime["portMappings"] = list
	}
	if len(runtime) > 0 {
		err = errors.Join(err, set("runtimeConfig", runtime))
	}
	if len(a.wanted) > 0 {
		err = errors.Join(err, set("args", map[string]any{"cni": map[string]any{"ips": a.wanted}}))
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// addresses are those that a result says the pod has, IPv4 first.
func addresses(result json.RawMessage) ([]netip.Addr, error) {
	var r struct {
		IPs []struct {
			Address   string `json:"address"`
			Interface *int   `json:"interface"`
		} `json:"ips"`
		Interfaces []struct {
			Sandbox string `json:"sandbox"`
		} `json:"interfaces"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, fmt.Errorf("read what the plugins answered: %w", err)
	}
	var four, six []netip.Addr
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil && (*i < 0 || *i >= len(r.Interfaces) || r.Interfaces[*i].Sandbox == "") {
			continue // the host's
		}
		p, err := netip.ParsePrefix(ip.Address)
		switch a := p.Addr(); {
		case err != nil:
			return nil, fmt.Errorf("read what the plugins answered: %w", err)
		case !a.IsGlobalUnicast(): // no address that anybody reaches the pod by
		case a.Is4():
			four = append(four, a)
		default:
			six = append(six, a)
		}
	}
	var out []netip.Addr // a pod has one of each family at most
	for _, of := range [][]netip.Addr{four, six} {
		if len(of) > 0 {
			out = append(out, of[0])
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the plugins gave the pod no address")
	}
	return out, nil
}

// compact is a result without white space, as it is kept.
func compact(result []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, result); err != nil {
		return nil, fmt.Errorf("it answered no JSON: %w", err)
	}
	return b.Bytes(), nil
}
