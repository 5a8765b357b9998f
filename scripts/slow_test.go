package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// A slow run names what took most of it, and does not fail for that.
func TestSlow(t *testing.T) {
	script, err := os.ReadFile("test.sh")
	if err != nil {
		t.Fatal(err)
	}
	slow := regexp.MustCompile(`(?ms)^slow\(\) \{$.*?^\}$`).Find(script)
	summary := filepath.Join(t.TempDir(), "summary")
	if err := os.WriteFile(summary, []byte(`ok       9 s  build
ok     731 s  unit, simulation, conformance (race)
FAIL    80 s  lint
ok    1801 s  guest: root tests, units and packages on cgroup v2
ok     420 s  Kubernetes' own tests, some
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for seconds, want := range map[string]string{
		"2400": "",
		"3180": "slow: 53 minutes, 40 are meant to do; the longest: guest: root tests, units and packages on cgroup v2 (1801 s), " +
			"unit, simulation, conformance (race) (731 s), Kubernetes' own tests, some (420 s)\n",
	} {
		out, err := exec.Command("sh", "-euc", string(slow)+"\nslow "+seconds+" "+summary).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("after %s s: %v %q, want %q", seconds, err, out, want)
		}
	}
}
