package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"ledge/lab/vm/flash"
)

// served is a disk that loses all writes that were not flushed, and the socket at which QEMU finds it.
type served struct {
	*flash.Disk
	socket net.Listener
	ended  chan error
}

func serve(image, socket string) (*served, error) {
	disk, err := flash.Open(image)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	s := &served{disk, l, make(chan error, 1)}
	go func() { s.ended <- disk.Serve(l) }()
	return s, nil
}

func (s *served) end() error { return errors.Join(s.socket.Close(), <-s.ended, s.Close()) }

// drive is the disk as QEMU takes it.
func (s *served) drive() string {
	return "file=nbd+unix:///?socket=" + s.socket.Addr().String() + ",format=raw,cache=writeback"
}

// pulled is a card in a board whose plug is pulled again and again.
type pulled struct {
	disk   *served
	socket string
	rng    *rand.Rand
	within time.Duration          // the random moment is in this part of a boot
	from   func(text string) bool // the line of the console at which that part begins; nil: at the machine's start
	limit  time.Duration          // of a boot
	lost   int                    // sectors
}

// round boots a card and pulls the plug so many times, then boots it once more for look. g is the machine without its card.
func (p *pulled) round(ctx context.Context, card string, cuts int, g guest, look func(guest) error) (err error) {
	if p.disk, err = serve(card, p.socket); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.disk.end()) }()
	g.root = p.disk.drive()
	for range cuts {
		if err := p.boot(ctx, g); err != nil {
			return err
		}
	}
	p.disk.On()
	if err := look(g); err != nil {
		return fmt.Errorf("%w\n%s", err, p.disk.State())
	}
	return nil
}

// boot boots a machine and pulls the plug, at a random moment or with the next flush after it.
func (p *pulled) boot(ctx context.Context, g guest) error {
	p.disk.On()
	boot, cancel := context.WithCancel(ctx)
	defer cancel()
	begun, cut := make(chan struct{}), make(chan error, 1)
	wait, flushes := time.Duration(p.rng.Int64N(int64(p.within))), p.rng.IntN(2) == 0
	random := rand.New(rand.NewPCG(p.rng.Uint64(), 0))
	go func() {
		select {
		case <-begun:
		case <-boot.Done():
		}
		time.Sleep(wait)
		if flushes {
			p.disk.AwaitFlush(random.IntN(8), 10*time.Second)
		}
		loss, err := p.disk.Cut(random)
		fmt.Printf("vm: cut, %.1f s into the boot: %d of %d sectors lost, %d flushes\n", wait.Seconds(), loss.Lost, loss.Pending, loss.Flushes)
		p.lost += loss.Lost
		cut <- err
		cancel()
	}()
	seen := p.from == nil
	if seen {
		close(begun)
	}
	err := g.boot(boot, p.limit, func(text string) bool {
		if p.from != nil && p.from(text) && !seen {
			seen = true
			close(begun)
		}
		return false
	})
	ended := boot.Err() == nil
	cancel()
	if cerr := <-cut; cerr != nil || ended || !seen {
		return errors.Join(fmt.Errorf("a boot that was to be cut ended: %w", err), cerr)
	}
	return nil
}
