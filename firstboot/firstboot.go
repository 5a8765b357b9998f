// Package firstboot reads what people write on a board's boot partition with a laptop: ledge.yaml, and the names of what lies
// beside it. It only decides: Parse returns what the board is to be, and each mistake in the file with its line. A key with a mistake is
// left out, and the others count; only a mistake in the Wi-Fi leaves all of the Wi-Fi out, since without its password the board would join
// an open network of that name. No key without an effect is accepted: what this board cannot do is a mistake that says so.
//
// The package imports nothing of ledge. What only other rooms know (the keys of the configuration, what a token looks like) it asks
// through Machine.
package firstboot

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is one of the boot partition.
type File struct {
	Name string
	Data []byte
}

// Mistake is something that cannot be done as it was written.
type Mistake struct {
	File   string
	Line   int // 0: the file as a whole
	What   string
	Remedy string
}

func (m Mistake) String() string {
	where := m.File
	if m.Line > 0 {
		where = fmt.Sprintf("%s, line %d", m.File, m.Line)
	}
	if m.Remedy == "" {
		return where + ": " + m.What
	}
	return where + ": " + m.What + ". " + m.Remedy
}

// Lines says on which lines the keys of the file are, for code that finds out later that a key has no effect.
type Lines struct {
	file string
	of   map[string]int // "hostname", "network.address": a section before what is below it
}

// Mistake makes a mistake at the line of a key, or at the file as a whole if the file does not have the key.
func (l Lines) Mistake(key, what, remedy string) Mistake {
	return Mistake{File: cmp.Or(l.file, names[0]), Line: l.of[key], What: what, Remedy: remedy}
}

// Plan is what a board is to be. Nobody asked for a field that is empty.
type Plan struct {
	Hostname string
	Network  Network
	WiFi     WiFi
	SSHKeys  []string

	Listen     string // where the control plane of this board answers others
	Kubeconfig bool   // for whom is to lie on the boot partition

	Servers []string // the control plane is there, not here
	Token   string   // to join it with; empty: this board has joined

	Configuration []byte // YAML: keys of the configuration file
}

// Network is the wired one.
type Network struct {
	Interface string       // empty: the first with a plug
	Address   netip.Prefix // zero: DHCP
	Gateway   netip.Addr
	DNS       []netip.Addr
}

// Static says whether the file gives the addresses; otherwise DHCP does.
func (n Network) Static() bool { return n.Address.IsValid() }

// WiFi is the network to be joined by radio; without an SSID there is none.
type WiFi struct {
	SSID, Password, Country string
}

// Machine describes the board that the file is for. A function that is nil finds nothing wrong.
type Machine struct {
	NoWiFi, NoSSH string // why it has neither; empty: it has

	Joined  bool     // it has been taken into the fleet of a control plane
	Servers []string // that it had last: a mistake made later does not make a lone board of it

	Keys   []string                 // that a configuration may have
	Config func(yaml []byte) error  // whether the board would start with it
	Server func(url string) error   // whether it is one
	Token  func(token string) error // likewise; it must not quote it
}

// maxFile is far more than any honest file has.
const maxFile = 64 << 10

// Parse finds ledge.yaml among the files, also under the names that laptops give it (ledge.yaml.txt), and reads it.
func Parse(files []File, m Machine) (Plan, Lines, []Mistake) {
	r := reader{machine: m, found: map[string]int{}}
	sort.SliceStable(files, func(i, j int) bool { return rank(files[i].Name) < rank(files[j].Name) })
	files = slices.DeleteFunc(files, func(f File) bool { return rank(f.Name) == none })
	for i, f := range files {
		r.file = f.Name
		switch {
		case i > 0:
			r.mistake(0, "is not read: there is also "+files[0].Name, "Remove one of the two")
		case len(f.Data) > maxFile:
			r.mistake(0, fmt.Sprintf("has %d bytes and is not read; %d are the most", len(f.Data), maxFile), "")
		default:
			r.read(f.Data)
		}
	}
	Sort(r.mistakes)
	lines := Lines{of: r.found}
	if len(files) > 0 {
		lines.file = files[0].Name
	}
	return r.plan, lines, r.mistakes
}

