package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// flashed is one boot under way.
type flashed struct {
	flashedBoot
	guest guest
	urls  [3]string
	key   string        // of who may log in; empty: nobody
	ssh   int           // the port to do so
	watch time.Duration // at the end
	first bool          // of its card
	wired bool          // no Wi-Fi is tried
	began time.Time
	all   []string
	node  string // as it calls itself

	keys    *os.File    // what is typed on the serial line goes there
	console atomic.Bool // the serial line has said how the board is reached

	mu      sync.Mutex
	journal chan struct{} // closed when nobody reads it any more; nil: the console says all
	stages                // that are over
	off     time.Time     // of the button, or the plug
	cut     context.CancelFunc
	stop    context.CancelFunc
	failed  error
}

func (b *flashed) run(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b.stop = cancel
	if b.guest.firmware == "pi" {
		b.cut = cancel
	}
	keys, typed, err := os.Pipe()
	if err != nil {
		return err
	}
	defer keys.Close()
	defer typed.Close()
	b.guest.keys, b.keys = keys, typed
	go b.ask(ctx)
	err = b.guest.boot(ctx, limit, b.line)
	b.mu.Lock()
	defer b.mu.Unlock()
	if end := b.journal; end != nil {
		b.mu.Unlock()
		<-end
		b.mu.Lock()
	}
	switch {
	case b.failed != nil:
		return b.failed
	case b.cut != nil && !b.off.IsZero():
		return nil
	case b.off.IsZero() || !errors.Is(err, errGuestEnded) || ctx.Err() != nil:
		return errors.Join(err, errors.New("no pod answered"), ctx.Err())
	case !b.said("reboot: Power down") && !b.said("Power down"):
		return errors.New("the machine ended, and not by switching off")
	case !b.inOrder():
		return fmt.Errorf("the pods did not end in order but as %q", b.stages)
	}
	b.OffMillis = time.Since(b.off).Milliseconds()
	return nil
}

func (b *flashed) said(what string) bool {
	for _, l := range b.all {
		if strings.Contains(l, what) {
			return true
		}
	}
	return false
}

// settled is how long a board is left alone before it counts as idle.
const settled = time.Minute

// rest counts what a board writes while it has nothing to do, including late commits of its journal.
func (b *flashed) rest(ctx context.Context) error {
	if b.watch == 0 {
		return nil
	}
	var counts [2]int64
	for i, wait := range []time.Duration{settled, b.watch} {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		answer, err := query(b.guest.qmp, `{"execute":"query-blockstats"}`)
		if err == nil {
			counts[i], err = written(answer)
		}
		if err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Idle = &idle{Seconds: int64(b.watch.Seconds()), Bytes: counts[1] - counts[0]}
	return nil
}

// written adds up what a machine has written to its disks.
func written(blockstats json.RawMessage) (total int64, err error) {
	var disks []struct {
		Stats struct {
			Bytes *int64 `json:"wr_bytes"`
		}
	}
	if err := json.Unmarshal(blockstats, &disks); err != nil {
		return 0, err
	}
	for _, d := range disks {
		if d.Stats.Bytes == nil {
			return 0, fmt.Errorf("QEMU does not say what was written: %s", blockstats)
		}
		total += *d.Stats.Bytes
	}
	if len(disks) == 0 {
		return 0, errors.New("QEMU knows no disk")
	}
	return total, nil
}

// stage counts one that is over.
func (b *flashed) stage(text string) {
	if !strings.Contains(text, "shutdown stage over") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.over(text); err != nil {
		b.failed = errors.Join(b.failed, err)
	}
}

func answers(client http.Client, url string) bool {
	resp, err := client.Get(url)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// ask waits until the pods answer, and presses the power button.
func (b *flashed) ask(ctx context.Context) {
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // a browser would ask
	for _, url := range b.urls {
		for ctx.Err() == nil && !answers(client, url) {
			time.Sleep(200 * time.Millisecond)
		}
	}
	if ctx.Err() != nil {
		return
	}
	pod := time.Since(b.began).Milliseconds()
	err := openPage(ctx, client, b.urls[2])
	if err == nil {
		err = b.logIn(ctx)
	}
	if err == nil {
		err = b.lookAtConsole(ctx)
	}
	if err == nil {
		err = b.air(ctx)
	}
	if err == nil {
		err = b.rest(ctx)
	}
	if err == nil {
		err = b.follow(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.PodMillis, b.off = pod, time.Now(); err != nil {
		b.failed = err
		b.stop()
		return
	}
	if b.cut != nil {
		b.cut()
		return
	}
	b.failed = errors.Join(b.failed, pressPowerButton(b.guest.qmp))
}

func (b *flashed) line(text string) bool {
	b.all = append(b.all, text)
	b.stage(text)
	first := func(at *int64) {
		if *at == 0 {
			*at = time.Since(b.began).Milliseconds()
		}
	}
	switch {
	case strings.Contains(text, "Kernel panic"):
		b.mu.Lock()
		b.failed = errors.New(text)
		b.mu.Unlock()
		return true
	case strings.Contains(text, "listening to the power key"):
		first(&b.MountedMillis)
	case strings.HasPrefix(text, consoleLine):
		b.console.Store(true)
	case strings.HasPrefix(text, "network: "):
		first(&b.AddressMillis)
	case strings.Contains(text, "msg=serving"):
		first(&b.ServingMillis)
		_, rest, _ := strings.Cut(text, " node=")
		b.node, _, _ = strings.Cut(rest, " ")
	}
	return false
}
