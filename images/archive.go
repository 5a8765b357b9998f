package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Bounds on what an archive may make us read (CVE-2023-25153; index graphs that multiply, GO-2026-6597).
const (
	MaxDocument  = 4 << 20 // one JSON document
	maxDocuments = 1000    // documents in one archive
	maxNesting   = 4       // an index in an index
	maxLayers    = 128     // in one image; overlayfs and a page of mount options take more
)

// Archive is what Resolve needs to see of an image archive: its files, by their clean path.
type Archive interface {
	// Stat gives the digest and size of a file.
	Stat(name string) (digest string, size int64, ok bool)
	// Read gives the whole of a file, or an error if it is longer than MaxDocument.
	Read(name string) ([]byte, error)
}

// Found is one image of an archive that runs on the asked platform.
type Found struct {
	ID       string   // digest of the config
	Names    []string // canonical, with tag
	Manifest string   // digest of the manifest; empty in an old docker archive
	Indexes  []string // digests of the indexes that led to it
	Config   Config
	// Documents are the files to keep beside the layers: config and manifest.
	Documents []string
	Layers    []FoundLayer // lowest first
}

// FoundLayer is a layer as the archive holds it.
type FoundLayer struct {
	File   string // in the archive
	Digest string // of that file
	Size   int64  // of that file
	DiffID string // digest of the layer uncompressed, as the config promises it
}

// Resolve reads the table of contents of an image archive, an OCI layout or what docker save writes, and gives
// every image in it that runs on p. It is an error when there is none.
func Resolve(a Archive, p Platform) ([]Found, error) {
	r := &resolver{a: a, p: p}
	if err := r.run(); err != nil {
		return nil, err
	}
	if len(r.found) > 0 {
		return r.found, nil
	}
	if len(r.others) > 0 {
		slices.Sort(r.others)
		return nil, fmt.Errorf("no image for %s in the archive; it has %s", p, strings.Join(slices.Compact(r.others), ", "))
	}
	return nil, errors.New("no image in the archive")
}

type resolver struct {
	a      Archive
	p      Platform
	docs   int
	found  []Found
	others []string // platforms seen and not wanted
}

func (r *resolver) run() error {
	_, _, hasIndex := r.a.Stat(v1.ImageIndexFile)
	_, _, hasDocker := r.a.Stat("manifest.json")
	if !hasIndex && !hasDocker {
		if _, _, old := r.a.Stat("repositories"); old {
			return errors.New("archive is of a docker older than 1.10: save the image again")
		}
		return errors.New("not an image archive: neither index.json nor manifest.json in it")
	}
	if hasIndex {
		if err := r.layout(); err != nil {
			return err
		}
	}
	if hasDocker {
		return r.docker(hasIndex)
	}
	return nil
}

func (r *resolver) read(name string, into any) error {
	if r.docs++; r.docs > maxDocuments {
		return fmt.Errorf("more than %d documents in the archive", maxDocuments)
	}
	data, err := r.a.Read(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// add keeps an image once, with all its names.
func (r *resolver) add(f Found) {
	for i := range r.found {
		if g := &r.found[i]; g.ID == f.ID {
			g.Names = mergeNames(g.Names, f.Names)
			g.Indexes = mergeNames(g.Indexes, f.Indexes)
			if g.Manifest == "" {
				g.Manifest = f.Manifest
				g.Documents = mergeNames(g.Documents, f.Documents)
			}
			return
		}
	}
	r.found = append(r.found, f)
}

// mergeNames gives the sorted union.
func mergeNames(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// image makes a Found of a config and its layers.
func (r *resolver) image(configFile string, layers []FoundLayer) (Found, Platform, error) {
	var c v1.Image
	if err := r.read(configFile, &c); err != nil {
		return Found{}, Platform{}, err
	}
	id, _, _ := r.a.Stat(configFile)
	p := Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
	if len(c.RootFS.DiffIDs) != len(layers) {
		return Found{}, p, fmt.Errorf("image %s: config names %d layers, manifest %d", id, len(c.RootFS.DiffIDs), len(layers))
	}
	if len(layers) > maxLayers {
		return Found{}, p, fmt.Errorf("image %s: %d layers; at most %d work", id, len(layers), maxLayers)
	}
	for i, d := range c.RootFS.DiffIDs {
		if !ValidDigest(string(d)) {
			return Found{}, p, fmt.Errorf("image %s: layer %d has no valid diff ID", id, i)
		}
		layers[i].DiffID = string(d)
	}
	f := Found{ID: id, Config: configOf(c.Config), Documents: []string{id}, Layers: layers}
	return f, p, nil
}

func configOf(c v1.ImageConfig) Config {
	out := Config{Entrypoint: c.Entrypoint, Cmd: c.Cmd, Env: c.Env, WorkingDir: c.WorkingDir,
		User: c.User, StopSignal: c.StopSignal, Labels: c.Labels}
	for v := range c.Volumes {
		out.Volumes = append(out.Volumes, v)
	}
	slices.Sort(out.Volumes)
	return out
}

// docker reads manifest.json. Where an index.json stands beside it, as docker writes since 25, that one is the
// truth and this one only gives names: two answers to one question are an old attack.
func (r *resolver) docker(namesOnly bool) error {
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := r.read("manifest.json", &list); err != nil {
		return err
	}
	for _, m := range list {
		names, err := parseNames(m.RepoTags)
		if err != nil {
			return err
		}
		file := path.Clean(m.Config)
		id, _, ok := r.a.Stat(file)
		if namesOnly {
			for i := range r.found {
				if ok && r.found[i].ID == id {
					r.found[i].Names = mergeNames(r.found[i].Names, names)
				}
			}
			continue
		}
		if !ok {
			return fmt.Errorf("archive has no %s", file)
		}
		if hex, ok := strings.CutSuffix(file, ".json"); ok && isHex(hex, 64) && id != "sha256:"+hex {
			return fmt.Errorf("config %s has the digest %s", file, id)
		}
		if err := r.dockerImage(file, m.Layers, names); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolver) dockerImage(config string, files, names []string) error {
	var layers []FoundLayer
	for _, file := range files {
		file = path.Clean(file)
		d, size, ok := r.a.Stat(file)
		if !ok {
			return fmt.Errorf("archive has no layer %s", file)
		}
		layers = append(layers, FoundLayer{File: file, Digest: d, Size: size})
	}
	f, p, err := r.image(config, layers)
	if err != nil {
		return err
	}
	if r.p.Rank(p) < 0 {
		r.others = append(r.others, p.String())
		return nil
	}
	f.Names = names
	r.add(f)
	return nil
}

func parseNames(tags []string) ([]string, error) {
	var names []string
	for _, t := range tags {
		ref, err := ParseReference(t)
		if err != nil {
			return nil, err
		}
		if n := ref.Tagged(); n != "" {
			names = append(names, n)
		}
	}
	return mergeNames(names, nil), nil
}
