package cli

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpgradeKeys: keys lie in /etc, beside the data and on the boot partition, and each is trusted.
func TestUpgradeKeys(t *testing.T) {
	dir := t.TempDir()
	u := &upgrader{opts: &upgradeOpts{keys: filepath.Join(dir, "etc.pub"), dataDir: filepath.Join(dir, "data"),
		card: filepath.Join(dir, "card")}}
	files := []string{u.opts.keys, filepath.Join(u.opts.dataDir, "upgrade.pub"), filepath.Join(u.opts.card, "upgrade.pub")}
	key := func(n byte) string {
		return base64.StdEncoding.EncodeToString(append([]byte("Ed"), bytes.Repeat([]byte{n}, 40)...))
	}
	if _, err := u.keys(); err == nil || !strings.Contains(err.Error(), "no key is trusted") {
		t.Error(err)
	}
	for i, file := range files {
		put(t, file, "\ufeffuntrusted comment: minisign public key\r\n"+key(byte(i))+"\r\n")
		if keys, err := u.keys(); err != nil || len(keys) != i+1 {
			t.Errorf("%s: %v, %v", file, keys, err)
		}
	}
	put(t, files[2], "RWnothing")
	if _, err := u.keys(); err == nil || !strings.Contains(err.Error(), files[2]+": line 1") {
		t.Error(err)
	}
}

func TestMachineOf(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		head string
		want string
	}{
		"amd64":   {"\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x3e\x00", "amd64"},
		"arm64":   {"\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xb7\x00", "arm64"},
		"arm":     {"\x7fELF\x01\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x28\x00", "arm"},
		"riscv":   {"\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xf3\x00", "machine 243"},
		"script":  {"#!/bin/sh\necho hello hello hello\n", ""},
		"nothing": {"", ""},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(tc.head), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := machineOf(path); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q %v, want %q", name, got, err, tc.want)
		}
	}
	if err := sameMachine("/proc/self/exe"); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}
