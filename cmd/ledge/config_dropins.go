package main

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

const defaultConfigDir = "/etc/ledge/config.d"

// dropIns lists the files of a configuration directory: those that end in .conf, in all of it, in lexical order of
// their paths (N-0.4). The default directory may be missing.
func dropIns(dir string) (out []string, err error) {
	if dir == "" {
		return nil, nil
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == dir && dir == defaultConfigDir {
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
// the later file. Each file must be good by itself, so that an error names the file it is in.
func withDropIns(path string, data []byte, dir string, last ...string) (cfg fileConfig, err error) {
	files, err := dropIns(dir)
	if err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	merged := map[string]any{}
	for i, file := range slices.Concat([]string{path}, files, last) {
		if i > 0 {
			if data, err = os.ReadFile(file); err != nil {
				return cfg, fmt.Errorf("read configuration: %w", err)
			}
		}
		var one fileConfig
		var plain map[string]any
		if err := yaml.UnmarshalStrict(data, &one); err != nil {
			return cfg, fmt.Errorf("configuration %s: %w", file, err)
		}
		if err := yaml.Unmarshal(data, &plain); err != nil {
			return cfg, fmt.Errorf("configuration %s: %w", file, err)
		}
		merge(merged, plain)
	}
	all, err := yaml.Marshal(merged)
	if err != nil {
		return cfg, fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := yaml.UnmarshalStrict(all, &cfg); err != nil {
		return cfg, fmt.Errorf("configuration %s with %s: %w", path, dir, err)
	}
	return cfg, nil
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
