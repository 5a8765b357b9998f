// Command fleet measures what boards cost their control plane: brains that join, all of each but what it would do to a machine, against one
// real 'ledge serve', in real time. Of ledge it counts memory, CPU and what it writes, with more and more boards.
//
//	go run ./lab/bench/fleet [-boards 0,10,50,200] [-pods 2] [-watch 2m] [-o bin/bench-fleet.json] [-page docs/bench.md]
//
// With -workloads it measures what Deployments cost a control plane, in the same hour beside Kubernetes' own of lab/original, and with
// -bytes 1000,5000 what the API takes for lists, watches and writes of so many pods, beside the same.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/brain/played"
	"ledge/lab/bench/measure"
	"ledge/lab/bench/report"
	"ledge/pki"
)

// row is what a control plane of so many boards takes, at rest.
type row struct {
	Boards    int     `json:"boards"`
	Pods      int     `json:"pods"`
	JoinedIn  float64 `json:"joinedSeconds"` // until the boards of this row are ready and their pods run
	JoinCPU   float64 `json:"joinCPUSeconds"`
	PSS       float64 `json:"pssMiB"`
	Anonymous float64 `json:"anonymousMiB"`
	CPU       float64 `json:"cpuPercent"`
	WrittenAt float64 `json:"writtenKiBAtRest"`
	Commit    float64 `json:"commitKiB"` // of one commit that takes along all that was held back
	Store     float64 `json:"storeKiB"`
}

type bench struct {
	ledge string
	dir   string
	pods  int
	watch time.Duration
	warm  time.Duration // of planes that are compared, before the first look
	load  string
	rows  []row
}

func main() {
	runtime.LockOSThread() // children die with the thread that started them
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{}
	sizes := flag.String("boards", "0,10,50,200", "how many boards to measure with, growing")
	flag.IntVar(&b.pods, "pods", 2, "pods for each board")
	flag.DurationVar(&b.watch, "watch", 2*time.Minute, "how long to watch each number of boards at rest")
	flag.DurationVar(&b.warm, "warm", 4*time.Minute, "with -workloads: how long after the start nothing is measured")
	flag.StringVar(&b.ledge, "binary", "bin/ledge", "ledge to measure")
	out := flag.String("o", "bin/bench-fleet.json", "where the JSON goes")
	page := flag.String("page", "", "a page whose table of these rows is to be written anew")
	workloads := flag.Bool("workloads", false, "measure Deployments beside Kubernetes' own control plane")
	bytes := flag.String("bytes", "", "measure the API beside Kubernetes' own with so many pods, growing: 1000,5000")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil))) // two hundred boards have much to say
	counts, err := numbers(*sizes)
	switch {
	case err != nil:
	case *bytes != "":
		var pods []int
		if pods, err = numbers(*bytes); err == nil {
			err = b.bytes(ctx, pods, *out, *page)
		}
	case *workloads:
		err = b.workloads(ctx, *out, *page)
	default:
		err = b.run(ctx, counts, *out, *page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench fleet:", err)
		os.Exit(1)
	}
}

// numbers reads numbers that grow, with commas between.
func numbers(text string) (out []int, err error) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 || len(out) > 0 && n <= out[len(out)-1] {
			return nil, fmt.Errorf("%s: numbers that grow are expected, with commas between", text)
		}
		out = append(out, n)
	}
	return out, nil
}

