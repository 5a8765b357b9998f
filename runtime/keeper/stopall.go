package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// StopAll stops every pod through a keeper, the one that runs or one started for this, which ends with them.
func StopAll(ctx context.Context, runDir, cgroupRoot string) error {
	if _, err := os.Stat(filepath.Join(runDir, "boot_id")); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(runDir, "keeper.sock")); errors.Is(err, fs.ErrNotExist) {
			return nil // no keeper has run since the boot
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	k := New(ClientConfig{RunDir: runDir, Command: []string{exe, "--run-dir", runDir, "keeper", "--cgroup-root", cgroupRoot}})
	starter, stop := context.WithCancel(ctx)
	started := make(chan error, 1)
	go func() { started <- k.Run(starter) }() // starts the keeper when none answers
	_, err = k.WaitReady(ctx)
	stop() // before the reset: a keeper that has ended must not be started again
	if err := errors.Join(err, <-started); err != nil {
		return fmt.Errorf("start a keeper to stop the pods: %w", err)
	}
	return k.Reset(ctx)
}
