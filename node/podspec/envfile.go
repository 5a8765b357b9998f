package podspec

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// MaxEnvFile is what a file of variables may hold, as much as a ConfigMap.
const MaxEnvFile = 1 << 20

// fileKey takes a variable from a file that another container of the pod has written. An empty value is none, as for a
// kubelet.
func (m envMaker) fileKey(ref *corev1.FileKeySelector) (value string, found bool, err error) {
	optional := ref.Optional != nil && *ref.Optional
	data, err := m.from.File(ref.VolumeName, ref.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && optional:
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("couldn't read env file: %w", err)
	}
	if value, err = envFileValue(string(data), ref.Key); err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %s in volume %s: %w", ref.Path, ref.VolumeName, err)
	}
	if value == "" && !optional {
		return "", false, fmt.Errorf("environment variable key %q not found in file %s in volume %s", ref.Key, ref.Path, ref.VolumeName)
	}
	return value, value != "", nil
}

// envFileValue finds the first value of a key in a file of lines KEY='value'. It is the small part of a shell's syntax
// that every shell reads alike: a value stands in single quotes, in which nothing is special and which may hold line
// ends; a comment may stand on a line of its own or behind the quote; a blank behind the = makes the value empty. What
// is not of that form is an error, but only up to where the key is found.
func envFileValue(text, key string) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", errors.New("it has a NUL in it, which no environment can hold")
	}
	line, rest := 0, strings.ReplaceAll(text, "\r\n", "\n")
	wrong := func(what string) (string, error) { return "", fmt.Errorf("line %d: %s", line, what) }
	for rest != "" {
		this, after, _ := strings.Cut(rest, "\n")
		line++
		this = strings.TrimLeft(this, " \t")
		name, value, ok := strings.Cut(this, "=")
		switch {
		case this == "" || this[0] == '#':
			rest = after
			continue
		case !ok:
			return wrong("there is no = in it")
		case strings.TrimRight(name, " \t") == "":
			return wrong("there is no name before the =")
		case strings.TrimRight(name, " \t") != name:
			return wrong("there is a blank before the =")
		case value != "" && strings.TrimLeft(value, " \t") != value:
			if name == key {
				return "", nil
			}
			rest = after
			continue
		case !strings.HasPrefix(value, "'"):
			return wrong("the value does not stand in single quotes")
		}
		_, quoted, _ := strings.Cut(rest, "='")
		value, behind, ok := strings.Cut(quoted, "'")
		if !ok {
			return wrong("the single quote is not closed")
		}
		comment, after, _ := strings.Cut(behind, "\n")
		if comment = strings.TrimLeft(comment, " \t"); comment != "" && comment[0] != '#' {
			return wrong("something follows the closing quote")
		}
		if name == key {
			return value, nil
		}
		line += strings.Count(value, "\n")
		rest = after
	}
	return "", nil
}
