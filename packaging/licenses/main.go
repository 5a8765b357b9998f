// Command licenses prints NOTICE: every module that is linked into ledge for any board, with its licence, the notices
// it asks to keep, and each licence text once. It fails on a licence it does not know.
//
//	go run ./packaging/licenses >NOTICE
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const tags = "netgo osusergo seccomp runc_nocriu"

func main() {
	modules, err := linked()
	if err == nil {
		err = notice(os.Stdout, modules)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// module is one thing that is linked, with the licence files that stand over its linked packages.
type module struct {
	path, version string
	dir           string
	licences      []string // files
	notices       []string
}

// linked asks the go command for each architecture, since some dependencies are linked on one only.
func linked() ([]module, error) {
	found := map[string]*module{}
	for _, arch := range []string{"amd64", "arm64", "arm"} {
		cmd := exec.Command("go", "list", "-deps", "-tags", tags, "-json=Dir,Standard,Module", "ledge/cmd/ledge")
		cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=1", "GOARCH="+arch)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("list what is linked for %s: %w", arch, err)
		}
		if err := collect(found, out); err != nil {
			return nil, err
		}
	}
	all := make([]module, 0, len(found))
	for _, m := range found {
		if len(m.licences) == 0 {
			return nil, fmt.Errorf("%s %s has no licence file", m.path, m.version)
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return all, nil
}

func collect(found map[string]*module, list []byte) error {
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		m := found[p.Module.Path]
		if m == nil {
			m = &module{path: p.Module.Path, version: p.Module.Version, dir: p.Module.Dir}
			found[m.path] = m
		}
		if err := m.climb(p.Dir); err != nil {
			return err
		}
	}
}

// climb takes up the licence files from a package's directory to the top of its module: a package that came from
// elsewhere has its own.
func (m *module) climb(dir string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := strings.ToUpper(e.Name())
			file := filepath.Join(dir, e.Name())
			switch {
			case e.IsDir(), strings.HasSuffix(name, ".GO"), name == "LICENSE.DOCS": // of documents, which are not linked
			case strings.HasPrefix(name, "LICENSE"), strings.HasPrefix(name, "LICENCE"), strings.HasPrefix(name, "COPYING"):
				if !slices.Contains(m.licences, file) {
					m.licences = append(m.licences, file)
				}
			case strings.HasPrefix(name, "NOTICE"):
				if !slices.Contains(m.notices, file) {
					m.notices = append(m.notices, file)
				}
			}
		}
		if dir == m.dir || len(dir) <= len(m.dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// kind names a licence by phrases only it has; "" for an unknown one.
func kind(text string) string {
	flat := strings.Join(strings.Fields(text), " ")
	has := func(s string) bool { return strings.Contains(flat, s) }
	switch {
	case has("GNU LESSER GENERAL PUBLIC LICENSE"), has("GNU GENERAL PUBLIC LICENSE"), has("GNU AFFERO"):
		return ""
	case has("Mozilla Public License") && has("2.0"):
		return "MPL-2.0"
	case has("Apache License") && has("Version 2.0"):
		return "Apache-2.0"
	case has("Redistribution and use in source and binary forms") && has("either the name"):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	case has("Permission is hereby granted, free of charge"):
		return "MIT"
	case has("Permission to use, copy, modify, and/or distribute"), has("Permission to use, copy, modify, and distribute"):
		return "ISC"
	}
	return ""
}

const head = `ledge
Copyright the ledge authors

ledge is licensed under the Apache License, Version 2.0 (see LICENSE). A ledge binary contains the software below.
This file is written by "make licenses".

GNU C Library (glibc) and libseccomp, both under the GNU Lesser General Public License 2.1 or later, are linked
statically. How to get their source and to link ledge with versions of your own: docs/relink.md. libgcc is under the
GNU General Public License 3 with the GCC Runtime Library Exception, which permits this.

`

// notice writes the whole file.
func notice(w io.Writer, modules []module) error {
	golang, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find Go's licence: %w", err)
	}
	// Distributions and the downloaded toolchains agree on the place.
	all := append([]module{{path: "Go standard library and runtime",
		licences: []string{filepath.Join(strings.TrimSpace(string(golang)), "LICENSE")}}}, modules...)

	var list, notes strings.Builder
	texts := map[string][]string{} // text -> who is under it
	for _, m := range all {
		var kinds []string
		for _, file := range m.licences {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			text := strings.TrimSpace(strings.ReplaceAll(string(data), "\r", ""))
			k := kind(text)
			if k == "" {
				return fmt.Errorf("%s %s: unknown licence in %s", m.path, m.version, file)
			}
			if !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
			if k == "Apache-2.0" && !strings.Contains(text, "Redistribution and use in source") {
				continue // its text is LICENSE
			}
			if !slices.Contains(texts[text], m.path) {
				texts[text] = append(texts[text], m.path)
			}
		}
		slices.Sort(kinds)
		fmt.Fprintf(&list, "%s %s: %s\n", m.path, m.version, strings.Join(kinds, ", "))
		for _, file := range m.notices {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(&notes, "\n---- notice of %s\n\n%s\n", m.path, strings.TrimSpace(string(data)))
		}
	}
	order := make([]string, 0, len(texts))
	for text := range texts {
		order = append(order, text)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Compare(texts[a][0]+a, texts[b][0]+b) })
	if _, err := io.WriteString(w, head+list.String()+notes.String()); err != nil {
		return err
	}
	for _, text := range order {
		if _, err := fmt.Fprintf(w, "\n---- licence of %s\n\n%s\n", strings.Join(texts[text], ", "), text); err != nil {
			return err
		}
	}
	lgpl, err := os.ReadFile("/usr/share/common-licenses/LGPL-2.1")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n---- licence of glibc, libseccomp\n\n%s\n", strings.TrimSpace(string(lgpl)))
	return err
}
