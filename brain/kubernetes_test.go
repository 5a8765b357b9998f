package brain

import (
	"os"
	"path/filepath"
	"testing"

	"ledge/config"
	"ledge/storage"
)

// TestMovedTo: what was remembered of another control plane's pods is forgotten, and of none else's.
func TestMovedTo(t *testing.T) {
	dir := t.TempDir()
	store, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(dir, "store"), NoSync: true})
	must(t, err)
	defer store.Close()
	b := &Brain{Config: Config{Settings: config.Settings{Options: &config.Options{DataDir: dir}}}, store: store}
	mirror := store.Table("mirror")
	for _, step := range []struct {
		at      string
		forgets bool
	}{
		{"kubernetes https://a:1 0a", false}, // the board was nowhere, as far as it knows
		{"kubernetes https://a:1 0a", false},
		{"kubernetes https://a:1 0b", true}, // made anew at the same address
		{ownPlane, true},
		{ownPlane, false},
		{"ledge 0a", true},
		{"kubernetes https://a:1 0b", true},
		{"kubernetes https://a:1 0b", false},
	} {
		must(t, mirror.Put("pod", []byte("x")))
		serving := filepath.Join(dir, "port", "serving.pem")
		must(t, os.MkdirAll(filepath.Dir(serving), 0o700))
		must(t, os.WriteFile(serving, []byte("x"), 0o600))
		must(t, movedTo(b, step.at))
		rows, _, err := mirror.All()
		must(t, err)
		if (len(rows) == 0) != step.forgets {
			t.Errorf("%s: %d rows", step.at, len(rows))
		}
		if _, err := os.Stat(serving); (err != nil) != step.forgets {
			t.Errorf("%s: what the port showed elsewhere: %v", step.at, err)
		}
	}
	// A board that has served, before it moves for the first time.
	must(t, store.Table("uplink").Delete(movedKey))
	must(t, os.Mkdir(filepath.Join(dir, "pki"), 0o700))
	must(t, movedTo(b, ownPlane))
	must(t, movedTo(b, "ledge 0a"))
	if rows, _, err := mirror.All(); err != nil || len(rows) != 0 {
		t.Error(rows, err)
	}
}

// TestNotesOfOlderBuilds: what a build before wrote of the same control plane is written anew, and forgets nothing; another one's forgets.
func TestNotesOfOlderBuilds(t *testing.T) {
	dir := t.TempDir()
	store, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(dir, "store"), NoSync: true})
	must(t, err)
	defer store.Close()
	b := &Brain{Config: Config{Settings: config.Settings{Options: &config.Options{DataDir: dir}}}, store: store}
	mirror, notes := store.Table("mirror"), store.Table("uplink")
	for _, step := range []struct {
		was, at string
		forgets bool
	}{
		{"kubeconfig", "kubernetes https://a:1 0a", false},
		{"kubernetes https://a:1", "kubernetes https://a:1 0a", false},
		{"kubernetes https://a:1/", "kubernetes https://a:1 0a", false},
		{"kubernetes https://a:1", "kubernetes https://a:12 0a", true},
		{"kubernetes https://a:1", "kubernetes https://b:1 0a", true},
		{"kubernetes https://a:1 0a", "kubernetes https://a:1 0b", true},
		{"kubeconfig", "ledge 0a", true},
		{"kubeconfig", ownPlane, true},
	} {
		must(t, notes.Put(movedKey, []byte(step.was)))
		must(t, mirror.Put("pod", []byte("x")))
		must(t, movedTo(b, step.at))
		rows, _, err := mirror.All()
		must(t, err)
		if (len(rows) == 0) != step.forgets {
			t.Errorf("%q to %q: %d rows", step.was, step.at, len(rows))
		}
		if rows, _, err := notes.All(); err != nil || string(rows[movedKey]) != step.at {
			t.Errorf("%q to %q: noted %q %v", step.was, step.at, rows[movedKey], err)
		}
	}
}

// TestFileOfAnother: a kubeconfig that another control plane's takes the place of is a move, and one that only another has made is none.
func TestFileOfAnother(t *testing.T) {
	dir := t.TempDir()
	store, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(dir, "store"), NoSync: true})
	must(t, err)
	defer store.Close()
	file, serving := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "port", "serving.pem")
	for _, step := range []struct {
		server, token string
		keeps         bool
	}{
		{"https://127.0.0.1:1", "t1", true}, // the first
		{"https://127.0.0.1:1", "t2", true},
		{"https://127.0.0.1:2", "t2", false},
	} {
		must(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "`+step.server+`"}}], users: [{name: u, user: {token: `+step.token+`}}]}`), 0o600))
		must(t, os.MkdirAll(filepath.Dir(serving), 0o700))
		must(t, os.WriteFile(serving, []byte("x"), 0o600))
		b := &Brain{Config: Config{Settings: config.Settings{Name: "pi", Options: &config.Options{DataDir: dir, Kubeconfig: file}}},
			store:  store,
			uplink: &uplink{}}
		must(t, openKubernetes(t.Context(), b))
		if _, err := os.Stat(serving); (err == nil) != step.keeps {
			t.Errorf("%+v: %v", step, err)
		}
	}
}
