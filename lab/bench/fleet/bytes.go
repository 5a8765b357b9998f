package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"ledge/internal/original"
	"ledge/lab/bench/measure"
	"ledge/lab/bench/report"
)

// taken is what one call, or a row of them, took: of the clock, and of the processor where the server is.
type taken struct {
	Milliseconds float64 `json:"milliseconds"`
	CPU          float64 `json:"cpuMilliseconds"`
}

// asked is one API server with what was measured of it: for each call one figure of each run.
type asked struct {
	name  string
	pids  func() []int
	call  *caller
	turns map[string][]taken
}

// bytes measures the API beside Kubernetes' own, with more and more pods, in two runs that alternate.
func (b *bench) bytes(ctx context.Context, counts []int, out, page string) (err error) {
	if os.Getuid() != 0 {
		return errors.New("a node needs root")
	}
	b.load = measure.Load()
	if b.ledge, err = filepath.Abs(b.ledge); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "ledge-bench-bytes-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	theirs, endTheirs, err := b.askOriginal(ctx)
	if endTheirs != nil {
		defer func() { err = errors.Join(err, endTheirs()) }()
	}
	if errors.Is(err, errNotBuilt) {
		fmt.Println("bytes:", err)
		return nil
	}
	if err != nil {
		return err
	}
	ours, endOurs, err := b.askLedge(ctx)
	if endOurs != nil {
		defer func() { err = errors.Join(err, endOurs()) }()
	}
	if err != nil {
		return err
	}
	var text strings.Builder
	sides := []*asked{theirs, ours}
	rows := map[string]map[string]map[string][]taken{}
	for _, pods := range counts {
		for _, s := range sides {
			s.turns = map[string][]taken{}
		}
		for range 2 {
			for _, s := range sides {
				if err := s.measure(ctx, pods); err != nil {
					return fmt.Errorf("%s with %d pods: %w", s.name, pods, err)
				}
			}
			slices.Reverse(sides) // the next run begins with who came last
		}
		fmt.Fprintf(&text, "%d pods:\n\n%s\n", pods, bytesTable(theirs, ours, pods))
		rows[fmt.Sprint(pods)] = map[string]map[string][]taken{"kubernetes": theirs.turns, "ledge": ours.turns}
	}
	fmt.Print(text.String())
	figures, err := json.MarshalIndent(map[string]any{"time": time.Now().UTC(), "cores": runtime.NumCPU(), "arch": runtime.GOARCH, "load": b.load,
		"pods": rows}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(figures, '\n'), 0o644); err != nil || page == "" {
		return err
	}
	return report.Replace(page, "bytes", fmt.Sprintf("Load of the machine before: %s.\n\n%s", b.load, text.String()))
}

// askOriginal starts Kubernetes' own plane without boards.
func (b *bench) askOriginal(ctx context.Context) (*asked, func() error, error) {
	path, err := exec.CommandContext(ctx, "lab/original/build.sh", "path").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("lab/original/build.sh: %w", err)
	}
	if _, err := os.Stat(strings.TrimSpace(string(path))); err != nil {
		return nil, nil, errNotBuilt
	}
	if err := os.Setenv("LEDGE_ORIGINAL", "1"); err != nil {
		return nil, nil, err
	}
	t := &trial{dir: filepath.Join(b.dir, "original"), ctx: ctx}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return nil, nil, err
	}
	var p *original.Plane
	var file string
	if err := t.try(func() {
		p = original.StartSyncing(t)
		file = p.Kubeconfig(t, original.Admin)
	}); err != nil {
		return nil, t.end, err
	}
	call, err := newCaller(file)
	if err != nil {
		return nil, t.end, err
	}
	// Its API server and etcd are the first two: the rest has no part in an answer.
	s := &asked{name: "kube-apiserver and etcd", pids: func() []int { return p.Pids()[:2] }, call: call}
	return s, t.end, s.ready(ctx)
}

// askLedge starts ledge's, without a node of its own.
func (b *bench) askLedge(ctx context.Context) (*asked, func() error, error) {
	dir := filepath.Join(b.dir, "ledge")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	p := newPlane(b.ledge, dir)
	p.nodes, p.flags = 0, []string{"--register-node=false"}
	if err := p.start(ctx); err != nil {
		return nil, p.remove, err
	}
	call, err := newCaller(filepath.Join(p.run, "admin.kubeconfig"))
	if err != nil {
		return nil, p.remove, err
	}
	s := &asked{name: "ledge", pids: p.own, call: call}
	return s, p.remove, s.ready(ctx)
}

// ready waits until pods may be made.
func (s *asked) ready(ctx context.Context) (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if _, err = s.call.do(ctx, "GET", "/api/v1/namespaces/default/serviceaccounts/default", "", ""); err == nil {
			return nil
		}
		if err := measure.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return err
}

// turn measures a call, the middle one of several.
func (s *asked) turn(name string, times int, call func() error) error {
	var took []time.Duration
	_, before, err := measure.Spent(s.pids()...)
	if err != nil {
		return err
	}
	for range times {
		start := time.Now()
		if err := call(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		took = append(took, time.Since(start))
	}
	return s.keep(name, before, took)
}

func (s *asked) keep(name string, before float64, took []time.Duration) error {
	_, after, err := measure.Spent(s.pids()...)
	if err != nil {
		return err
	}
	slices.Sort(took)
	ms := float64(took[len(took)/2]) / 1e6
	s.turns[name] = append(s.turns[name], taken{ms, (after - before) * 1e3 / float64(len(took))})
	return nil
}

// measure makes pods, asks for them in all ways, and deletes them.
func (s *asked) measure(ctx context.Context, pods int) error {
	c := s.call
	get := func(path string) func() error {
		return func() error {
			_, err := c.do(ctx, "GET", podsPath+path, "", "")
			return err
		}
	}
	for _, step := range []struct {
		name  string
		times int
		call  func() error
	}{
		{rowCreates, 1, func() error { return c.each(ctx, pods, c.make) }},
		{rowPatches, 1, func() error {
			return c.each(ctx, pods, func(ctx context.Context, i int) error { return c.patch(ctx, i, 0) })
		}},
		{rowGet, 200, get("/pod-7")},
		{rowList, 9, get("")},
		{rowSelector, 21, get("?labelSelector=one%3Dn500")},
		{rowLists, 1, func() error { return c.each(ctx, callers, func(context.Context, int) error { return get("")() }) }},
		{rowStates, 1, func() error { return c.states(ctx, 50, pods) }},
	} {
		if err := s.turn(step.name, step.times, step.call); err != nil {
			return err
		}
	}
	for _, watchers := range watcherCounts {
		_, before, err := measure.Spent(s.pids()...)
		if err != nil {
			return err
		}
		took, err := c.change(ctx, watchers, 9)
		if errors.Is(err, errMany) {
			continue // the table says so
		}
		if err != nil {
			return fmt.Errorf("%d watchers: %w", watchers, err)
		}
		if err := s.keep(rowChange(watchers), before, took); err != nil {
			return err
		}
	}
	if err := s.memory(); err != nil {
		return err
	}
	return s.turn(rowDeletes, 1, func() error {
		if _, err := c.do(ctx, "DELETE", podsPath+"?gracePeriodSeconds=0", "", ""); err != nil {
			return err
		}
		left, _, err := c.count(ctx)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d pods are left", left)
		}
		return err
	})
}

// memory is what all of a server's processes have now, in MiB where others have milliseconds.
func (s *asked) memory() error {
	mib, _, err := measure.PSS(s.pids()...)
	s.turns[rowMemory] = append(s.turns[rowMemory], taken{Milliseconds: mib})
	return err
}
