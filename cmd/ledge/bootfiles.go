package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ledge/api"
	"ledge/api/manifest"
	"ledge/config"
	"ledge/firstboot"
	"ledge/host"
	"ledge/images"
	"ledge/images/archives"
	"ledge/node"
	"ledge/pki"
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
			s.mistakes = append(s.mistakes, firstboot.Mistake{File: filepath.Join("images", e.Name()), What: "is no image archive by its name, and not imported",
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
		return node.CheckStatic("", d.Data, name, false)
	case agent:
		return fmt.Errorf("a board of another control plane runs pods from files only: apply this %s there", m.Kind.Name)
	}
	return nil
}

// bootArchives imports what lies on the boot partition, and says there what could not be.
func (b *brain) bootArchives(ctx context.Context, dir string) error {
	var bad []string
	err := b.importArchives(ctx, dir, func(name string, err error) {
		m := firstboot.Mistake{File: filepath.Join("images", name), What: strings.TrimPrefix(archiveWords, ": ") + firstboot.OneLine(err)}
		bad = append(bad, m.String())
	})
	boot, _, perr := b.places()
	if dir != filepath.Join(boot, "images") {
		bad = nil
	}
	if err = errors.Join(err, perr); err == nil && ctx.Err() == nil {
		b.tellCard(boot, archiveWords, bad...)
	}
	return err
}

// kubeconfigName is the file on the boot partition that kubectl on a laptop is given.
const kubeconfigName = "kubeconfig"

// kubeconfigOnCard keeps the administrator's way in on the boot partition, of a board that nobody can log in to. Who has the card
// has the CA's key on its other partition all the same. The address follows the network's: a board may get another tomorrow.
func (p *plane) kubeconfigOnCard(ctx context.Context) error {
	boot, err := os.ReadFile(filepath.Join(p.b.BootState, config.BootWhereFile))
	if err != nil {
		return err
	}
	said := ""
	for at, wait := "", time.Second; ; wait = 15 * time.Second {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		url, err := p.outward()
		if err == nil && url != "" {
			// The name that is in the server's certificate wherever it is reached: that was made before there was an address.
			var data []byte
			if data, err = p.ca.Kubeconfig(url, pki.ServerIdentity); err == nil {
				err = host.TellOnCard(string(boot), kubeconfigName, data)
			}
		}
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			slog.Warn("there is no kubeconfig on the boot partition", "err", err)
		case err == nil && url != "" && url != at:
			at, said = url, ""
			slog.Info("the boot partition has a kubeconfig", "server", at)
		}
	}
}

// importArchives is archives for this board.
func (b *brain) importArchives(ctx context.Context, dir string, failed func(name string, err error)) error {
	a := &archives.Dir{Path: dir, Failed: failed, Rows: b.store.Table("archives"), Load: func(ctx context.Context, r io.Reader) ([]images.Image, error) {
		list, err := b.images.Import(ctx, r)
		if err == nil {
			b.agent.ImagesChanged()
		}
		return list, err
	}}
	return a.Run(ctx)
}
