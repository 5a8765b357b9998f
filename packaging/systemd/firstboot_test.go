package systemd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ledge/internal/nspawn"
)

// The units as they are, but for the path of the program, and with words in a diary in place of the node's programs: which of them
// runs when is asked here, not what they do.
const (
	diaryBefore = "[Service]\nExecStartPost=/bin/sh -c 'echo first boot >> /out/log'\n"
	diaryKeeper = "[Service]\nType=exec\nWatchdogSec=0\nExecStart=\nExecStart=/bin/sh -c 'echo keeper >> /out/log; exec sleep 1000'\n"
	// Behind 50-boot.conf, which is what the first boot leaves for it.
	diaryBrain = "[Service]\nType=exec\nWatchdogSec=0\nExecStart=\nExecStart=/bin/sh -c 'echo brain >> /out/log; cp /run/systemd/system/ledge.service.d/50-boot.conf /out/ 2>/dev/null; exec sleep 1000'\n"

	diaryNetwork = "[Unit]\nDefaultDependencies=no\nAfter=network-pre.target\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo network >> /out/log'\n"
	diaryTarget  = "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=ledge-firstboot.service ledge-keeper.service ledge.service network.service driver.service\n"
	diaryDriver  = "[Unit]\nAfter=ledge.service network.service\n[Service]\nType=oneshot\nExecStart=/bin/sh /out/driver.sh\n"
)

// firstBoot boots a machine whose /boot/firmware has these files.
func firstBoot(t *testing.T, card map[string]string, driver string) (out string, diary []string, console string) {
	t.Helper()
	ledge := os.Getenv("LEDGE_BIN")
	if ledge == "" {
		t.Skip("LEDGE_BIN names no built ledge: make test does")
	}
	files := map[string]string{
		"etc/systemd/system/ledge-firstboot.service.d/diary.conf": diaryBefore,
		"etc/systemd/system/ledge-keeper.service.d/diary.conf":    diaryKeeper,
		"etc/systemd/system/ledge.service.d/60-diary.conf":        diaryBrain,
		"etc/systemd/system/network.service":                      diaryNetwork,
		"etc/systemd/system/driver.service":                       diaryDriver,
		"etc/systemd/system/test.target":                          diaryTarget,
		"var/lib/ledge/.keep":                                     "",
	}
	for _, unit := range append([]string{"ledge-firstboot.service"}, units...) {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		files["etc/systemd/system/"+unit] = strings.ReplaceAll(string(text), "/usr/local/bin/ledge", "/out/ledge")
	}
	for name, text := range card {
		files["boot/firmware/"+name] = text
	}
	out, said := nspawn.Machine{Name: "ledge-firstboot", Target: "test.target", Programs: map[string]string{"ledge": ledge}, Files: files,
		Out: map[string]string{"driver.sh": driver +
			"\ncp /boot/firmware/ledge-errors.txt /out/ 2>/dev/null\nhostname > /out/hostname\nsystemctl poweroff\n"}}.Boot(t)
	log, _ := os.ReadFile(filepath.Join(out, "log"))
	if testing.Verbose() {
		t.Logf("%s\n%s", log, said)
	}
	return out, strings.Split(strings.TrimSpace(string(log)), "\n"), string(said)
}

func words(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestFirstBootUnit: what is on the boot partition holds before the network and the node begin, once a boot; what is wrong in it is
// told there and on the console, and what is right counts.
func TestFirstBootUnit(t *testing.T) {
	out, diary, console := firstBoot(t, map[string]string{
		"ledge.yaml":         "hostname: shed\nserve: {listen: \"0.0.0.0:6443\"}\nconfiguration:\n  maxPodz: 2\n",
		"manifests/bad.yaml": "kind: Pod\napiVersion: v1\nmetadata: {name: bad}\nspec:\n  restartPolici: Never\n",
	}, "systemctl restart ledge ledge-keeper\nsystemctl is-active ledge ledge-keeper ledge-firstboot > /out/active")
	if slices.Index(diary, "first boot") != 0 || strings.Count(strings.Join(diary, "\n"), "first boot") != 1 {
		t.Errorf("the order is %q", diary)
	}
	slices.Sort(diary)
	if want := []string{"brain", "brain", "first boot", "keeper", "keeper", "network"}; !slices.Equal(diary, want) {
		t.Errorf("%q have run, want %q", diary, want)
	}
	if got := words(t, out, "active"); got != "active\nactive\nactive\n" {
		t.Errorf("the units are %q", got)
	}
	if got := words(t, out, "hostname"); got != "shed\n" {
		t.Errorf("the machine is %q", got)
	}
	if got := words(t, out, "50-boot.conf"); !strings.Contains(got, `"/out/ledge" "serve" `) ||
		!strings.Contains(got, `"--listen" "0.0.0.0:6443"`) {
		t.Errorf("the brain is started by %q", got)
	}
	errors := words(t, out, "ledge-errors.txt")
	for _, want := range []string{`ledge.yaml, line 4: there is no key "maxPodz"`, "manifests/bad.yaml, line 5: "} {
		if !strings.Contains(errors, want) {
			t.Errorf("the partition does not say %q: %q", want, errors)
		}
		if !strings.Contains(regexp.MustCompile(`\\"`).ReplaceAllString(console, `"`), want) {
			t.Errorf("the console does not say %q:\n%s", want, console)
		}
	}
}

// TestFirstBootFails: the node comes up where the first boot cannot do its work at all, here because there is no such partition.
func TestFirstBootFails(t *testing.T) {
	out, diary, _ := firstBoot(t, nil, "systemctl is-failed ledge-firstboot > /out/failed; systemctl is-active ledge ledge-keeper > /out/active; true")
	if failed, active := words(t, out, "failed"), words(t, out, "active"); failed != "failed\n" || active != "active\nactive\n" {
		t.Errorf("the first boot %q, the units %q, the order %q", failed, active, diary)
	}
}
