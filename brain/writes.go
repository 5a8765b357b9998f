package brain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"ledge/api/board"
	"ledge/host"
	"ledge/internal/durable"
	"ledge/runtime"
)

func (b *boardAPI) showStatus(w http.ResponseWriter, r *http.Request) error {
	return answer(w, board.Status{Pressure: b.agent.Pressure().Report(), Writes: b.writes.report(r.Context(), time.Now()),
		Claims: b.listClaims(), Disks: b.listDisks(), Devices: b.listDevices(), Found: b.found.report(), Machine: b.machine()})
}

// The writers, in the order in which they are shown.
var writers = []struct{ name, what string }{
	{"brain", "store, images, certificates"},
	{"keeper", "container logs"},
	{"pods", "what the containers write themselves"},
	{"disk", "everything on the machine"},
}

// account is what is known of one writer. It outlives the counter: a brain that is restarted counts from nothing.
type account struct {
	Of        string `json:"of"`   // the counter
	Last      int64  `json:"last"` // what it said
	Today     int64  `json:"today"`
	SinceBoot int64  `json:"sinceBoot"`
}

// book is the accounts of one boot. It is kept in the run directory, which is memory.
type book struct {
	BootID   string             `json:"bootID"`
	Day      string             `json:"day"` // that Today is of
	Accounts map[string]account `json:"accounts"`
	// Claims are by volume.
	Claims map[string]claimAccount `json:"claims,omitempty"`
}

// note enters what the counters say now. What a counter that is new here has seen before midnight is not of today, as
// far as can be told: it is taken to be so from the start.
func (k *book) note(now time.Time, bootID string, counters map[string]host.Counter) {
	day := now.Format(time.DateOnly)
	if k.BootID != bootID {
		*k = book{BootID: bootID, Day: day, Claims: k.Claims} // these are of this boot already
	}
	if k.Accounts == nil {
		k.Accounts = map[string]account{}
	}
	fresh := k.Day != day
	k.Day = day
	if fresh {
		for name, a := range k.Accounts {
			a.Today = 0
			k.Accounts[name] = a
		}
	}
	for name, c := range counters {
		a, more, today := k.Accounts[name], c.Bytes, c.Since.Format(time.DateOnly) == day
		if a.Of == c.Of {
			// One that goes back has given back what was removed before it came to the disk.
			more, today = c.Bytes-a.Last, true
		}
		a.Of, a.Last = c.Of, c.Bytes
		a.SinceBoot = max(0, a.SinceBoot+more)
		if today {
			a.Today = max(0, a.Today+more)
		}
		k.Accounts[name] = a
	}
}

const writesFile = "writes.json"

// writesEvery is how often the counters are read: what a brain writes in its last minute, if it is killed, is not counted.
const writesEvery = time.Minute

// keeperPatience is how long a keeper may take to say who it is.
const keeperPatience = 2 * time.Second

// writesMeter keeps the book.
type writesMeter struct {
	host   *host.Host
	runDir string
	disk   host.Disk
	onDisk bool
	// keeper says which process it is, and where kubepods stands.
	keeper func(context.Context) (pid int, info runtime.Info, err error)
	claims *claimWriters // nil: this board makes no volumes, or its kernel does not count what is written to them

	mu    sync.Mutex
	book  book
	saved []byte // the file as this process wrote it last
}

func newWritesMeter(h *host.Host, runDir, dataDir string,
	keeper func(context.Context) (int, runtime.Info, error)) *writesMeter {
	m := &writesMeter{host: h, runDir: runDir, keeper: keeper}
	var err error
	if m.disk, err = h.DiskOf(dataDir); err == nil {
		m.onDisk = true
	} else if !errors.Is(err, host.ErrNoDisk) {
		slog.Debug("the disk of the data directory", "err", err)
	}
	data, err := os.ReadFile(filepath.Join(runDir, writesFile))
	if err == nil {
		err = json.Unmarshal(data, &m.book)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Warn("what was written before this start is not counted", "err", err)
		m.book = book{}
	}
	return m
}

// Run notes what was written, now and then, and at the end.
func (m *writesMeter) Run(ctx context.Context) error {
	for {
		m.read(ctx, time.Now())
		select {
		case <-ctx.Done():
			m.read(context.WithoutCancel(ctx), time.Now())
			return nil
		case <-time.After(writesEvery):
		}
	}
}

// read asks every counter that there is. A kernel without one leaves its line out.
func (m *writesMeter) read(ctx context.Context, now time.Time) {
	counters := map[string]host.Counter{}
	add := func(name string, c host.Counter, err error) {
		if err == nil {
			counters[name] = c
		}
	}
	c, err := m.host.ProcessWrites(os.Getpid())
	add("brain", c, err)
	if m.onDisk {
		c, err = m.host.DiskWrites(m.disk)
		add("disk", c, err)
	}
	ctx, cancel := context.WithTimeout(ctx, keeperPatience)
	defer cancel()
	if pid, info, err := m.keeper(ctx); err == nil {
		c, err = m.host.ProcessWrites(pid)
		add("keeper", c, err)
		if m.onDisk {
			c, err = m.host.GroupWrites(path.Join(info.CgroupRoot, "kubepods"), m.disk)
			add("pods", c, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims != nil {
		there, list := m.claims.read()
		m.book.noteClaims(m.host.BootID(), there, list, func(group string) bool { return host.HasGroup(m.host, group) })
	}
	m.book.note(now, m.host.BootID(), counters)
	if err := m.save(); err != nil {
		slog.Debug("what was written is not noted down", "err", err)
	}
}

func (m *writesMeter) save() error {
	data, err := json.Marshal(m.book)
	if err != nil || bytes.Equal(data, m.saved) {
		return err
	}
	if err := durable.Volatile.Replace(filepath.Join(m.runDir, writesFile), data, 0o600); err != nil {
		return err
	}
	m.saved = data
	return nil
}

func (m *writesMeter) report(ctx context.Context, now time.Time) board.Writes {
	m.read(ctx, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := board.Writes{Disk: m.disk.Name, Writers: []board.Writer{}}
	if up, err := m.host.Uptime(); err == nil {
		r.Since(now, up)
	}
	if m.onDisk {
		r.Wear = (*board.Wear)(m.host.Wear(m.disk))
	}
	for _, w := range writers {
		if a, ok := m.book.Accounts[w.name]; ok {
			r.Writers = append(r.Writers, board.Writer{Name: w.name, What: w.what, Today: a.Today, SinceBoot: a.SinceBoot})
		}
	}
	return r
}
