package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ledge/config"
	"ledge/upgrade"
)

// TestLaunchWords: what the launcher reads of a command line, which may have words that only another version knows.
func TestLaunchWords(t *testing.T) {
	runDir, old := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(runDir, runInfoFile), []byte(`{"dataDir": "/data"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LEDGE_RUN_DIR", "")
	for line, want := range map[string]struct {
		role  role
		where string
	}{
		"serve":                                    {roleBrain, config.DefaultDataDir},
		"agent --server https://x --data-dir /d":   {roleBrain, "/d"},
		"--run-dir $RUN serve":                     {roleBrain, config.DefaultDataDir}, // that of the last one says nothing
		"--run-dir=$RUN keeper --cgroup-root=/":    {roleKeeper, "/data"},
		"keeper --data-dir=/d":                     {roleKeeper, "/d"},
		"keeper":                                   {roleKeeper, config.DefaultDataDir},
		"get pods --not-known yet --run-dir $RUN":  {roleTool, "/data"},
		"get pods --run-dir $OLD":                  {roleTool, ""}, // nothing has run there
		"--run-dir $OLD reset --data --data-dir /": {roleTool, "/"},
		"exec web -- serve --data-dir /d":          {roleTool, config.DefaultDataDir},
		"check-db /x":                              {roleNone, ""},
		"":                                         {roleTool, config.DefaultDataDir},
		"--data-dir":                               {roleTool, config.DefaultDataDir},
	} {
		words := strings.Fields(strings.NewReplacer("$RUN", runDir, "$OLD", old).Replace(line))
		w := readLaunchWords(words)
		if got := w.role(); got != want.role {
			t.Errorf("%q: role %d, want %d", line, got, want.role)
		}
		if got := w.where(); got != want.where && want.role != roleNone {
			t.Errorf("%q: data in %q, want %q", line, got, want.where)
		}
	}
}

// TestUpgradeKeys: keys lie in /etc, beside the data and on the boot partition, and each is trusted.
func TestUpgradeKeys(t *testing.T) {
	dir := t.TempDir()
	u := &upgrader{opts: &upgradeOpts{keys: filepath.Join(dir, "etc.pub"), dataDir: filepath.Join(dir, "data"), card: filepath.Join(dir, "card")}}
	files := []string{u.opts.keys, filepath.Join(u.opts.dataDir, "upgrade.pub"), filepath.Join(u.opts.card, "upgrade.pub")}
	key := func(n byte) string {
		return base64.StdEncoding.EncodeToString(append([]byte("Ed"), bytes.Repeat([]byte{n}, 40)...))
	}
	if _, err := u.keys(); err == nil || !strings.Contains(err.Error(), "no key is trusted") {
		t.Error(err)
	}
	for i, file := range files {
		write(t, file, "\ufeffuntrusted comment: minisign public key\r\n"+key(byte(i))+"\r\n")
		if keys, err := u.keys(); err != nil || len(keys) != i+1 {
			t.Errorf("%s: %v, %v", file, keys, err)
		}
	}
	write(t, files[2], "RWnothing")
	if _, err := u.keys(); err == nil || !strings.Contains(err.Error(), files[2]+": line 1") {
		t.Error(err)
	}
}

// TestProve: a version is well when nothing has been missing for a while, and its trial ends in time whatever happens.
func TestProve(t *testing.T) {
	const within = time.Minute
	for name, tc := range map[string]struct {
		look     func(since time.Duration) error
		refuse   time.Duration // commits fail until then
		well     time.Duration // 0: never
		ended    time.Duration
		mentions string
	}{
		"at once":          {look: func(time.Duration) error { return nil }, well: wellFor},
		"after a while":    {look: late(20 * time.Second), well: 20*time.Second + wellFor},
		"never":            {look: late(time.Hour), ended: within, mentions: "was not well within 1m0s: the Node: is not ready"},
		"too late":         {look: late(within - time.Second), ended: within, mentions: "not been well for long enough"},
		"on and off":       {look: func(since time.Duration) error { return late(since)(since.Truncate(4*time.Second) + time.Millisecond) }, ended: within},
		"a full disk":      {look: func(time.Duration) error { return nil }, refuse: 30 * time.Second, well: 30 * time.Second},
		"a full disk, yet": {look: func(time.Duration) error { return nil }, refuse: time.Hour, ended: within, mentions: "no space"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, well := time.Now(), time.Duration(0)
				tr := &trial{self: "x", within: within}
				err := tr.prove(t.Context(), func(context.Context) error { return tc.look(time.Since(begun)) }, func() error {
					if time.Since(begun) < tc.refuse {
						return errors.New("no space")
					}
					well = time.Since(begun)
					return nil
				})
				if well != tc.well || (err == nil) != (tc.well > 0) {
					t.Errorf("well after %s, want %s: %v", well, tc.well, err)
				}
				if took := time.Since(begun); tc.ended > 0 && (took < tc.ended || took > tc.ended+2*lookEvery) {
					t.Errorf("ended after %s, want %s", took, tc.ended)
				}
				if err != nil && !strings.Contains(err.Error(), tc.mentions) {
					t.Error(err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := (&trial{within: within}).prove(ctx, func(context.Context) error { return errors.New("x") }, nil); err != nil {
			t.Errorf("one that is told to end: %v", err)
		}
	})
}

// late is a look that finds something missing until then.
func late(until time.Duration) func(time.Duration) error {
	return func(since time.Duration) error {
		if since < until {
			return errors.New("the Node: is not ready")
		}
		return nil
	}
}

// TestTrialSafeMode: a version on trial, and the one that runs again after it, are not held for what another died of.
func TestTrialSafeMode(t *testing.T) {
	for _, tc := range []struct {
		t    trial
		want int
	}{{trial{}, 3}, {trial{on: true}, 0}, {trial{came: &upgrade.Outcome{}}, 0}} {
		if got := tc.t.safeAfter(3); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.t, got, tc.want)
		}
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

func TestUpgradeLine(t *testing.T) {
	s := upgrade.State{Base: upgrade.Stamp{Version: "v1.0.0"}}
	if got := upgradeLine(s); got != "" {
		t.Errorf("nothing to say: %q", got)
	}
	s.Pending = &upgrade.Trial{Name: "ledge-v2-x", Tries: 2, Wants: "the Node: is not ready"}
	if got := upgradeLine(s); got != "upgrade: ledge-v2-x is on trial, start 2 of 3; the last one ended: the Node: is not ready" {
		t.Error(got)
	}
	s.Pending, s.Last = nil, &upgrade.Outcome{Name: "ledge-v2-x", Back: upgrade.Base, Why: "it was not well after 3 starts"}
	if got := upgradeLine(s); got != "upgrade: ledge-v2-x does not stay: it was not well after 3 starts; v1.0.0 (as installed) runs" {
		t.Error(got)
	}
	s.Last = &upgrade.Outcome{Name: "ledge-v2-x"}
	if got := upgradeLine(s); got != "" {
		t.Errorf("an upgrade that is well: %q", got)
	}
}
