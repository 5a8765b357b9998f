package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ledge/lab/bench/measure"
	"ledge/lab/bench/report"
)

// Within one pair: pods that each side starts, and starts of its program.
const (
	podsOfPair   = 5
	startsOfPair = 3
)

// pair is what two builds needed within some minutes on the same machine, the other build's first.
type pair struct{ before, now float64 }

// what is compared, in this order.
var paired = []string{"memory at rest, 0 pods (PSS), MiB", "of it anonymous, MiB", "POST -> Running, ms",
	"POST -> Running, hostNetwork, ms", "process start -> API answers, store of 1 MB, ms"}

// pairs measures two builds in turns, each pair with nodes of its own: what else the machine does hits both.
func (b *bench) pairs(ctx context.Context, page string) error {
	before, err := filepath.Abs(b.beside)
	if err != nil {
		return err
	}
	n, found := b.rounds, map[string][]pair{}
	for i := range n {
		fmt.Fprintf(os.Stderr, "pair %d of %d\n", i+1, n)
		if err := b.onePair(ctx, before, i, found); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, what := range paired {
		rows = append(rows, compared(what, found[what]))
	}
	table := fmt.Sprintf("%s, load before: %s; %d pairs, %s beside %s\n\n", time.Now().UTC().Format(time.DateOnly), b.load, n,
		version(ctx, before), version(ctx, b.ledge)) +
		report.Table([]string{"what", "before (middle)", "now (middle)", "now / before (middle of the pairs)", "pairs in which now has less"}, rows)
	fmt.Println(table)
	if page == "" {
		return nil
	}
	return report.Replace(page, "pairs", table)
}

func compared(what string, pairs []pair) []string {
	var before, now, ratio []float64
	less := 0
	for _, p := range pairs {
		before, now, ratio = append(before, p.before), append(now, p.now), append(ratio, p.now/p.before)
		if p.now < p.before {
			less++
		}
	}
	return []string{what, fmt.Sprintf("%.1f", middle(before)), fmt.Sprintf("%.1f", middle(now)), fmt.Sprintf("%.2f", middle(ratio)),
		fmt.Sprintf("%d of %d", less, len(pairs))}
}

func middle(all []float64) float64 {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

func version(ctx context.Context, binary string) string {
	out, err := command(ctx, binary, "version").Output()
	if err != nil {
		return filepath.Base(binary)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// onePair starts a node of each build, lets both rest, and then has them do the same in turns. The one that begins is another each time.
func (b *bench) onePair(ctx context.Context, before string, i int, found map[string][]pair) (err error) {
	var sides []*node
	defer func() {
		for _, n := range sides {
			err = errors.Join(err, n.remove(), os.RemoveAll(n.b.dir))
		}
	}()
	for s, binary := range []string{before, b.ledge} {
		own := &bench{runs: b.runs, ledge: binary, dir: filepath.Join(b.dir, fmt.Sprintf("%d-%d", i, s))}
		if err := os.Mkdir(own.dir, 0o700); err != nil {
			return err
		}
		n := newNode(own, fmt.Sprintf("lb%d-%d", os.Getpid(), s))
		sides = append(sides, n)
		if err := n.open(ctx, b.archive()); err != nil {
			return err
		}
	}
	if err := measure.Rest(ctx); err != nil {
		return err
	}
	var pss, anonymous [2]float64
	for s, n := range sides {
		if pss[s], anonymous[s], err = measure.PSS(n.own()...); err != nil {
			return err
		}
	}
	note := func(what string, v [2]float64) {
		found[what] = append(found[what], pair{v[0], v[1]})
		fmt.Fprintf(os.Stderr, "  %s: %.1f, %.1f\n", what, v[0], v[1])
	}
	note(paired[0], pss)
	note(paired[1], anonymous)
	for k, host := range []bool{false, true} {
		took, err := inTurns(sides, i, podsOfPair, func(n *node, turn int) (time.Duration, error) {
			name := fmt.Sprintf("pair-%v-%d", host, turn)
			d, err := n.runPod(ctx, name, host)
			return d, errors.Join(err, n.deletePod(ctx, name))
		})
		if err != nil {
			return err
		}
		note(paired[2+k], took)
	}
	for _, n := range sides {
		if err := n.fill(ctx); err != nil {
			return err
		}
	}
	took, err := inTurns(sides, i, startsOfPair, func(n *node, _ int) (time.Duration, error) { return n.again(ctx) })
	if err != nil {
		return err
	}
	note(paired[4], took)
	return nil
}

// inTurns has both sides do something n times, one after the other, and gives the middle of each in milliseconds.
func inTurns(sides []*node, first, n int, f func(n *node, turn int) (time.Duration, error)) (took [2]float64, err error) {
	var all [2][]float64
	for turn := range n {
		for s := range sides {
			s = (s + first + turn) % len(sides)
			d, err := f(sides[s], turn)
			if err != nil {
				return took, fmt.Errorf("%s: %w", sides[s].b.ledge, err)
			}
			all[s] = append(all[s], float64(d.Microseconds())/1000)
		}
	}
	return [2]float64{middle(all[0]), middle(all[1])}, nil
}
