package shutdown

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDelayFile: the file that wins is found among those that sort before it or are shadowed (N-5.44).
func TestDelayFile(t *testing.T) {
	root := t.TempDir()
	const sets = "[Login]\n  InhibitDelayMaxSec = 30\n"
	for _, step := range []struct{ path, text, want string }{
		{"etc/systemd/logind.conf", "[Login]\n#InhibitDelayMaxSec=5\n[Other]\nInhibitDelayMaxSec=5\n", ""},
		{"etc/systemd/logind.conf", sets, "etc/systemd/logind.conf"},
		{"run/systemd/logind.conf.d/99-ledge.conf", sets, "run/systemd/logind.conf.d/99-ledge.conf"},
		{"etc/systemd/logind.conf.d/50-mine.conf", sets, "run/systemd/logind.conf.d/99-ledge.conf"},
		{"usr/lib/systemd/logind.conf.d/unattended-upgrades.conf", sets, "usr/lib/systemd/logind.conf.d/unattended-upgrades.conf"},
		{"etc/systemd/logind.conf.d/unattended-upgrades.conf", "# masked\n", "run/systemd/logind.conf.d/99-ledge.conf"},
	} {
		path := filepath.Join(root, step.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(step.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(DelayFile(root), root+"/"); got != step.want {
			t.Errorf("with %s: %q, want %q", step.path, got, step.want)
		}
	}
}
