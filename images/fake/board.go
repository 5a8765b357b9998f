package fake

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"

	"ledge/images"
)

// What a board asks of its images beside images.Store.

// Self enters the image that comes with ledge; the program itself is not looked at.
func (s *Store) Self(context.Context, string) (images.Image, error) {
	return s.Add(images.Image{Names: []string{images.SelfName}})
}

// Export finds no image whose blobs were kept.
func (s *Store) Export(ctx context.Context, _ io.Writer, names []string) error {
	for _, name := range names {
		if _, err := s.Get(ctx, name); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %v", images.ErrNotKept, names)
}

// Check finds nothing damaged.
func (s *Store) Check(context.Context) (images.Report, error) { return images.Report{}, nil }

// Verify finds nothing damaged.
func (s *Store) Verify(context.Context) (images.Report, error) { return images.Report{}, nil }

// Pulls are none: a pull of a fake takes no time.
func (s *Store) Pulls() []images.PullStatus { return nil }

// Written is the root file system itself.
func (s *Store) Written(key string) string { return s.path(key) }

// Close implements io.Closer.
func (s *Store) Close() error { return nil }

func (s *Store) path(key string) string { return path.Join(cmp.Or(s.Dir, "/fake/rootfs"), key) }
