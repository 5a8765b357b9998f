package images

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

const usesFile = "uses.json"

// use is when an image was last used and since when it is known. Times are of this process only: a board's clock may
// jump by fifty years when it finds the time.
type use struct {
	order uint64
	at    time.Time
	since time.Time // zero: it was here when the store was opened
}

// uses knows in which order images were used.
type uses struct {
	home *home
	log  *slog.Logger

	mu     sync.Mutex
	byID   map[string]use
	last   uint64    // order of the latest use
	opened time.Time // zero while the store is being opened
}

// begin says that what arrives from now on is new.
func (u *uses) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.opened = time.Now()
}

// touch notes that an image is used.
func (u *uses) touch(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last++
	is := u.byID[id]
	is.order, is.at = u.last, time.Now()
	u.byID[id] = is
}

// arrived notes that an image is new.
func (u *uses) arrived(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if is, ok := u.byID[id]; !u.opened.IsZero() && (!ok || is.since.IsZero()) {
		is.since = time.Now()
		u.byID[id] = is
	}
}

func (u *uses) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byID, id)
}

// of is when an image was last used, how long it is here, minAge more if it was before the store was opened, and for how
// long nobody has used it.
func (u *uses) of(id string, minAge time.Duration) (order uint64, age, idle time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now, is := time.Now(), u.byID[id]
	age, idle = now.Sub(u.opened)+minAge, now.Sub(u.opened)
	if !is.since.IsZero() {
		age, idle = now.Sub(is.since), now.Sub(is.since)
	}
	if !is.at.IsZero() {
		idle = now.Sub(is.at)
	}
	return is.order, age, idle
}

// load reads in which order images were used before. Losing that is harmless.
func (u *uses) load() error {
	data, err := os.ReadFile(u.home.root(usesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	orders := map[string]uint64{}
	if json.Unmarshal(data, &orders) != nil {
		u.log.Warn("the order in which images were used is lost", "file", u.home.root(usesFile))
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, order := range orders {
		u.byID[id] = use{order: order}
		u.last = max(u.last, order)
	}
	return nil
}

// save is done at a clean end only: it is not worth a write to the card at every start of a container. Images that
// are gone are left out.
func (u *uses) save(has func(id string) bool) error {
	orders := u.orders()
	for id := range orders {
		if !has(id) {
			delete(orders, id)
		}
	}
	if old, err := os.ReadFile(u.home.root(usesFile)); err == nil {
		if data, err := json.Marshal(orders); err == nil && bytes.Equal(old, data) {
			return nil
		}
	}
	return u.home.writeJSON(u.home.root(usesFile), orders)
}

func (u *uses) orders() map[string]uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[string]uint64{}
	for id, is := range u.byID {
		if is.order > 0 {
			out[id] = is.order
		}
	}
	return out
}
