package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestClockKeys: who is asked for the time, and by whose leave.
func TestClockKeys(t *testing.T) {
	for _, c := range []struct {
		text        string
		init, other []string // nil: nobody is asked
		wrong       string
	}{
		{text: "{}", init: []string{publicTime}},
		{text: "ntpServers: []"},
		{text: "ntpServers: [ntp.example, 192.0.2.1, 'ntp.example:1123', 'fd00::1', '[fd00::1]:123']",
			init:  []string{"ntp.example", "192.0.2.1", "ntp.example:1123", "fd00::1", "[fd00::1]:123"},
			other: []string{"ntp.example", "192.0.2.1", "ntp.example:1123", "fd00::1", "[fd00::1]:123"}},
		{text: "ntpServers: ['']", wrong: `ntpServers[0]: "" is no server`},
		{text: "ntpServers: [a, 'a b']", wrong: "ntpServers[1]"},
		{text: "ntpServers: ['a:0']", wrong: "is no server"},
		{text: "ntpServers: ['a:ntp']", wrong: "is no server"},
		{text: "ntpServers: ['https://a']", wrong: "is no server"},
	} {
		var k clockKeys
		must(t, yaml.UnmarshalStrict([]byte(c.text), &k))
		err := k.check()
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		must(t, err)
		for init, want := range map[bool][]string{true: c.init, false: c.other} {
			var got []string
			if ask := k.TimeServers(init); ask != nil {
				got = ask()
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, under process 1 %v: %q, want %q", c.text, init, got, want)
			}
		}
	}
}

func TestTimeServersOfDHCP(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "eth0.ntp"), []byte("192.0.2.1\n192.0.2.2\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "eth1.ntp"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "eth1.dns"), []byte("nameserver 192.0.2.9\n"), 0o644))
	if got := serversIn(filepath.Join(dir, "*.ntp")); !slices.Equal(got, []string{"192.0.2.1", "192.0.2.2"}) {
		t.Errorf("%q", got)
	}
}
