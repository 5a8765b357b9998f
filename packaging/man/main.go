// Command man writes ledge's manual pages from what the program says of itself: ledge.8, a page for each verb, and
// ledge-config.5 from the configuration file that packages install.
//
//	go run ./packaging/man -binary bin/ledge -config packaging/deb/config.yaml -to DIR
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	binary := flag.String("binary", "bin/ledge", "a ledge that this machine can run")
	config := flag.String("config", "packaging/deb/config.yaml", "the configuration with all its defaults")
	to := flag.String("to", "", "directory for the pages")
	flag.Parse()
	if err := run(*binary, *config, *to); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(binary, config, to string) error {
	epoch, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	say := func(args ...string) (string, error) {
		out, err := exec.Command(binary, args...).Output()
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", binary, strings.Join(args, " "), err)
		}
		return string(out), nil
	}
	usage, err := say("help")
	if err != nil {
		return err
	}
	verbs, err := readUsage(usage)
	if err != nil {
		return err
	}
	verbs = append(verbs, verb{name: "keeper", line: "hold the containers; started by the init system, or by serve"})
	b := book{date: time.Unix(epoch, 0).UTC().Format(time.DateOnly), pages: map[string][]byte{}}
	for i := range verbs {
		help, err := say(verbs[i].name, "-h")
		if err != nil {
			return err
		}
		if err := verbs[i].readHelp(help); err != nil {
			return err
		}
		b.verb(verbs[i])
	}
	b.overview(verbs)
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	b.configuration(string(text))
	for name, page := range b.pages {
		if err := os.WriteFile(filepath.Join(to, name), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verb is what the program says about one of its verbs.
type verb struct {
	name, args, line string
	flags            []option
}

type option struct{ name, value, text string }

// readUsage reads the list of verbs: two spaces, the verb, its words, its line.
func readUsage(usage string) (out []verb, err error) {
	for row := range strings.Lines(usage) {
		row, ok := strings.CutPrefix(strings.TrimRight(row, "\n"), "  ")
		if !ok {
			continue
		}
		name, rest, _ := strings.Cut(row, " ")
		out = append(out, verb{name: name, line: strings.TrimSpace(rest)})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no verbs in %q", usage)
	}
	return out, nil
}

// readHelp reads a verb's own help: a line of use, then its flags as package flag prints them.
func (v *verb) readHelp(help string) error {
	use, flags, _ := strings.Cut(help, "\n")
	args, ok := strings.CutPrefix(use, "ledge "+v.name+" [flags]")
	if !ok {
		return fmt.Errorf("%s: %q is no line of use", v.name, use)
	}
	v.args = strings.TrimSpace(args)
	v.line = strings.TrimSpace(strings.TrimPrefix(v.line, v.args))
	for row := range strings.Lines(flags) {
		row = strings.TrimRight(row, "\n")
		if flag, ok := strings.CutPrefix(row, "  -"); ok {
			head, text, _ := strings.Cut(flag, "\t") // a short flag has its text on the same line
			name, value, _ := strings.Cut(head, " ")
			v.flags = append(v.flags, option{name: name, value: value, text: text})
			continue
		}
		text, ok := strings.CutPrefix(row, "    \t")
		if !ok || len(v.flags) == 0 {
			return fmt.Errorf("%s: %q is neither a flag nor the text of one", v.name, row)
		}
		last := &v.flags[len(v.flags)-1]
		last.text = strings.TrimSpace(last.text + " " + text)
	}
	return nil
}

// book is the pages.
type book struct {
	date  string
	pages map[string][]byte
}

type page struct{ bytes.Buffer }

func (b *book) page(name string, section int, line string) *page {
	p := &page{}
	fmt.Fprintf(p, ".TH %s %d %s ledge\n.SH NAME\n%s \\- %s\n", escape(strings.ToUpper(name)), section, b.date, escape(name), escape(line))
	return p
}

func (b *book) add(name string, section int, p *page) {
	b.pages[fmt.Sprintf("%s.%d", name, section)] = p.Bytes()
}

func (p *page) head(title string) { fmt.Fprintf(p, ".SH %s\n", title) }

func (p *page) text(paragraphs ...string) {
	for i, s := range paragraphs {
		if i > 0 {
			p.WriteString(".PP\n")
		}
		fmt.Fprintf(p, "%s\n", escape(s))
	}
}

// item is a term and what it means; the term is roff already.
func (p *page) item(term, text string) { fmt.Fprintf(p, ".TP\n%s\n%s\n", term, escape(text)) }

func (p *page) verbatim(text string) { fmt.Fprintf(p, ".nf\n%s.fi\n", escape(text)) }

func bold(s string) string { return `\fB` + escape(s) + `\fR` }

func italic(s string) string {
	if s == "" {
		return ""
	}
	return ` \fI` + escape(s) + `\fR`
}

// escape keeps roff from reading text: backslashes, hyphens that are to be copied, and lines that look like requests.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`, "'", `\(aq`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func (b *book) verb(v verb) {
	name := "ledge-" + v.name
	p := b.page(name, 8, v.line)
	p.head("SYNOPSIS")
	fmt.Fprintf(p, "%s [\\fIflags\\fR]%s\n", bold("ledge "+v.name), italic(v.args))
	p.head("OPTIONS")
	p.text("Flags may stand anywhere between the words, with one hyphen or two.")
	for _, f := range v.flags {
		dashes := "--"
		if len(f.name) == 1 {
			dashes = "-"
		}
		p.item(bold(dashes+f.name)+italic(f.value), f.text)
	}
	p.seeAlso("ledge(8)", "ledge-config(5)")
	b.add(name, 8, p)
}

func (b *book) overview(verbs []verb) {
	p := b.page("ledge", 8, "a Kubernetes-shaped node with its own control plane, for one board")
	p.head("SYNOPSIS")
	p.WriteString("\\fBledge\\fR [\\fB\\-\\-run\\-dir\\fR \\fIDIR\\fR] \\fIVERB\\fR ...\n")
	p.head("DESCRIPTION")
	p.text("ledge runs pods on this machine and keeps their objects in one file that survives the plug being pulled. It is managed by an"+
		" unmodified kubectl, or by the verbs below, which talk to the running node over a socket that is root's.",
		"The node is two processes. The brain, ledge serve, holds the objects and decides; the keeper, ledge keeper, owns the containers."+
			" Either may be restarted, upgraded or killed, and the containers go on. Restarting the service ledge is never felt by a pod.")
	p.head("VERBS")
	for _, v := range verbs {
		p.item(bold(v.name)+italic(v.args), v.line+"; see ledge-"+v.name+"(8)")
	}
	p.head("FILES")
	p.item(bold("/etc/ledge/config.yaml"), "the configuration, see ledge-config(5)")
	p.item(bold("/etc/ledge/config.d/*.conf"), "override it")
	p.item(bold("/var/lib/ledge"), "objects, images, volumes and certificates: what must survive a power cut")
	p.item(bold("/run/ledge"), "sockets, and the memory of what runs")
	p.head("SIGNALS")
	p.item(bold("SIGTERM")+", "+bold("SIGINT"),
		"to the brain: end, and leave the pods running (--on-term=drain: stop them first). While the machine"+
			" goes down the pods are stopped in order.")
	p.item(bold("SIGPWR"), "to the brain: stop the pods in order, and end")
	p.head("EXIT STATUS")
	p.text("0, or 1 after a failure, or 2 where the command line was not understood. exec ends with the code of its command.")
	p.head("EXAMPLES")
	p.verbatim("ledge doctor\nledge apply -f pod.yaml\nledge get pods -A\n(umask 077; ledge kubeconfig > ledge.kubeconfig)\n")
	p.seeAlso("ledge-config(5)", "kubectl(1)", "systemctl(1)")
	b.add("ledge", 8, p)
}

func (b *book) configuration(text string) {
	p := b.page("ledge-config", 5, "configuration of a ledge node")
	p.head("DESCRIPTION")
	p.text("/etc/ledge/config.yaml is read at the start of ledge serve and ledge agent. As it is installed:")
	p.WriteString(".PP\n")
	p.verbatim(text)
	p.seeAlso("ledge(8)", "ledge-serve(8)")
	b.add("ledge-config", 5, p)
}

func (p *page) seeAlso(pages ...string) {
	p.head("SEE ALSO")
	for i, s := range pages {
		name, section, _ := strings.Cut(s, "(")
		pages[i] = bold(name) + "(" + section
	}
	p.WriteString(strings.Join(pages, ",\n") + "\n")
}