// Sort puts mistakes in the order in which people look for them.
func Sort(list []Mistake) {
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i], list[j]
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) < 0
	})
}

// names are those that the file may have, the best first. A laptop that hides what stands behind the dot adds a .txt.
var names = []string{"ledge.yaml", "ledge.yml", "ledge.yaml.txt", "ledge.yml.txt", "ledge.txt"}

const none = 1 << 10

func rank(name string) int {
	if i := slices.Index(names, strings.ToLower(name)); i >= 0 {
		return i
	}
	return none
}

// IsConfig says whether Parse would look at a file of that name.
func IsConfig(name string) bool { return rank(name) != none }

// reader is one reading.
type reader struct {
	machine  Machine
	plan     Plan
	file     string
	lines    []string
	mistakes []Mistake
	found    map[string]int // what Lines has
	lost     int            // the first line that could not be read at all
}

func (r *reader) mistake(line int, what, remedy string) {
	r.mistakes = append(r.mistakes, Mistake{File: r.file, Line: line, What: what, Remedy: remedy})
}

// read takes the keys one after the other. What depends on several keys is decided at the end.
func (r *reader) read(data []byte) {
	var fleet fleet
	top := r.document(clean(data))
	r.fields("", top, map[string]func(*yaml.Node){
		"hostname":      r.hostname,
		"network":       r.network,
		"wifi":          r.wifi,
		"ssh":           r.ssh,
		"serve":         func(n *yaml.Node) { fleet.serve = n },
		"server":        func(n *yaml.Node) { fleet.server = n },
		"token":         func(n *yaml.Node) { fleet.token = n },
		"configuration": r.configuration,
	})
	r.role(fleet)
	r.openWiFi(top)
}

// elsewhere are keys that people write here by mistake, and where each belongs.
var elsewhere = map[string]string{
	"manifests":  "Put the files into the folder manifests of this partition",
	"images":     "Put the archives into the folder images of this partition",
	"address":    "It belongs below network:",
	"gateway":    "It belongs below network:",
	"dns":        "It belongs below network:",
	"ssid":       "It belongs below wifi:",
	"password":   "It belongs below wifi:",
	"country":    "It belongs below wifi:",
	"listen":     "It belongs below serve:",
	"kubeconfig": "It belongs below serve:",
}

// fields calls, for each key of a mapping, the function that reads its value.
func (r *reader) fields(section string, list []field, known map[string]func(*yaml.Node)) {
	seen := map[string]int{}
	for _, f := range list {
		take := known[f.key]
		switch before := seen[f.key]; {
		case take == nil:
			remedy := Suggest(f.key, known)
			if section == "" && elsewhere[f.key] != "" {
				remedy = elsewhere[f.key]
			}
			r.mistake(f.line, fmt.Sprintf("there is no key %q%s", brief(f.key), inSection(section)), remedy)
			continue
		case before > 0:
			r.mistake(f.line, fmt.Sprintf("%s stands here again; line %d counts", f.key, before), "Remove one of the two")
			continue
		case isEmpty(f.value):
			r.mistake(f.line, f.key+" has no value", "Give it one, or remove the line")
			continue
		}
		seen[f.key] = f.line
		r.found[strings.TrimPrefix(section+"."+f.key, ".")] = f.line
		take(f.value)
	}
}

func inSection(name string) string {
	if name == "" {
		return ""
	}
	return " below " + name + ":"
}

// Report is the file on the boot partition that lists the mistakes, one a line; nil if there are none. Lines end with CR LF, which every
// laptop's editor can show.
func Report(list []string) []byte {
	if len(list) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString(reportHead)
	for _, m := range list {
		b.WriteString(m + "\n")
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte("\r\n"))
}

// Reported are the lines of such a text.
func Reported(text []byte) (list []string) {
	_, body, _ := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n\n")
	return strings.FieldsFunc(body, func(c rune) bool { return c == '\n' })
}

const reportHead = `This is what the board could not do as it was written. The rest of it works.
Change the files, put the card back and switch the board on again; this file goes when all is well.

`

// brief keeps what is quoted on a line, and a console clean.
func brief(text string) string { return short(text, 60) }

func short(text string, most int) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '?'
		}
		return c
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}
