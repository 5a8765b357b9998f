package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ledge/api"
	"ledge/node/claims"
	"ledge/storage"
)

// claimsSuffix is of the file beside a backup that has what is in the claims.
const claimsSuffix = ".claims"

func shelfOf(dataDir string) *claims.Shelf {
	return claims.NewShelf(filepath.Join(dataDir, "claims"), nil)
}

// saveWithClaims saves the store and then the claims on this card, while no pod has one: what a pod has half-written is no backup.
func saveWithClaims(ctx context.Context, c *Command, given, file string) error {
	dataDir, err := c.dataOf(given)
	if err != nil {
		return err
	}
	shelf := shelfOf(dataDir)
	if err := errors.Join(shelf.Restoring(), unused(ctx, c, shelf)); err != nil {
		return err
	}
	if err := c.saveBackup(ctx, dataDir, file); err != nil {
		return err
	}
	var packed claims.Packed
	err = saveWhole(file+claimsSuffix, func(f *os.File) (err error) {
		w := bufio.NewWriterSize(f, 1<<20)
		if packed, err = shelf.Pack(w); err != nil {
			return fmt.Errorf("save claims: %w", err)
		}
		return errors.Join(w.Flush(), unused(ctx, c, shelf)) // who came since may have written
	}, verifyClaims)
	if err != nil {
		return err
	}
	for _, path := range packed.Left {
		fmt.Fprintf(c.Err, "left out, as no archive can have it: %q\n", path)
	}
	if more := packed.LeftOut - len(packed.Left); more > 0 {
		fmt.Fprintf(c.Err, "left out: %d more\n", more)
	}
	if _, err = fmt.Fprintf(c.out, "saved %s: %d claims, %d files\n", file+claimsSuffix, packed.Claims, packed.Files); err != nil {
		return err
	}
	others, err := c.disks(ctx)
	for _, d := range others {
		fmt.Fprintf(c.Err, "not saved: what is in claims on the disk %s (label %s): only those on the card are\n", d.Name, d.Label)
	}
	return err
}

// unused says which pods have a claim.
func unused(ctx context.Context, c *Command, shelf *claims.Shelf) error {
	mounted, err := shelf.Mounted()
	if err != nil || len(mounted) == 0 {
		return err
	}
	pods := map[string]string{} // by uid
	if c.reachable() == nil {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		list, err := cl.List(ctx, api.Pods, api.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			pods[string(o.GetUID())] = o.GetNamespace() + "/" + o.GetName()
		}
	}
	users := map[string]bool{}
	for _, places := range mounted {
		for _, at := range places {
			who := at
			for part := range strings.SplitSeq(at, "/") {
				if pod, ok := pods[part]; ok {
					who = "pod " + pod
				}
			}
			users[who] = true
		}
	}
	names := slices.Sorted(maps.Keys(users))
	more := ""
	if len(names) > 20 {
		names, more = names[:20], fmt.Sprintf(" and %d more", len(names)-20)
	}
	return fmt.Errorf("claims are in use: scale what made it to 0, or delete it, and wait until it is gone: %s%s", strings.Join(names, ", "), more)
}

func verifyClaims(file string) error { return withArchive(file, func(io.Reader) error { return nil }) }

// withArchive opens an archive of claims that is whole.
func withArchive(file string, fn func(io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is no file")
	}
	var r io.Reader
	if err == nil {
		r, err = claims.WholeArchive(f, fi.Size())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return fn(r)
}

// restoreWithClaims puts store and claims of a backup in their place. Both are on disk, whole, before either is: room cannot run out any
// more then. A cut from there on keeps the board from starting until they were restored again.
func (c *Command) restoreWithClaims(ctx context.Context, r storage.Restore, shelf *claims.Shelf) error {
	if c.reachable() == nil {
		return fmt.Errorf("restore claims: a node runs on %s: %w", c.RunDir, storage.ErrInUse)
	}
	var u *claims.Unpacked
	r.Before = func() error {
		if err := unused(ctx, c, shelf); err != nil {
			return err
		}
		err := withArchive(r.Backup+claimsSuffix, func(in io.Reader) (err error) {
			u, err = shelf.Unpack(bufio.NewReaderSize(in, 1<<20))
			return err
		})
		if err != nil {
			return err
		}
		if err := u.Begin(); err != nil {
			return errors.Join(err, u.Drop())
		}
		return nil
	}
	r.After = func() error { return u.Place() }
	if err := r.Run(ctx); err != nil {
		return errors.Join(err, shelf.Restoring())
	}
	_, err := fmt.Fprintf(c.out, "restored %d claims into %s; what was there is beside them, as .old-NAME-TIME\n", len(u.Names), shelf.Path(""))
	return err
}
