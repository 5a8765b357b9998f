package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"ledge/shutdown"
)

// TestShutdownKeys: how long pods get, or why not (N-5.2 to N-5.7).
func TestShutdownKeys(t *testing.T) {
	const list = "shutdownGracePeriodByPodPriority: [{priority: 100, shutdownGracePeriodSeconds: 7}, {priority: 0, shutdownGracePeriodSeconds: 3}]"
	for _, tt := range []struct {
		text  string
		want  time.Duration
		wrong string // part of the error
	}{
		{text: "{}"}, // N-5.1, N-5.7
		{text: FirstFile, want: 30 * time.Second},
		{text: "shutdownGracePeriod: 50s\nshutdownGracePeriodCriticalPods: 50s", want: 50 * time.Second},
		{text: list, want: 10 * time.Second},
		{text: "shutdownGracePeriodByPodPriority: []\nshutdownGracePeriod: 20s", want: 20 * time.Second}, // N-5.4
		{text: "shutdownGracePeriod: 20s\n" + list, wrong: "cannot be set together"},
		{text: "shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 21s", wrong: "longer than"},
		{text: "shutdownGracePeriod: 500ms", wrong: "at least 1s"},
		// N-5.3
		{text: "featureGates: {GracefulNodeShutdown: true, GracefulNodeShutdownBasedOnPodPriority: true}\n" + list, want: 10 * time.Second},
		{text: "featureGates: {GracefulNodeShutdown: false}"},
		{text: "featureGates: {GracefulNodeShutdown: false}\nshutdownGracePeriod: 20s", wrong: "requires feature gate GracefulNodeShutdown"},
		{text: "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\nshutdownGracePeriod: 20s", want: 20 * time.Second},
		{text: "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n" + list,
			wrong: "requires feature gate GracefulNodeShutdownBasedOnPodPriority"},
		{text: "featureGates: {GracefulNodeShutdown: false}\n" + list, wrong: "requires feature gate"},
		{text: "featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: true}", wrong: "needs GracefulNodeShutdown"},
	} {
		var f File
		if err := yaml.UnmarshalStrict([]byte(tt.text), &f); err != nil {
			t.Fatalf("%s: %v", tt.text, err)
		}
		err := f.check()
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: %v, want %s", tt.text, err, tt.wrong)
			}
			continue
		}
		if got := f.Shutdown().Total(); err != nil || got != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.text, got, err, tt.want)
		}
	}
}

// TestShutdownFlags: a flag beats the file, and what is wrong with one is said with its name (N-5.7, N-5.14, N-5.19, N-5.22,
// N-5.37).
func TestShutdownFlags(t *testing.T) {
	resolve := func(args ...string) (Settings, error) { return resolved(t, args...) }
	s, err := resolve()
	must(t, err)
	if got := s.File.Shutdown(); got.GracePeriod != 30*time.Second || got.GracePeriodCriticalPods != 10*time.Second ||
		s.Shortfall != "shrink" || !s.CancelStopsKill || s.PodReason != shutdown.StopReason {
		t.Errorf("%+v", s)
	}
	// as the documents have it, where nobody has said anything
	if s, err = resolvedWith(t, "{}"); err != nil || s.File.Shutdown().Total() != 0 {
		t.Errorf("%s, %v", s.File.Shutdown().Total(), err)
	}
	s, err = resolve("--shutdown-grace-period", "1m", "--shutdown-grace-period-critical-pods", "20s", "--inhibit-shortfall=fail",
		"--cancel-stops-kill=false", "--shutdown-pod-reason=Shutdown", "--power-backend=none")
	must(t, err)
	if got := s.File.Shutdown(); got.GracePeriod != time.Minute || got.GracePeriodCriticalPods != 20*time.Second || s.Shortfall != "fail" ||
		s.CancelStopsKill || s.PodReason != shutdown.StopReasonOld || s.PowerBackend != shutdown.None {
		t.Errorf("%+v", s)
	}
	for _, bad := range []string{"--inhibit-shortfall=ignore", "--shutdown-pod-reason=Gone", "--power-backend=hammer"} {
		if _, err := resolve(bad); err == nil || !strings.Contains(err.Error(), strings.Split(bad, "=")[0]) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := resolve("--shutdown-grace-period-critical-pods", "1m"); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("more for critical pods than for all: %v", err)
	}
}

// resolved are the settings that serve works with, given these flags and the first configuration.
func resolved(t *testing.T, args ...string) (Settings, error) {
	t.Helper()
	return resolvedWith(t, FirstFile, args...)
}

func resolvedWith(t *testing.T, text string, args ...string) (Settings, error) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(config, []byte(text), 0o600))
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	o := ServeFlags(f)
	must(t, f.Parse(append([]string{"--config", config, "--config-dir", ""}, args...)))
	return o.Resolve(f)
}
