package manifest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ledge/api"
	"ledge/api/local"
	"ledge/storage"
)

// TestBadDocument: a document that is wrong takes no other of its file with it, but nothing is deleted before it is mended: what it
// was to be nobody can tell.
func TestBadDocument(t *testing.T) {
	s, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	must(t, err)
	defer s.Close()
	client, err := local.New(local.Config{Store: s})
	must(t, err)
	m := &Dir{Path: t.TempDir(), Client: client, seen: map[string]string{}}
	const bad, path = "--- # no such thing\nkind: Poodle\napiVersion: v1\nmetadata: {name: p}\n", "f.yaml"
	object := func(name string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
	}
	for _, step := range []struct {
		text, want string
		fails      []string
	}{
		{object("a") + bad + object("b"), "a b", []string{"document 2: ledge does not know objects of kind \"Poodle\""}},
		{object("a") + bad + object("c") + object("x") + "--- x\n", "a b c",
			[]string{"document 2: ", "document 4: yaml: line 4: behind --- may stand"}},
		{object("a") + object("d"), "a d", nil},
	} {
		must(t, os.WriteFile(filepath.Join(m.Path, path), []byte(step.text), 0o600))
		for range 2 {
			err := m.scan(t.Context())
			if (err != nil) != (step.fails != nil) {
				t.Errorf("%q: %v", step.text, err)
			}
			for _, want := range step.fails {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%q: %v, want %q", step.text, err, want)
				}
			}
		}
		list, err := client.List(t.Context(), api.ConfigMaps, api.ListOptions{})
		must(t, err)
		var got []string
		for _, o := range list.Items {
			got = append(got, o.GetName())
		}
		slices.Sort(got)
		if strings.Join(got, " ") != step.want {
			t.Errorf("%q: %q, want %q", step.text, got, step.want)
		}
	}
	objs, err := Read("/dev/null", "default")
	if err == nil || len(objs) > 0 {
		t.Error("nothing is something:", objs)
	}
}
