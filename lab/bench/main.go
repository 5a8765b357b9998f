// Command bench measures ledge beside the container runtimes of Debian, in one run on one machine: how long one container takes to start,
// how much memory twenty take, how soon the API answers, and what an idle node writes. It counts how many writes, lists and watches of a
// thousand pods the API bears, what a watcher costs, what sampling of 50 pods costs, and how large the binaries are. It prints a table
// with ratios and writes the same as JSON. What cannot run is named, not guessed.
//
//	go run ./lab/bench [-n 20] [-pods 20] [-idle 2m] [-only memory,idle] [-o bin/bench.json] [-page docs/bench.md]
//	go run ./lab/bench -only trace -page docs/measured/starts.md -section stages
//	go run ./lab/bench -beside bin/ledge-before [-pairs 10] [-page docs/measured/pairs.md]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"ledge/lab/bench/measure"
	"ledge/lab/bench/report"
)

// row is one measurement. Ratio is to ledge's own row of the same metric: 2 means twice ledge's value.
type row struct {
	Metric string  `json:"metric"`
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Ratio  float64 `json:"ratio,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// Metrics that several places add to. The one holds everything between a request and a running container, the other
// only the program that makes containers.
const (
	startAll    = "start of one container, request to running"
	startEngine = "start of one container, runtime only"
	startTen    = "start of ten containers at once"
)

const tenAtOnce = 10

// rounds is how often ten at once are started where n are one by one.
func rounds(n int) int { return max(1, n/4) }

// bench collects the rows and knows the places.
type bench struct {
	runs, pods int
	idle       time.Duration
	section    string // of the page
	only       string // parts to measure, with commas between; "": all
	beside     string // another binary to compare with in pairs; "": none
	rounds     int    // of them
	ledge      string // binary
	dir        string // everything of this run
	load       string // of the machine before
	rows       []row
	skipped    []string
}

func main() {
	runtime.LockOSThread() // children die with the thread that started them
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{}
	flag.IntVar(&b.runs, "n", 20, "containers to start for each median")
	flag.IntVar(&b.pods, "pods", 20, "containers for the memory rows")
	flag.DurationVar(&b.idle, "idle", 2*time.Minute, "how long to watch what an idle node writes")
	flag.StringVar(&b.ledge, "binary", "bin/ledge", "ledge to measure")
	flag.StringVar(&b.only, "only", "", "parts to measure: "+strings.Join(append(slices.Clone(parts), "others"), ", ")+"; if empty, all but claims and trace")
	out := flag.String("o", "bin/bench.json", "where the JSON goes")
	page := flag.String("page", "", "a page whose table of these rows is to be written anew")
	flag.StringVar(&b.section, "section", "runtimes", "which table of that page it is")
	flag.StringVar(&b.beside, "beside", "", "another build, such as one of an older commit: only measure both in turns, in -pairs pairs")
	flag.IntVar(&b.rounds, "pairs", 10, "pairs of nodes for -beside, two minutes each")
	flag.Parse()
	if err := b.run(ctx, *out, *page); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// wants says whether a part is to be measured.
func (b *bench) wants(part string) bool {
	if b.only == "" {
		return part != "claims" && part != "trace" // which have pages of their own: -only claims
	}
	return slices.Contains(strings.Split(b.only, ","), part)
}

func (b *bench) run(ctx context.Context, out, page string) error {
	if os.Getuid() != 0 {
		return fmt.Errorf("containers need root")
	}
	b.load = measure.Load()
	dir, err := os.MkdirTemp("", "ledge-bench-")
	if err != nil {
		return err
	}
	b.dir = dir
	defer os.RemoveAll(dir)
	if b.ledge, err = filepath.Abs(b.ledge); err != nil {
		return err
	}
	if err := b.makeImage(ctx); err != nil {
		return fmt.Errorf("make the container image: %w", err)
	}
	if b.beside != "" {
		return b.pairs(ctx, page)
	}
	if err := b.ours(ctx); err != nil {
		return fmt.Errorf("measure ledge: %w", err)
	}
	if b.wants("others") {
		b.others(ctx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.ratios()
	b.print()
	if err := b.write(out); err != nil || page == "" {
		return err
	}
	return report.Replace(page, b.section, b.table())
}

// table is what print shows, for a page.
func (b *bench) table() string {
	var rows [][]string
	for _, r := range b.rows {
		ratio := ""
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", r.Ratio)
		}
		rows = append(rows, []string{r.Metric, r.What, fmt.Sprintf("%.4g %s", r.Value, r.Unit), ratio, r.Note})
	}
	text := fmt.Sprintf("%s, %d cores, %s; load before: %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOARCH,
		b.load) +
		report.Table([]string{"metric", "what", "value", "times ledge", "note"}, rows)
	for _, s := range b.skipped {
		text += "\nSkipped: " + s + "\n"
	}
	return text
}

func (b *bench) add(metric, what string, value float64, unit, note string) {
	b.rows = append(b.rows, row{Metric: metric, What: what, Value: value, Unit: unit, Note: note})
	fmt.Fprintf(os.Stderr, "  %s: %s %.4g %s %s\n", metric, what, value, unit, note)
}

func (b *bench) skip(what string, why error) {
	b.skipped = append(b.skipped, fmt.Sprintf("%s: %v", what, why))
	fmt.Fprintf(os.Stderr, "  skipped %s: %v\n", what, why)
}

// ratios compares with the first row of a metric, which is ledge's.
func (b *bench) ratios() {
	first := map[string]float64{}
	for i, r := range b.rows {
		base, ok := first[r.Metric]
		if !ok {
			first[r.Metric] = r.Value
			continue
		}
		if base > 0 {
			b.rows[i].Ratio = r.Value / base
		}
	}
}

func (b *bench) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "METRIC\tWHAT\tVALUE\tUNIT\tTIMES LEDGE\tNOTE")
	for _, r := range b.rows {
		ratio := ""
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", r.Ratio)
		}
		fmt.Fprintf(w, "%s\t%s\t%.4g\t%s\t%s\t%s\n", r.Metric, r.What, r.Value, r.Unit, ratio, r.Note)
	}
	_ = w.Flush() // standard output
	for _, s := range b.skipped {
		fmt.Println("skipped:", s)
	}
}

func (b *bench) write(out string) error {
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	text, err := json.MarshalIndent(struct {
		Time    time.Time `json:"time"`
		Commit  string    `json:"commit"`
		Arch    string    `json:"arch"`
		Cores   int       `json:"cores"`
		Kernel  string    `json:"kernel"`
		Load    string    `json:"loadBefore"`
		Rows    []row     `json:"rows"`
		Skipped []string  `json:"skipped"`
	}{time.Now().UTC(), strings.TrimSpace(string(commit)), runtime.GOARCH, runtime.NumCPU(),
		unix.ByteSliceToString(uts.Release[:]), b.load, b.rows, b.skipped}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

// median runs f n times and returns the middle duration in milliseconds.
func median(n int, f func(i int) (time.Duration, error)) (float64, error) {
	var all []time.Duration
	for i := range n {
		d, err := f(i)
		if err != nil {
			return 0, err
		}
		all = append(all, d)
	}
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000, nil
}

// processes are the PIDs whose executable's base name is one of names and whose command line has word in it.
func processes(word string, names ...string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		var pid int
		if n, _ := fmt.Sscanf(e.Name(), "%d", &pid); n != 1 {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil || !slices.Contains(names, filepath.Base(exe)) {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(line), word) {
			found = append(found, pid)
		}
	}
	return found
}

// command is a child that dies with this program.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd
}

// quiet runs a command to its end and makes its output the error.
func quiet(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, lines[len(lines)-1])
	}
	return nil
}
