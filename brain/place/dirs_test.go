package place

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ledge/config"
)

func TestCheckPlaces(t *testing.T) {
	long := "/" + strings.Repeat("x", longestRunDir-1)
	for _, tc := range []struct{ run, data, want string }{
		{config.DefaultRunDir, config.DefaultDataDir, ""},
		{long, "/d", ""},
		{long + "x", "/d", "give a shorter one"},
		{"/r", "", "--data-dir is empty"},
		{"/r", "/r", "in the run directory"},
		{"/r", "/r/data", "in the run directory"},
		{"/r", "/r-data", ""},
		{"/d/run", "/d", ""},
	} {
		if err := Check(tc.run, tc.data); tc.want == "" && err != nil || tc.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	path := Socket(long) + ".4194304"
	if len(path) != 107 {
		t.Errorf("a path of %d bytes", len(path))
	}
}

// TestHoldRunDir: one holds a run directory, whatever programs that one has started; one that a reset has removed holds nobody off.
func TestHoldRunDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	must(t, os.Mkdir(dir, 0o700))
	first, err := Hold(t.Context(), dir)
	must(t, err)
	child := exec.CommandContext(t.Context(), "sleep", "1000")
	must(t, child.Start())
	defer child.Wait()
	defer child.Process.Kill()
	if _, err := Hold(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "another ledge runs there") {
		t.Error("held twice:", err)
	}
	must(t, os.Remove(dir))
	must(t, os.Mkdir(dir, 0o700))
	second, err := Hold(t.Context(), dir)
	must(t, err)
	must(t, first.Close())
	must(t, second.Close())
	third, err := Hold(t.Context(), dir)
	must(t, err)
	must(t, third.Close())
}

// Which directories are a node's.
func TestForeign(t *testing.T) {
	for name, tc := range map[string]struct {
		files []string
		want  bool
	}{
		"empty":               {nil, false},
		"others'":             {[]string{"x/"}, true},
		"a disk's":            {[]string{"lost+found/"}, false},
		"a start cut off":     {[]string{".probe-1"}, false},
		"a node's":            {[]string{"x/", "store/", "store/lock"}, false},
		"a store of others":   {[]string{"store/", "store/cheese"}, true},
		"a disk of others":    {[]string{"lost+found/", "photos/"}, true},
		"a reset halfway":     {[]string{"store/", "store/state.db"}, false},
		"keys before a start": {[]string{"upgrade.pub"}, true},
	} {
		dir := t.TempDir()
		for _, f := range tc.files {
			if f, ok := strings.CutSuffix(f, "/"); ok {
				must(t, os.Mkdir(filepath.Join(dir, f), 0o700))
				continue
			}
			must(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
		}
		if got, err := Foreign(dir, DataMarks); err != nil || got != tc.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	if got, err := Foreign("/none", RunMarks); err != nil || got {
		t.Error(got, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
