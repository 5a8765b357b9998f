package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ledge/api/board"
	"ledge/config"
	"ledge/internal/durable"
	"ledge/storage"
)

type backupOpts struct {
	dataDir string
	claims  bool
}

func backupFlags(c *Command) {
	o := &backupOpts{}
	c.Flags.StringVar(&o.dataDir, "data-dir", "", "for a node that does not run, and for restore: "+dataDirUsage)
	c.Flags.BoolVar(&o.claims, "claims", false, "also what is in the claims on this board's card, in FILE.claims; no pod may run that has one")
	c.Opts = o
}

func backup(ctx context.Context, c *Command) error {
	if len(c.args) != 2 {
		return config.Usagef("backup: save FILE, verify FILE or restore FILE")
	}
	o, file := c.Opts.(*backupOpts), c.args[1]
	switch c.args[0] {
	case "save":
		if o.claims {
			return saveWithClaims(ctx, c, o.dataDir, file)
		}
		return c.saveBackup(ctx, o.dataDir, file)
	case "verify":
		if err := checkFile(ctx, file); err != nil {
			return err
		}
		if o.claims {
			if err := verifyClaims(file + claimsSuffix); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(c.out, "%s is whole\n", file)
		return err
	case "restore":
		dataDir, err := c.dataOf(o.dataDir)
		if err != nil {
			return err
		}
		r, shelf := storage.Restore{Dir: storeOf(dataDir), Backup: file, Check: checkFile}, shelfOf(dataDir)
		if o.claims {
			err = c.restoreWithClaims(ctx, r, shelf)
		} else if err = shelf.Restoring(); err == nil {
			err = r.Run(ctx)
		}
		if err != nil {
			return stopFirst(err)
		}
		_, err = fmt.Fprintf(c.out, "restored %s into %s\n", file, dataDir)
		return err
	}
	return config.Usagef("backup: save FILE, verify FILE or restore FILE")
}

// storeOf is where a node's store is.
func storeOf(dataDir string) string { return filepath.Join(dataDir, "store") }

// stopFirst says what to do about a store that somebody holds.
func stopFirst(err error) error {
	if errors.Is(err, storage.ErrInUse) {
		return fmt.Errorf("%w; stop it first (systemctl stop ledge)", err)
	}
	return err
}

// checkFile checks a store file in a process of its own.
func checkFile(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return storage.CheckChild(exe, "check-db")(ctx, file)
}

// saveBackup asks the running node, or reads the store itself when none runs. The file is in place only when whole.
func (c *Command) saveBackup(ctx context.Context, dataDir, file string) (err error) {
	running := c.reachable() == nil
	if !running {
		if dataDir, err = c.dataOf(dataDir); err != nil {
			return err
		}
	}
	err = saveWhole(file, func(f *os.File) error {
		if running {
			return c.fetchBackup(ctx, f)
		}
		return storage.BackupDir(storeOf(dataDir), f)
	}, func(tmp string) error { return checkFile(ctx, tmp) })
	if err == nil {
		_, err = fmt.Fprintf(c.out, "saved %s\n", file)
	}
	return err
}

// saveWhole writes a file that is in place only when it was written and checked.
func saveWhole(file string, write func(*os.File) error, check func(tmp string) error) (err error) {
	tmp := file + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // it holds secrets
	if err != nil {
		return fmt.Errorf("save backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}()
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = check(tmp)
	}
	if err == nil {
		err = durable.Move(tmp, file)
	}
	return err
}

func (c *Command) fetchBackup(ctx context.Context, w io.Writer) error {
	resp, err := c.Raw(ctx, "GET", board.BackupPath, nil, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("fetch backup: %w", err)
	}
	return nil
}
