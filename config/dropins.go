package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// DefaultDir has the files that override the configuration.
const DefaultDir = "/etc/ledge/config.d"

// dropIns lists the files of a configuration directory: those that end in .conf, in all of it, in lexical order of
// their paths (N-0.4). The default directory may be missing.
func dropIns(dir string) (out []string, err error) {
	if dir == "" {
		return nil, nil
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == dir && dir == DefaultDir {
			return nil
		}
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".conf") {
			out = append(out, path)
		}
		return err
	})
	return out, err
}

// withDropIns reads a configuration, what stands in its directory, and last files: maps are merged, anything else is replaced by
// the later file. The values are checked together; an error names the file it is in.
func withDropIns(path string, data []byte, dir string, last ...string) (cfg File, err error) {
	files, err := dropIns(dir)
	if err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	files = slices.Concat([]string{path}, files, last)
	merged := map[string]any{}
	texts := make([][]byte, len(files))
	for i, file := range files {
		if i > 0 {
			if data, err = os.ReadFile(file); err != nil {
				return cfg, fmt.Errorf("read configuration: %w", err)
			}
		}
		keys, err := ReadKeys(data)
		if err != nil {
			return cfg, fmt.Errorf("configuration %s: %w", file, err)
		}
		texts[i] = data
		merge(merged, keys) // which takes them over, and changes them
	}
	if cfg, err = checkedConfig(merged); err != nil {
		for i := len(files) - 1; i > 0; i-- {
			keys, _ := ReadKeys(texts[i]) // it could be read above
			if _, alone := checkedConfig(keys); alone != nil && alone.Error() == err.Error() {
				path = files[i]
				break
			}
		}
		return cfg, fmt.Errorf("configuration %s: %w", path, err)
	}
	return cfg, nil
}

func checkedConfig(keys map[string]any) (cfg File, err error) {
	data, err := yaml.Marshal(keys)
	if err == nil {
		err = yaml.UnmarshalStrict(data, &cfg)
	}
	if err == nil {
		err = cfg.check()
	}
	return cfg, err
}

// merge puts b over a. A null takes a key away.
func merge(a, b map[string]any) {
	for key, v := range b {
		inner, isMap := v.(map[string]any)
		old, wasMap := a[key].(map[string]any)
		switch {
		case v == nil:
			delete(a, key)
		case isMap && wasMap:
			merge(old, inner)
		default:
			a[key] = v
		}
	}
}
