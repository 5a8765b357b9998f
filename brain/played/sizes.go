package played

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ledge/host/quota"
)

// Sizes are a card's project quotas, on a kernel that may have none: they last as long as the card, over boots. Nothing is counted that
// programs write, as no programs are played.
type Sizes struct {
	mu      sync.Mutex
	numbers map[dirID]uint32
	bounds  map[uint32]quota.Use
}

// dirID is a directory on a disk. An inode's number is given again when the directory is gone, at another time.
type dirID struct {
	inode uint64
	born  unix.StatxTimestamp
}

// NewSizes are those of an empty card.
func NewSizes() *Sizes { return &Sizes{numbers: map[dirID]uint32{}, bounds: map[uint32]quota.Use{}} }

func idOf(dir *os.File) (dirID, error) {
	var st unix.Statx_t
	err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st)
	return dirID{st.Ino, st.Btime}, err
}

// On implements claims.Sizes.
func (*Sizes) On(*os.File) error { return nil }

// Mark implements claims.Sizes.
func (s *Sizes) Mark(dir *os.File, id uint32) error {
	n, err := idOf(dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers[n] = id
	return nil
}

// Number implements claims.Sizes.
func (s *Sizes) Number(dir *os.File) uint32 {
	n, err := idOf(dir)
	if err != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers[n]
}

// Bound implements claims.Sizes.
func (s *Sizes) Bound(_ *os.File, id uint32, bytes, inodes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounds[id] = quota.Use{MaxBytes: bytes, MaxInodes: inodes}
	return nil
}

// Count implements claims.Sizes.
func (s *Sizes) Count(_ *os.File, id uint32) (quota.Use, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bounds[id], nil
}

// Bounds are the numbers that are bound, with how much.
func (s *Sizes) Bounds() map[uint32]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint32]int64{}
	for id, u := range s.bounds {
		if !u.Free() {
			out[id] = u.MaxBytes
		}
	}
	return out
}
