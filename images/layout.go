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

// Media types of Docker's own formats, which mean the same as the OCI ones.
const (
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerConfig   = "application/vnd.docker.container.image.v1+json"
	dockerLayer    = "application/vnd.docker.image.rootfs.diff.tar"
)

// containerdName carries the full name in what containerd and docker write; ref.name has only the tag there.
const containerdName = "io.containerd.image.name"

// candidate is an image of a layout before those of one name have been compared.
type candidate struct {
	Found
	rank int
}

// layout reads index.json and what it leads to.
func (r *resolver) layout() error {
	var ix v1.Index
	if err := r.read(v1.ImageIndexFile, &ix); err != nil {
		return err
	}
	best := map[string]candidate{}
	for i, d := range ix.Manifests {
		names, err := descriptorNames(d)
		if err != nil {
			return err
		}
		c, err := r.descend(d, 0)
		if err != nil {
			return err
		}
		if c == nil {
			continue
		}
		c.Names = names
		// Tools that put one manifest per platform at the top give all of them the same name.
		key := strings.Join(names, " ")
		if key == "" {
			key = fmt.Sprint("#", i)
		}
		if old, ok := best[key]; !ok || c.rank < old.rank {
			best[key] = *c
		}
	}
	keys := make([]string, 0, len(best))
	for k := range best {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		r.add(best[k].Found)
	}
	return nil
}

// descriptorNames: the full name if there is one. A bare word may be a repository (skopeo) or a tag (docker, the
// OCI text); "latest" and what looks like a version is taken for a tag, and names nothing.
func descriptorNames(d v1.Descriptor) ([]string, error) {
	name := d.Annotations[containerdName]
	if name == "" {
		name = d.Annotations[v1.AnnotationRefName]
		if !strings.ContainsAny(name, ":/@") {
			digits := strings.TrimPrefix(name, "v")
			if name == "" || name == defaultTag || digits != "" && isDigit(digits[0]) {
				return nil, nil
			}
		}
	}
	return parseNames([]string{name})
}

// descend follows a descriptor to the image for this platform; nil when there is none below it.
func (r *resolver) descend(d v1.Descriptor, depth int) (*candidate, error) {
	if p := d.Platform; p != nil {
		if p.OS == "unknown" { // build attestations
			return nil, nil
		}
		if q := (Platform{p.OS, p.Architecture, p.Variant}); r.p.Rank(q) < 0 || len(p.OSFeatures) > 0 {
			r.others = append(r.others, q.String())
			return nil, nil
		}
	}
	isIndex, raw, err := r.document(d)
	if err != nil {
		return nil, err
	}
	if !isIndex {
		return r.manifest(d, raw)
	}
	if depth >= maxNesting {
		return nil, fmt.Errorf("index %s: indexes nested deeper than %d", d.Digest, maxNesting)
	}
	var ix v1.Index
	if err := json.Unmarshal(raw, &ix); err != nil {
		return nil, fmt.Errorf("read index %s: %w", d.Digest, err)
	}
	var best *candidate
	for _, child := range ix.Manifests {
		c, err := r.descend(child, depth+1)
		if err != nil {
			return nil, err
		}
		if c != nil && (best == nil || c.rank < best.rank) {
			best = c
		}
	}
	if best != nil {
		best.Indexes = append(best.Indexes, string(d.Digest))
	}
	return best, nil
}

// document reads what a descriptor points to and decides whether it is an index or a manifest, by the
// descriptor's word, the document's word and its fields, which must agree.
func (r *resolver) document(d v1.Descriptor) (isIndex bool, raw []byte, err error) {
	file, err := r.blob(d)
	if err != nil {
		return false, nil, err
	}
	var probe struct {
		MediaType string            `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
		Layers    []json.RawMessage `json:"layers"`
	}
	if r.docs++; r.docs > maxDocuments {
		return false, nil, fmt.Errorf("more than %d documents in the archive", maxDocuments)
	}
	if raw, err = r.a.Read(file); err != nil {
		return false, nil, err
	}
	if err := json.Unmarshal(raw, &probe); err != nil {
		return false, nil, fmt.Errorf("read %s: %w", d.Digest, err)
	}
	if probe.MediaType != "" && probe.MediaType != d.MediaType {
		return false, nil, fmt.Errorf("%s calls itself %q, its index %q", d.Digest, probe.MediaType, d.MediaType)
	}
	switch d.MediaType {
	case v1.MediaTypeImageIndex, dockerIndex:
		isIndex = true
	case v1.MediaTypeImageManifest, dockerManifest:
	default:
		return false, nil, fmt.Errorf("%s has the unknown type %q", d.Digest, d.MediaType)
	}
	if isIndex && probe.Layers != nil || !isIndex && probe.Manifests != nil {
		return false, nil, fmt.Errorf("%s is an index and a manifest at once", d.Digest)
	}
	return isIndex, raw, nil
}

// blob gives the file a descriptor points to. Its content was hashed as it was read; here the promises of the
// descriptor are held against it.
func (r *resolver) blob(d v1.Descriptor) (string, error) {
	if !ValidDigest(string(d.Digest)) {
		return "", fmt.Errorf("descriptor has no valid sha256 digest: %.100q", d.Digest)
	}
	file := path.Join(v1.ImageBlobsDir, "sha256", d.Digest.Encoded())
	if far, ok := r.a.(*remote); ok {
		return file, far.expect(file, d)
	}
	got, size, ok := r.a.Stat(file)
	switch {
	case !ok:
		return "", fmt.Errorf("archive has no blob %s", d.Digest)
	case got != string(d.Digest):
		return "", fmt.Errorf("blob %s has the digest %s", d.Digest, got)
	case size != d.Size:
		return "", fmt.Errorf("blob %s has %d bytes, not %d", d.Digest, size, d.Size)
	}
	return file, nil
}

func (r *resolver) manifest(d v1.Descriptor, raw []byte) (*candidate, error) {
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", d.Digest, err)
	}
	if t := m.Config.MediaType; t != v1.MediaTypeImageConfig && t != dockerConfig {
		return nil, fmt.Errorf("manifest %s is not a container image but %q", d.Digest, t)
	}
	config, err := r.blob(m.Config)
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	var layers []FoundLayer
	for _, l := range m.Layers {
		if !layerType(l.MediaType) {
			return nil, fmt.Errorf("manifest %s: layer %s has the unknown type %q", d.Digest, l.Digest, l.MediaType)
		}
		layers = append(layers, FoundLayer{Digest: string(l.Digest), Size: l.Size})
	}
	f, p, err := r.image(config, layers)
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	rank := r.p.Rank(p)
	if rank < 0 {
		r.others = append(r.others, p.String())
		return nil, nil
	}
	// Only now: an archive of many platforms may lack the layers of the others.
	for i, l := range m.Layers {
		if f.Layers[i].File, err = r.blob(l); err != nil {
			if len(l.URLs) > 0 {
				err = errors.New("a layer is stored elsewhere only, which is not supported")
			}
			return nil, fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
	}
	f.Manifest = string(d.Digest)
	f.Documents = append(f.Documents, f.Manifest)
	return &candidate{Found: f, rank: rank}, nil
}

func layerType(t string) bool {
	base := strings.TrimSuffix(strings.TrimSuffix(t, "+gzip"), "+zstd")
	switch base {
	case v1.MediaTypeImageLayer, "application/vnd.oci.image.layer.nondistributable.v1.tar":
		return true
	}
	base = strings.TrimSuffix(strings.TrimSuffix(t, ".gzip"), ".zstd")
	return base == dockerLayer || t == dockerLayer+".foreign.gzip"
}
