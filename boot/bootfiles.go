package boot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ledge/api"
	"ledge/api/manifest"
	"ledge/firstboot"
	"ledge/images/archives"
	"ledge/node/static"
)

// files judges what lies in the folders of the boot partition. A node would refuse the same, but on a console that nobody sees.
func (s *boardSetup) files() {
	list, err := os.ReadDir(filepath.Join(s.boot, "manifests"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.mistake("manifests", err)
	}
	for _, e := range list {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			s.manifest(filepath.Join("manifests", e.Name()))
		}
	}
	if list, err = os.ReadDir(filepath.Join(s.boot, "images")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.mistake("images", err)
	}
	for _, e := range list {
		if name := strings.ToLower(e.Name()); !e.IsDir() && !strings.HasPrefix(name, ".") && !archives.Is(name) && !isNote(name) {
			s.mistakes = append(s.mistakes, firstboot.Mistake{File: filepath.Join("images", e.Name()),
				What:   "is no image archive by its name, and not imported",
				Remedy: "Names of archives end in .tar, .tar.gz, .tgz or .tar.zst; docker save makes one"})
		}
	}
}

// isNote: people leave these for each other, and laptops for themselves.
func isNote(name string) bool {
	return slices.Contains([]string{".txt", ".md", ".ini", ".db"}, filepath.Ext(name))
}

var manifestNames = []string{".yaml", ".yml", ".json"}

// manifest judges one file, document by document, so that the line is known.
func (s *boardSetup) manifest(name string) {
	agent := len(s.plan.Servers) > 0
	if !slices.Contains(manifestNames, filepath.Ext(name)) {
		plain := strings.ToLower(strings.TrimSuffix(name, filepath.Ext(name)))
		if strings.ToLower(filepath.Ext(name)) != filepath.Ext(name) {
			plain = strings.ToLower(name)
		}
		if slices.Contains(manifestNames, filepath.Ext(plain)) {
			s.mistakes = append(s.mistakes, firstboot.Mistake{File: name, What: "is not read: its name does not end in .yaml",
				Remedy: "Call it " + filepath.Base(plain)})
		}
		return
	}
	data, err := readAtMost(filepath.Join(s.boot, name), 1<<20+1)
	if err == nil && len(data) > 1<<20 {
		err = errors.New("is larger than 1 MiB and not read")
	}
	if err != nil {
		s.mistake(name, err)
		return
	}
	host, _ := os.Hostname()
	for _, d := range manifest.Documents(data) {
		if err := checkManifest(d, cmp.Or(s.plan.Hostname, host, "node"), agent); err != nil {
			at, what := firstboot.Where(d.Data, err)
			s.mistakes = append(s.mistakes, firstboot.Mistake{File: name, Line: d.Above + at, What: firstboot.OneLine(errors.New(what))})
		}
	}
}

// checkManifest says why a document is not run, or not applied.
func checkManifest(d manifest.Document, name string, agent bool) error {
	m, err := manifest.Parse(d, "default")
	switch {
	case err != nil || m == nil:
		return err
	case m.Kind == api.Pods:
		return static.Check("", d.Data, name, false)
	case agent:
		return fmt.Errorf("a board of another control plane runs pods from files only: apply this %s there", m.Kind.Name)
	}
	return nil
}
