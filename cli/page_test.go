package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"ledge/config"
)

var update = flag.Bool("update", false, "write the reference anew")

const configurationHead = `# Configuration

A board is configured by ` + "`/etc/ledge/config.yaml`" + `, by files ` + "`*.conf`" + ` in ` + "`/etc/ledge/config.d`" + ` that override it in the order of
their names, and by flags, which override both. Keys are spelt as a kubelet's; one that is not known is refused, so that nothing is
ignored. Without a file the first start writes one.

This page is written from what packages install and from the program's own flags: ` + "`make pages`" + ` writes it anew, and tests hold both to
the code.

## Keys

`

// TestPageConfiguration: docs/manual/configuration.md has the keys of the packaged file, which TestPackagedConfiguration holds to the
// code, and the flags of what runs a board.
func TestPageConfiguration(t *testing.T) {
	if os.Getenv("LEDGE_VM") != "" {
		t.Skip("the sources are not in the guest")
	}
	const path = "../docs/manual/configuration.md"
	keys, err := os.ReadFile("../packaging/deb/config.yaml")
	must(t, err)
	var out strings.Builder
	out.WriteString(configurationHead)
	for line := range strings.Lines(string(keys)) {
		if line != "\n" {
			out.WriteString("    ")
		}
		out.WriteString(line)
	}
	for _, name := range []string{"serve", "agent", "keeper"} {
		fmt.Fprintf(&out, "\n## Flags of ledge %s\n\n| flag | default | meaning |\n|---|---|---|\n", name)
		flagsOf(name).VisitAll(func(f *flag.Flag) { out.WriteString(flagRow(f)) })
	}
	if *update {
		must(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
	got, err := os.ReadFile(path)
	must(t, err)
	if string(got) != out.String() {
		t.Errorf("%s is not what the program says: make pages", path)
	}
}

func flagsOf(name string) *flag.FlagSet {
	all := verbs()
	i := slices.IndexFunc(all, func(v Verb) bool { return v.name == name })
	c := &Command{out: io.Discard, Err: io.Discard, RunDir: config.DefaultRunDir}
	c.prepare(all[i])
	return c.Flags
}

func flagRow(f *flag.Flag) string {
	value, usage := flag.UnquoteUsage(f)
	def := ""
	if f.DefValue != "" {
		def = "`" + f.DefValue + "`"
	}
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	return fmt.Sprintf("| `%s` | %s | %s |\n", cell(strings.TrimSpace("--"+f.Name+" "+value)), cell(def), cell(usage))
}
