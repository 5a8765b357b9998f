package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInventory is the lister that comes with ledge.
func TestInventory(t *testing.T) {
	file := inventory(t, "- name: a\n- {name: b, state: shutdown}\n- {name: c, providerID: 'x://1'}\n")
	for args, want := range map[string]string{
		file: "a exists\nb shutdown\nc exists\n", file + " a": "exists\n", file + " a any": "exists\n", file + " b": "shutdown\n",
		file + " d":       "gone\n",
		file + " c x://1": "exists\n", file + " c x://2": "gone\n", file + " c": "exists\n",
	} {
		var out bytes.Buffer
		if err := machinesVerb(t.Context(), &Command{args: strings.Fields(args), out: &out}); err != nil || out.String() != want {
			t.Errorf("%s: %q %v, want %q", args, out.String(), err, want)
		}
	}
	for text, wrong := range map[string]string{"": "no machines", "[]": "no machines", "- name: a\n- name: a": "name of its own",
		"- state: exists":            "name of its own",
		"- {name: a, state: asleep}": "asleep", "- {name: a, color: red}": "color", "x": "cannot unmarshal"} {
		if err := machinesVerb(t.Context(), &Command{args: []string{inventory(t, text), "a"}}); err == nil ||
			!strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %s", text, err, wrong)
		}
	}
}

func inventory(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inventory.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
