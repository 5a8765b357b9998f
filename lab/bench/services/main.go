// Command services measures what Services cost, in one run on one machine: how long the kernel's rules take for 10, 1,000 and 5,000 of
// them beside kube-proxy (nftables mode), connections through a ClusterIP beside direct ones, and questions for names beside CoreDNS, and
// requests through the pod of Ingresses beside nginx. A rival that cannot be built is named and left out.
//
//	go run ./lab/bench/services [-o bin/bench-services.json] [-page docs/measured/services.md] [-only forward,names,requests]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"ledge/lab/bench/measure"
	"ledge/lab/bench/report"
)

// row is one measurement.
type row struct {
	part   string
	Metric string  `json:"metric"`
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Note   string  `json:"note,omitempty"`
}

type bench struct {
	dir, load string
	part      string // of the rows that are added now
	rows      []row
	skipped   []string
}

func main() {
	only := flag.String("only", "forward,names,requests", "`parts` to measure")
	out := flag.String("o", "bin/bench-services.json", "where the JSON goes")
	page := flag.String("page", "", "a page whose table of these rows is to be written anew")
	child := flag.String("child", "", "for its own use")
	n := flag.Int("n", 0, "for its own use")
	at := flag.String("at", "", "for its own use")
	resolver := flag.String("resolver", "", "for its own use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch *child {
	case "forward":
		err = forwardChild(ctx, *at, *n)
	case "names":
		err = namesChild(ctx, *at, *resolver, *n)
	default:
		err = run(ctx, strings.Split(*only, ","), *out, *page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, parts []string, out, page string) error {
	if os.Getuid() != 0 {
		return fmt.Errorf("rules of the kernel need root")
	}
	runtime.LockOSThread() // children die with the thread that started them
	dir, err := os.MkdirTemp("", "ledge-bench-services-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, load: measure.Load()}
	for _, part := range parts {
		measured, known := map[string]func(context.Context) error{"forward": b.forward, "names": b.names, "requests": b.requests}[part]
		if !known {
			return fmt.Errorf("no part is called %q", part)
		}
		b.part = part
		if err := measured(ctx); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(struct {
		Load    string   `json:"loadBefore"`
		Rows    []row    `json:"rows"`
		Skipped []string `json:"skipped"`
	}{b.load, b.rows, b.skipped}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil || page == "" {
		return err
	}
	for _, part := range parts {
		if err := report.Replace(page, part, b.table(part)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) table(part string) string {
	var rows [][]string
	for _, r := range b.rows {
		if r.part != part {
			continue
		}
		rows = append(rows, []string{r.Metric, r.What, fmt.Sprintf("%.4g %s", r.Value, r.Unit), r.Note})
	}
	text := fmt.Sprintf("%s, %d cores, %s; load before: %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOARCH,
		b.load) + report.Table([]string{"metric", "what", "value", "note"}, rows)
	for _, s := range b.skipped { // also those of other parts: they say by themselves what they are
		text += "\nSkipped: " + s + "\n"
	}
	return text
}

func (b *bench) add(metric, what string, value float64, unit, note string) {
	b.rows = append(b.rows, row{b.part, metric, what, value, unit, note})
	fmt.Fprintf(os.Stderr, "  %s: %s %.4g %s %s\n", metric, what, value, unit, note)
}

func (b *bench) skip(what string, why error) {
	b.skipped = append(b.skipped, fmt.Sprintf("%s: %v", what, why))
	fmt.Fprintf(os.Stderr, "  skipped %s: %v\n", what, why)
}

// peer builds a rival.
func peer(ctx context.Context, name string) (string, error) {
	cmd := exec.CommandContext(ctx, "lab/peer.sh", name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// start runs a program until the context ends; what it says on its standard output comes line by line.
func start(ctx context.Context, ns string, args ...string) (pid int, said func() (string, error), end func(), err error) {
	if ns != "" {
		args = append([]string{"ip", "netns", "exec", ns}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, nil, err
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	said = func() (line string, err error) {
		_, err = fmt.Fscanln(pipe, &line)
		return line, err
	}
	return cmd.Process.Pid, said, end, nil
}

// memory is a row of the anonymous memory of a process.
func (b *bench) memory(what string, pid int, note string) {
	all, anon, err := measure.PSS(pid)
	if err != nil {
		b.skip(what+", memory", err)
		return
	}
	b.add("memory (anonymous)", what, anon, "MiB", fmt.Sprintf("%.3g MiB with the pages of its program%s", all, note))
}

func middle(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000
}