func (b *bench) run(ctx context.Context, counts []int, out, page string) (err error) {
	if os.Getuid() != 0 {
		return errors.New("a node needs root")
	}
	b.load = measure.Load()
	if b.ledge, err = filepath.Abs(b.ledge); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "ledge-bench-fleet-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, played.Unmount(b.dir), os.RemoveAll(b.dir)) }()
	p := newPlane(b.ledge, b.dir)
	defer func() { err = errors.Join(err, p.remove()) }()
	if err := p.start(ctx); err != nil {
		return err
	}
	token, err := p.token(ctx, slices.Max(counts)+1)
	if err != nil {
		return err
	}
	if err := b.grow(ctx, p, counts, token); err != nil {
		return err
	}
	fmt.Print(b.table())
	text, err := json.MarshalIndent(map[string]any{"time": time.Now().UTC(), "cores": runtime.NumCPU(), "arch": runtime.GOARCH, "load": b.load,
		"watched": b.watch.String(), "rows": b.rows}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil || page == "" {
		return err
	}
	return report.Replace(page, "fleets", b.table())
}

// grow has more and more boards, and measures the control plane with each number of them. They all end before it returns.
func (b *bench) grow(ctx context.Context, p *plane, counts []int, token pki.JoinToken) error {
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	measured := func() error {
		have := 0
		for _, n := range counts {
			r := row{Boards: n, Pods: n * b.pods}
			if err := b.join(ctx, g, p, &r, have, token); err != nil {
				return fmt.Errorf("join %d boards: %w", n, err)
			}
			have = n
			if err := p.rest(ctx, b.watch, &r); err != nil {
				return fmt.Errorf("measure %d boards: %w", n, err)
			}
			b.rows = append(b.rows, r)
			fmt.Fprintf(os.Stderr, "  %+v\n", r)
		}
		return nil
	}()
	stop()
	return errors.Join(measured, g.Wait())
}

// join has boards have+1 to r.Boards join, and waits until they are ready and their pods run.
func (b *bench) join(ctx context.Context, g *errgroup.Group, p *plane, r *row, have int, token pki.JoinToken) error {
	_, before, err := measure.Spent(p.own()...)
	if err != nil {
		return err
	}
	begin := time.Now()
	for n := have; n < r.Boards; n++ {
		board, err := newBoard(b.dir, n, "--server", p.url(), "--token", token.String())
		if err != nil {
			return err
		}
		g.Go(func() error { return board.Run(ctx) })
		select { // one after the other: what a join costs is measured here, not what a crowd does
		case <-board.joined:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for i := range b.pods {
			if err := p.makePod(ctx, fmt.Sprintf("p-%d-%d", n, i)); err != nil {
				return err
			}
		}
	}
	if err := p.settled(ctx, r.Boards+1, r.Pods); err != nil {
		return err
	}
	_, after, err := measure.Spent(p.own()...)
	r.JoinedIn, r.JoinCPU = time.Since(begin).Seconds(), after-before
	return err
}

// table is for people.
func (b *bench) table() string {
	var rows [][]string
	for i, r := range b.rows {
		each := func(of func(row) float64, format string) string {
			text := fmt.Sprintf(format, of(r))
			if i > 0 && r.Boards > 0 {
				text += fmt.Sprintf(" ("+format+")", (of(r)-of(b.rows[0]))/float64(r.Boards-b.rows[0].Boards))
			}
			return text
		}
		days := 24 * float64(time.Hour) / float64(b.watch)
		rows = append(rows, []string{strconv.Itoa(r.Boards), strconv.Itoa(r.Pods), fmt.Sprintf("%.1f", r.JoinedIn),
			fmt.Sprintf("%.1f", r.JoinCPU),
			fmt.Sprintf("%.1f", r.PSS), each(func(r row) float64 { return r.Anonymous }, "%.2f"), each(func(r row) float64 { return r.CPU }, "%.2f"),
			each(func(r row) float64 { return r.WrittenAt * days / 1024 }, "%.2f"), each(func(r row) float64 { return r.Commit }, "%.1f"),
			fmt.Sprintf("%.0f", r.Store)})
	}
	return fmt.Sprintf("%s, %d cores, %s; load before: %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOARCH,
		b.load) +
		report.Table([]string{"boards", "pods", "joined in s", "CPU s for that", "PSS MiB", "anonymous MiB", "CPU % of a core", "written MB/day",
			"one commit of all KiB", "store KiB"}, rows) +
		fmt.Sprintf("\nIn brackets: for each board, beside the first row. At rest for %s; of the disk, pages that were given to it.\n", b.watch)
}
