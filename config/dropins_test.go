package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestDropIns: N-0.4.
func TestDropIns(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	main := written(t, "maxPods: 5\nshutdownGracePeriod: 30s\nresolvConf: /a\nevictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n"+
		"registerWithTaints: [{key: a, effect: NoSchedule, value: x}, {key: b, effect: NoSchedule}]\n")
	load := func() (File, error) { return Load(main, dir) }
	if cfg, err := load(); err != nil || cfg.MaxPods != 5 {
		t.Fatalf("with an empty directory: %+v %v", cfg, err)
	}
	put("20-b.conf", "maxPods: 20\n")
	put("10-a.conf", "maxPods: 10\nevictionHard: {memory.available: 2Gi}\nregisterWithTaints: [{key: c, effect: NoExecute}]\n")
	put("15-deep/z.conf", "resolvConf: null\nshutdownGracePeriod: 40s\n")
	put("30-not.yaml", "maxPods: 30\n")
	put("40-nor.conf.bak", "maxPods: [\n")
	cfg, err := load()
	if err != nil || cfg.MaxPods != 20 || cfg.ResolvConf != "" || cfg.ShutdownGracePeriod.Duration != 40*time.Second ||
		fmt.Sprint(cfg.EvictionHard) != "map[memory.available:2Gi nodefs.available:5%]" ||
		len(cfg.RegisterWithTaints) != 1 || cfg.RegisterWithTaints[0] != (corev1.Taint{Key: "c", Effect: corev1.TaintEffectNoExecute}) {
		t.Errorf("%+v %v", cfg, err)
	}
	for text, want := range map[string]string{"maxPodz: 1": "maxPodz", "maxPods: [": "50-bad.conf",
		"containerLogMaxFiles: 1": "greater than 1"} {
		put("50-bad.conf", text)
		if _, err := load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Load(main, filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that was named and is not there is passed over")
	}
}
