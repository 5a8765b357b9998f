package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/downward"
)

// ErrNotFound is what a Source answers for an object that does not exist: an optional one may be missing.
var ErrNotFound = errors.New("not found")

// Source is where the files of one pod's volumes come from.
type Source interface {
	ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, name string) (*corev1.Secret, error)
	// Token is a service-account token that is good for a while yet.
	Token(context.Context, *corev1.ServiceAccountTokenProjection) (string, error)
	Facts() downward.Facts
	// Claimed is the volume that the claim behind one of the pod's volumes is bound to.
	Claimed(context.Context, *corev1.Volume) (*corev1.PersistentVolume, error)
}

// File is one file of a volume, at a path below it.
type File struct {
	Data []byte
	Mode uint32
	// Own: the file is for the pod's user and group alone, where they are known: the one user that all of its
	// containers run as, its fsGroup. Otherwise everybody in the pod must be able to read it.
	Own bool
}

// Files are the files of a volume by their paths.
type Files map[string]File

// defaultMode is that of files when a pod does not say.
const defaultMode = 0o644

// content is what a volume made of objects holds; ok is false for a volume of another kind.
func content(ctx context.Context, v *corev1.Volume, src Source) (files Files, ok bool, err error) {
	files = Files{}
	switch {
	case v.ConfigMap != nil:
		err = files.addConfigMap(ctx, src, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, modeOr(v.ConfigMap.DefaultMode))
	case v.Secret != nil:
		err = files.addSecret(ctx, src, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, modeOr(v.Secret.DefaultMode))
	case v.DownwardAPI != nil:
		err = files.addDownward(src, v.DownwardAPI.Items, modeOr(v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if err = files.addSource(ctx, src, &v.Projected.Sources[i], modeOr(v.Projected.DefaultMode)); err != nil {
				break
			}
		}
	default:
		return nil, false, nil
	}
	return files, true, err
}

func (f Files) addSource(ctx context.Context, src Source, p *corev1.VolumeProjection, mode uint32) error {
	switch {
	case p.ConfigMap != nil:
		return f.addConfigMap(ctx, src, p.ConfigMap.Name, p.ConfigMap.Items, p.ConfigMap.Optional, mode)
	case p.Secret != nil:
		return f.addSecret(ctx, src, p.Secret.Name, p.Secret.Items, p.Secret.Optional, mode)
	case p.DownwardAPI != nil:
		return f.addDownward(src, p.DownwardAPI.Items, mode)
	case p.ServiceAccountToken != nil:
		token, err := src.Token(ctx, p.ServiceAccountToken)
		if err != nil {
			return err
		}
		return f.put(p.ServiceAccountToken.Path, File{Data: []byte(token), Mode: mode, Own: true})
	}
	return errors.New("this source of a projected volume is not supported by ledge yet")
}

func modeOr(m *int32) uint32 {
	if m == nil {
		return defaultMode
	}
	return uint32(*m)
}

func (f Files) addConfigMap(ctx context.Context, src Source, name string, items []corev1.KeyToPath, optional *bool, mode uint32) error {
	may := optional != nil && *optional
	cm, err := src.ConfigMap(ctx, name)
	if errors.Is(err, ErrNotFound) && may {
		return nil
	}
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, cm.BinaryData)
	return f.addKeys(data, items, may, mode, "configmap references non-existent config key")
}

func (f Files) addSecret(ctx context.Context, src Source, name string, items []corev1.KeyToPath, optional *bool, mode uint32) error {
	may := optional != nil && *optional
	s, err := src.Secret(ctx, name)
	if errors.Is(err, ErrNotFound) && may {
		return nil
	}
	if err != nil {
		return err
	}
	return f.addKeys(s.Data, items, may, mode, "references non-existent secret key")
}

// addKeys takes all keys, or those that items name.
func (f Files) addKeys(data map[string][]byte, items []corev1.KeyToPath, optional bool, mode uint32, missing string) error {
	if len(items) == 0 {
		for _, k := range slices.Sorted(maps.Keys(data)) {
			if err := f.put(k, File{Data: data[k], Mode: mode}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, it := range items {
		value, ok := data[it.Key]
		if !ok && optional {
			continue
		}
		if !ok {
			return fmt.Errorf("%s: %s", missing, it.Key)
		}
		file := File{Data: value, Mode: mode}
		if it.Mode != nil {
			file.Mode = uint32(*it.Mode)
		}
		if err := f.put(it.Path, file); err != nil {
			return err
		}
	}
	return nil
}

func (f Files) addDownward(src Source, items []corev1.DownwardAPIVolumeFile, mode uint32) error {
	facts := src.Facts()
	for i := range items {
		it := &items[i]
		var text string
		var err error
		switch {
		case it.FieldRef != nil:
			text, err = facts.Field(it.FieldRef.FieldPath)
		case it.ResourceFieldRef != nil:
			text, err = facts.Resource(it.ResourceFieldRef, it.ResourceFieldRef.ContainerName)
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", it.Path, err)
		}
		file := File{Data: []byte(text), Mode: mode}
		if it.Mode != nil {
			file.Mode = uint32(*it.Mode)
		}
		if err := f.put(it.Path, file); err != nil {
			return err
		}
	}
	return nil
}

// put adds a file. Paths were checked at the API; the pod may come from another one.
func (f Files) put(p string, file File) error {
	clean := path.Clean(p)
	if p == "" || clean == "." || path.IsAbs(p) || strings.HasPrefix(clean, "..") {
		return fmt.Errorf("invalid path %q in a volume", p)
	}
	f[clean] = file
	return nil
}
