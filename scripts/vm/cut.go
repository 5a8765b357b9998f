package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"ledge/scripts/vm/flash"
)

// pulled is a card that forgets what nobody has flushed, in a board whose plug is pulled again and again.
type pulled struct {
	disk   *flash.Disk
	socket string // where QEMU finds it
	rng    *rand.Rand
	within time.Duration          // of a boot, for the moment to be in
	from   func(text string) bool // its beginning, among what the console says; nil: the machine's start
	limit  time.Duration          // of a boot
	lost   int                    // sectors
	served chan error
	listen net.Listener
}

// insert serves a card to the next machines.
func (p *pulled) insert(card string) (err error) {
	if p.disk, err = flash.Open(card); err != nil {
		return err
	}
	if p.listen, err = net.Listen("unix", p.socket); err != nil {
		return errors.Join(err, p.disk.Close())
	}
	p.served = make(chan error, 1)
	go func() { p.served <- p.disk.Serve(p.listen) }()
	return nil
}

func (p *pulled) eject() error { return errors.Join(p.listen.Close(), <-p.served, p.disk.Close()) }

// drive is the card as QEMU takes it.
func (p *pulled) drive() string {
	return "file=nbd+unix:///?socket=" + p.socket + ",format=raw,cache=writeback"
}

// boot boots a machine and pulls the plug: at a moment that comes by chance, or with the next flush.
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
		if !seen && p.from(text) {
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
