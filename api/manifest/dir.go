package manifest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/kinds"
)

// Dir keeps the objects of a directory applied: what stands in a file is created or changed, and what a
// removed file had made is deleted. Pods are left out: there they are static pods, which the agent runs itself. An object carries the name
// of its file as a label, so that this holds over restarts.
type Dir struct {
	Path   string
	Client api.Client
	seen   map[string]string // file -> hash of what was applied
}

// fileLabel marks an object made from a file; the value is the file's name, shortened to a label.
const fileLabel = "ledge.dev/manifest"

// scanEvery is how often the directory is read (N-7.49).
const scanEvery = 20 * time.Second

// Run applies now and then again whenever something changed, until ctx ends.
func (m *Dir) Run(ctx context.Context) error {
	m.seen = map[string]string{}
	for {
		if err := m.scan(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("manifests could not all be applied; trying again", "dir", m.Path, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(scanEvery):
		}
	}
}

func (m *Dir) scan(ctx context.Context) error {
	entries, err := os.ReadDir(m.Path)
	if err != nil {
		return err
	}
	var errs []error
	present := map[string]map[string]bool{} // label -> identities it may have
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			continue
		}
		ids, err := m.file(ctx, name)
		if err != nil {
			errs = append(errs, err)
			ids = nil // unreadable now: nothing of it is deleted
		}
		present[labelOf(name)] = ids
	}
	return errors.Join(append(errs, m.prune(ctx, present))...)
}

// file applies one file if it changed, and names what it holds.
func (m *Dir) file(ctx context.Context, name string) (map[string]bool, error) {
	path := filepath.Join(m.Path, name)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	objs, bad := Read(path, "default")
	objs = slices.DeleteFunc(objs, func(o Manifest) bool { return o.Kind == api.Pods })
	ids := map[string]bool{}
	for _, o := range objs {
		ids[identity(o.Kind, o)] = true
	}
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	if m.seen[name] == hash {
		return ids, bad
	}
	var errs []error
	for _, o := range objs {
		if err := m.apply(ctx, o, labelOf(name)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	if len(errs) == 0 { // what is bad in the file is so until it changes
		m.seen[name] = hash
	}
	return ids, errors.Join(append(errs, bad)...)
}

// apply creates or changes one object. A pod whose spec cannot be changed in place is made anew.
func (m *Dir) apply(ctx context.Context, o Manifest, label string) error {
	if err := o.label(fileLabel, label); err != nil {
		return err
	}
	what, err := Apply(ctx, m.Client, o)
	if err == nil && what != "unchanged" {
		slog.Info("applied manifest", "kind", o.Kind.Name, "name", api.Key(o), "result", what)
	}
	return err
}

func (m *Dir) prune(ctx context.Context, present map[string]map[string]bool) error {
	sel, err := labels.Parse(fileLabel)
	if err != nil {
		return err
	}
	var errs []error
	for _, kind := range kinds.All.Kept {
		if kind == api.Events || kind == coordination.Leases {
			continue
		}
		list, err := m.Client.List(ctx, kind, api.ListOptions{Selection: api.Selection{Labels: sel}})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			ids, fileThere := present[o.GetLabels()[fileLabel]]
			if fileThere && (ids == nil || ids[identity(kind, o)]) || o.GetDeletionTimestamp() != nil {
				continue
			}
			slog.Info("deleting what a removed manifest had made", "kind", kind.Name, "name", api.Key(o))
			if _, err := m.Client.Delete(ctx, kind, o.GetNamespace(), o.GetName(), api.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func identity(kind *api.Kind, o api.Object) string {
	return kind.Resource + "/" + o.GetNamespace() + "/" + o.GetName()
}

// labelOf makes a label value of a file name: a hash, since names may be long or odd.
func labelOf(file string) string {
	sum := sha256.Sum256([]byte(file))
	return hex.EncodeToString(sum[:8])
}
