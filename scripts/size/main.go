// Command size prints what each module, each room of ours, and each kind of object costs in a binary that still has its symbols:
//
//	make size     (or: STRIP= scripts/build.sh bin/ledge-symbols && go run ./scripts/size bin/ledge-symbols)
//
// It counts functions and variables by the package in their names. What belongs to no package, such as the table of lines, has a row of its
// own; each package has a share of it, about as large as its code. What a kind costs is its types, the file of its rules and its loop.
package main

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one binary with its symbols, have %q", args)
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	var modules []string
	for _, m := range info.Deps {
		modules = append(modules, m.Path)
	}
	file, err := elf.Open(args[0])
	if err != nil {
		return err
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		return fmt.Errorf("%s: %w (build it with STRIP=)", args[0], err)
	}
	prices, err := newPrices(file)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	var sum sums = map[string]uint64{}
	var all uint64
	for _, s := range file.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOBITS {
			all += s.Size
		}
	}
	for _, s := range symbols {
		if int(s.Section) >= len(file.Sections) || file.Sections[s.Section].Type == elf.SHT_NOBITS {
			continue // takes no room in the file
		}
		if kind := elf.ST_TYPE(s.Info); kind == elf.STT_FUNC || kind == elf.STT_OBJECT {
			sum[owner(s.Name, modules)] += s.Size
			all -= min(all, s.Size)
			if kind == elf.STT_FUNC {
				prices.add(s.Name, s.Value, s.Size)
			}
		}
	}
	sum[tables] += all
	sum.print(w)
	prices.print(w)
	return nil
}

// tables belong to no package: of lines, types, strings and what the collector must know.
const tables = "tables of lines, types and strings"

// sums are bytes by owner.
type sums map[string]uint64

func (s sums) print(w io.Writer) {
	var total uint64
	for _, name := range slices.SortedFunc(maps.Keys(s), func(a, b string) int { return cmp.Or(cmp.Compare(s[b], s[a]), cmp.Compare(a, b)) }) {
		fmt.Fprintf(w, "%10d  %s\n", s[name], name)
		total += s[name]
	}
	fmt.Fprintf(w, "%10d  in all\n", total)
}

// owner is the room of ours, the module, or else the part of the standard library or of C that a symbol comes from.
func owner(symbol string, modules []string) string {
	pkg := packageOf(symbol)
	if room, ok := strings.CutPrefix(pkg, "ledge/"); ok {
		return "ledge/" + room
	}
	best := ""
	for _, m := range modules {
		if (pkg == m || strings.HasPrefix(pkg, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	switch {
	case best != "":
		return best
	case strings.HasPrefix(pkg, "go:"):
		return tables
	case pkg == "":
		return "C, and what the linker adds"
	}
	first, _, _ := strings.Cut(pkg, "/")
	return "std " + first
}

// packageOf is the package in a symbol's name; "": there is none. "type:.eq.k8s.io/api/core/v1.Pod" belongs to the package of the type, and
// the type arguments of a generic function, which may be of others, stand in brackets.
func packageOf(symbol string) string {
	for _, prefix := range []string{"type:.eq.", "type:.hash.", "go:itab.", "type:"} {
		symbol = strings.TrimPrefix(symbol, prefix)
	}
	symbol = strings.TrimLeft(symbol, "*[]")
	symbol, _, _ = strings.Cut(symbol, "[")
	symbol, _, _ = strings.Cut(symbol, ",")
	slash := strings.LastIndex(symbol, "/")
	dot := strings.Index(symbol[slash+1:], ".")
	if dot < 0 {
		return ""
	}
	return strings.ReplaceAll(symbol[:slash+1+dot], "%2e", ".")
}
