package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFoundAndRefused: a disk that is found and cannot be used is not read again until a minute is over, or a disk comes or goes.
func TestFoundAndRefused(t *testing.T) {
	var l Labelled
	broken := errors.New("its journal is damaged")
	l.Refuse("no-such-disk", broken) // that was not looked for
	if _, err := l.Find("no-such-disk"); err == nil || errors.Is(err, broken) {
		t.Fatal(err)
	}
	l.last["no-such-disk"] = search{l.last["no-such-disk"].names, time.Now(), nil} // as if it had been found
	if _, err := l.Find("no-such-disk"); err == nil {
		t.Error("what was found once is not looked for again")
	}
	l.Refuse("no-such-disk", broken)
	if _, err := l.Find("no-such-disk"); !errors.Is(err, broken) {
		t.Error(err)
	}
	for name, change := range map[string]func(*search){
		"a minute": func(s *search) { s.at = s.at.Add(-lookAgain) }, "a disk": func(s *search) { s.names += "sdz" }} {
		l.Refuse("no-such-disk", broken)
		s := l.last["no-such-disk"]
		change(&s)
		l.last["no-such-disk"] = s
		if _, err := l.Find("no-such-disk"); err == nil || errors.Is(err, broken) {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// TestClaimKind: ext4 and XFS hold claims, and nothing else is mounted.
func TestClaimKind(t *testing.T) {
	xfs := make([]byte, 2048)
	copy(xfs, "XFSB")
	for want, head := range map[string][]byte{"ext4": ext4Head("DATA"), "xfs": xfs, "": fatHead(71, 82, "FAT32", "STICK")} {
		if got := claimKind(head); got != want || (len(claimOptions[got]) == 2) != (want != "") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var l Labelled
	device := filepath.Join(t.TempDir(), "disk")
	for label, want := range map[string]string{"DATA": "", "": "read the label"} {
		head := ext4Head(label)
		if label == "" {
			head = head[:100]
		}
		if err := os.WriteFile(device, head, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Label(device); got != label || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q %v", label, got, err)
		}
	}
	if err := os.WriteFile(device, fatHead(71, 82, "FAT32", "STICK"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Mount(device, filepath.Join(t.TempDir(), "at")); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Error(err)
	}
}
