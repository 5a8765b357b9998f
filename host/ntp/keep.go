package ntp

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// Between two rounds.
const (
	firstWait = time.Second // a board that starts waits for its network too
	lastWait  = 5 * time.Minute
	// steady keeps a crystal of 50 ppm within some hundredths of a second.
	steady = 17 * time.Minute
	// refusal is how long a server is left alone that does not want to be asked.
	refusal = time.Hour
	// told is after how many rounds without an answer somebody is told.
	told = 6
	// addresses of one name that are tried in a round.
	addresses = 4
)

// Config of a Keeper. The functions are its hands.
type Config struct {
	// Servers are asked in this order, HOST or HOST:PORT, until one answers.
	Servers func() []string
	// Floor is a moment known to have passed.
	Floor time.Time
	// Adjust corrects the clock, which then is right within that: at once when it is far off, little by little otherwise; it says which.
	Adjust func(offset, within time.Duration) (stepped bool, err error)

	Ask     func(ctx context.Context, address string, floor time.Time) (Answer, error) // nil: Ask
	Resolve func(ctx context.Context, name string) ([]string, error)                   // nil: the system's resolver
}

// Keeper keeps the clock.
type Keeper struct {
	cfg     Config
	refused map[string]time.Time // until when; the monotonic clock counts
	failed  int                  // rounds in a row
	synced  bool
}

// New prepares a Keeper.
func New(cfg Config) *Keeper {
	if cfg.Ask == nil {
		cfg.Ask = Ask
	}
	if cfg.Resolve == nil {
		cfg.Resolve = net.DefaultResolver.LookupHost
	}
	return &Keeper{cfg: cfg, refused: map[string]time.Time{}}
}

// Run asks until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for wait := firstWait; ; {
		err := k.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			k.failed, wait = 0, firstWait
		default:
			k.failed++
			if k.failed == told || k.failed == 1 && k.synced {
				slog.Warn("no server tells the time; the clock goes by itself", "err", err)
			}
		}
		next := steady
		if err != nil {
			next, wait = wait, min(2*wait, lastWait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next + rand.N(next/8)): // boards that came up together are not to ask together
		}
	}
}

// Split takes a server's port off its name or address, which may stand in brackets; without one it is that of NTP.
func Split(server string) (host, port string) {
	if host, port, err := net.SplitHostPort(server); err == nil {
		return host, port
	}
	return strings.TrimSuffix(strings.TrimPrefix(server, "["), "]"), "123"
}

// round asks one server after the other until one has answered.
func (k *Keeper) round(ctx context.Context) error {
	var errs []error
	for _, name := range k.cfg.Servers() {
		host, port := Split(name)
		list, err := k.cfg.Resolve(ctx, host)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, one := range list[:min(len(list), addresses)] {
			at := net.JoinHostPort(one, port)
			if time.Now().Before(k.refused[at]) {
				continue
			}
			a, err := k.cfg.Ask(ctx, at, k.cfg.Floor)
			if errors.Is(err, ErrRefused) {
				k.refused[at] = time.Now().Add(refusal)
			}
			if err == nil {
				return k.adjust(name, a)
			}
			errs = append(errs, err)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	if len(errs) == 0 {
		return errors.New("no server is known, or all refuse to answer")
	}
	return errors.Join(errs...)
}

func (k *Keeper) adjust(server string, a Answer) error {
	was := time.Now().Round(0)
	stepped, err := k.cfg.Adjust(a.Offset, a.Delay/2)
	if err != nil {
		return err
	}
	if stepped || !k.synced {
		slog.Info("the clock goes by a time server", "server", server, "was", was.UTC().Format(time.RFC3339), "off", a.Offset, "within",
			a.Delay/2)
	}
	k.synced = true
	return nil
}
