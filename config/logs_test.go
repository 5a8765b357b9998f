package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ledge/node/podlog"
)

func TestLogConfig(t *testing.T) {
	for text, want := range map[string]podlog.Config{
		"{}": {MaxBytes: 10 << 20, MaxFiles: 5, Rate: 1 << 20, Total: 512 << 20},
		"containerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 2":   {MaxBytes: 1 << 20, MaxFiles: 2, Rate: 1 << 20, Total: 512 << 20},
		"logging: {medium: memory}":                           {Memory: true, MaxBytes: 4 << 20, MaxFiles: 5, Rate: 1 << 20, Total: 32 << 20},
		"logging: {medium: disk, totalSize: 8Mi, rate: 10Ki}": {MaxBytes: 1 << 20, MaxFiles: 5, Rate: 10 << 10, Total: 8 << 20},
		"logging: {totalSize: '0', rate: '0'}":                {MaxBytes: 10 << 20, MaxFiles: 5},
	} {
		cfg, err := Load(written(t, text), "")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := cfg.Logs(); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"containerLogMaxSize: big":   "containerLogMaxSize",
		"containerLogMaxSize: '0'":   "must be positive",
		"containerLogMaxSize: '-1'":  "not a size",
		"containerLogMaxFiles: 1":    "greater than 1",
		"logging: {medium: tape}":    "neither disk nor memory",
		"logging: {totalSize: 1Ki}":  "at least 64Ki",
		"logging: {rate: fast}":      "logging.rate",
		"logging: {format: json}":    "format",
		"containerLogMaxSize: 600Mi": "more than logging.totalSize",
	} {
		if _, err := Load(written(t, text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
