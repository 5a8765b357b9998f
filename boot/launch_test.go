package boot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ledge/brain/place"
	"ledge/config"
)

// TestLaunchWords: what the launcher reads of a command line, which may have words that only another version knows.
func TestLaunchWords(t *testing.T) {
	runDir, old := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(runDir, place.InfoFile), []byte(`{"dataDir": "/data"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LEDGE_RUN_DIR", "")
	for line, want := range map[string]struct {
		role  role
		where string
	}{
		"serve":                                    {roleBrain, config.DefaultDataDir},
		"agent --server https://x --data-dir /d":   {roleBrain, "/d"},
		"--run-dir $RUN serve":                     {roleBrain, config.DefaultDataDir}, // that of the last one says nothing
		"--run-dir=$RUN keeper --cgroup-root=/":    {roleKeeper, "/data"},
		"keeper --data-dir=/d":                     {roleKeeper, "/d"},
		"keeper":                                   {roleKeeper, config.DefaultDataDir},
		"get pods --not-known yet --run-dir $RUN":  {roleTool, "/data"},
		"get pods --run-dir $OLD":                  {roleTool, ""}, // nothing has run there
		"--run-dir $OLD reset --data --data-dir /": {roleTool, "/"},
		"exec web -- serve --data-dir /d":          {roleTool, config.DefaultDataDir},
		"check-db /x":                              {roleNone, ""},
		"":                                         {roleTool, config.DefaultDataDir},
		"--data-dir":                               {roleTool, config.DefaultDataDir},
	} {
		words := strings.Fields(strings.NewReplacer("$RUN", runDir, "$OLD", old).Replace(line))
		w := readLaunchWords(words)
		if got := w.role(); got != want.role {
			t.Errorf("%q: role %d, want %d", line, got, want.role)
		}
		if got := w.where(); got != want.where && want.role != roleNone {
			t.Errorf("%q: data in %q, want %q", line, got, want.where)
		}
	}
}
