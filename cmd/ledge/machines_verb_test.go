package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// TestInventory is the lister that comes with ledge.
func TestInventory(t *testing.T) {
	file := written(t, "- name: a\n- {name: b, state: shutdown}\n- {name: c, providerID: 'x://1'}\n")
	for args, want := range map[string]string{
		file: "a exists\nb shutdown\nc exists\n", file + " a": "exists\n", file + " a any": "exists\n", file + " b": "shutdown\n", file + " d": "gone\n",
		file + " c x://1": "exists\n", file + " c x://2": "gone\n", file + " c": "exists\n",
	} {
		var out bytes.Buffer
		if err := machinesVerb(t.Context(), &command{args: strings.Fields(args), out: &out}); err != nil || out.String() != want {
			t.Errorf("%s: %q %v, want %q", args, out.String(), err, want)
		}
	}
	for text, wrong := range map[string]string{"": "no machines", "[]": "no machines", "- name: a\n- name: a": "name of its own", "- state: exists": "name of its own",
		"- {name: a, state: asleep}": "asleep", "- {name: a, color: red}": "color", "x": "cannot unmarshal"} {
		if err := machinesVerb(t.Context(), &command{args: []string{written(t, text), "a"}}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %s", text, err, wrong)
		}
	}
}

// A lister that is not there is refused with its flag.
func TestMachineListerFlag(t *testing.T) {
	_, err := settled(t, "--machine-lister", filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "--machine-lister: ") {
		t.Error(err)
	}
}
