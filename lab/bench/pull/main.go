// Command pull measures how images come onto a board, ledge beside what Debian has: ctr (containerd), podman and skopeo
// pull the same images from the same registry on this machine, each onto an ext4 file system of its own. It prints a
// table and writes the same as JSON: time until the image can be run, the most memory that all of its processes had
// together (PSS, looked at every millisecond; a daemon has rested before), and what arrived at the disk for each byte of the image as it is
// unpacked. What cannot run is named, not guessed.
//
//	go run ./lab/bench/pull [-n 3] [-binary bin/ledge] [-o bin/bench-pull.json]
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
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

	"ledge/lab/bench/measure"
	"ledge/lab/bench/report"
)

// row is one image pulled by one program: the medians of a few pulls; of memory one by daemons that were at rest.
type row struct {
	Image   string  `json:"image"`
	Program string  `json:"program"`
	MS      float64 `json:"ms"`
	PeakMiB float64 `json:"peakMiB"`
	Written float64 `json:"writtenPerByte"` // at the block device, for each byte of the unpacked image
	Note    string  `json:"note,omitempty"`
}

type bench struct {
	rounds  int
	ledge   string
	dir     string
	debian  string // packages unpacked there; nothing is installed
	addr    string // of the registry
	rows    []row
	load    string // before it began
	skipped []string
}

func main() {
	runtime.LockOSThread() // children die with the thread that started them
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{load: measure.Load()}
	flag.IntVar(&b.rounds, "n", 3, "pulls for each median")
	flag.StringVar(&b.ledge, "binary", "bin/ledge", "ledge to measure")
	out := flag.String("o", "bin/bench-pull.json", "where the JSON goes")
	page := flag.String("page", "", "a page whose table of these rows is to be written anew")
	make := flag.String("make", "", "only write this image's archive to standard output")
	flag.Parse()
	if *make != "" {
		if err := writeSample(*make); err != nil {
			fmt.Fprintln(os.Stderr, "bench pull:", err)
			os.Exit(1)
		}
		return
	}
	if err := b.run(ctx, *out, *page); err != nil {
		fmt.Fprintln(os.Stderr, "bench pull:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, out, page string) (err error) {
	if os.Getuid() != 0 {
		return errors.New("mounts need root")
	}
	if b.ledge, err = filepath.Abs(b.ledge); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "ledge-bench-pull-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.unpackDebian(ctx)
	if err := b.forget(); err != nil {
		return err
	}
	stop, err := b.registry(ctx)
	if err != nil {
		return fmt.Errorf("start a registry: %w", err)
	}
	defer stop()
	list := samples()
	for i := range list {
		if err := b.push(ctx, &list[i]); err != nil {
			return fmt.Errorf("make the image %s: %w", list[i].name, err)
		}
	}
	for _, p := range []struct {
		name string
		open func(context.Context, string) (puller, error)
	}{{"ledge", b.openLedge}, {"ctr (containerd)", b.openContainerd}, {"podman", b.openPodman}, {"skopeo", b.openSkopeo},
		{"download (skopeo to files)", b.openDownload}} {
		if err := b.measure(ctx, p.name, p.open, list); err != nil {
			if p.name == "ledge" {
				return err
			}
			b.skipped = append(b.skipped, fmt.Sprintf("%s: %v", p.name, err))
		}
	}
	b.print(list)
	text, err := json.MarshalIndent(map[string]any{"time": time.Now().UTC(), "cores": runtime.NumCPU(), "arch": runtime.GOARCH, "load": b.load,
		"rows": b.rows, "skipped": b.skipped}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil || page == "" {
		return err
	}
	return report.Replace(page, "pulls", b.table(list))
}

// table is what print shows, for a page.
func (b *bench) table(list []sample) string {
	var rows [][]string
	for _, s := range list {
		for _, r := range b.rows {
			if r.Image == s.name {
				rows = append(rows, []string{fmt.Sprintf("%s (%.0f MB, %.0f MB packed)", s.name, float64(s.unpacked)/1e6, float64(s.packed)/1e6),
					r.Program,
					fmt.Sprintf("%.0f", r.MS), fmt.Sprintf("%.0f", r.PeakMiB), fmt.Sprintf("%.2f", r.Written), r.Note})
			}
		}
	}
	text := fmt.Sprintf("%s, %d cores, %s; load before: %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOARCH,
		b.load) +
		report.Table([]string{"image", "program", "time ms", "peak PSS MiB", "written / byte", "note"}, rows)
	for _, s := range b.skipped {
		text += "\nSkipped: " + s + "\n"
	}
	return text
}

// puller is one program that pulls.
type puller struct {
	pull   func(ref string) *exec.Cmd // the client, or all there is
	daemon *exec.Cmd                  // if it has one
	remove func(ref string) error
	close  func() error
	note   string
}

func (b *bench) measure(ctx context.Context, name string, open func(context.Context, string) (puller, error), list []sample) (err error) {
	d, err := newDisk(ctx, b.dir, strings.Fields(name)[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	p, err := open(ctx, d.mount)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, s := range list {
		r, err := p.row(ctx, d, b.addr+"/"+s.name+":1", s, b.rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.Program = name
		b.rows = append(b.rows, r)
		fmt.Fprintf(os.Stderr, "  %s: %s %.0f ms, %.0f MiB, %.2f bytes written a byte\n", r.Image, r.Program, r.MS, r.PeakMiB, r.Written)
	}
	return nil
}

// row pulls an image a few times for time and bytes, and again for memory: looking at that costs time.
func (p puller) row(ctx context.Context, d *disk, ref string, s sample, rounds int) (row, error) {
	var ms, written []float64
	for range rounds {
		before, err := d.sectors()
		if err != nil {
			return row{}, err
		}
		begin := time.Now()
		if err := quiet(p.pull(ref)); err != nil {
			return row{}, err
		}
		ms = append(ms, float64(time.Since(begin).Microseconds())/1000)
		after, err := d.sectors()
		if err != nil {
			return row{}, err
		}
		written = append(written, float64(after-before)*512/float64(s.unpacked))
		if err := p.remove(ref); err != nil {
			return row{}, err
		}
	}
	var peak []float64
	for range rounds {
		if p.daemon != nil {
			if err := measure.Rest(ctx); err != nil {
				return row{}, err
			}
		}
		mib, err := p.peak(ref)
		if err != nil {
			return row{}, err
		}
		peak = append(peak, mib)
		if err := p.remove(ref); err != nil {
			return row{}, err
		}
		if p.daemon != nil {
			break // a rest takes longer than everything else, and what comes after it differs little
		}
	}
	return row{Image: s.name, MS: middle(ms), PeakMiB: middle(peak), Written: middle(written), Note: p.note}, nil
}

// peak pulls an image and gives the most memory that all processes of the program had together meanwhile.
func (p puller) peak(ref string) (mib float64, err error) {
	cmd := p.pull(ref)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pids := []int{cmd.Process.Pid}
	if p.daemon != nil {
		pids = append(pids, p.daemon.Process.Pid)
	}
	over, stop := context.WithCancel(context.Background())
	waited := make(chan error, 1)
	go func() {
		waited <- cmd.Wait()
		stop()
	}()
	mib, err = measure.Peak(over, pids...)
	if werr := <-waited; werr != nil {
		return 0, fmt.Errorf("%w: %s", werr, out.String())
	}
	return mib, err
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func (b *bench) print(list []sample) {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tPROGRAM\tTIME ms\tPEAK MiB\tWRITTEN / BYTE\tNOTE")
	for _, s := range list {
		for _, r := range b.rows {
			if r.Image == s.name {
				fmt.Fprintf(w, "%s (%.0f MB, %.0f MB packed)\t%s\t%.0f\t%.0f\t%.2f\t%s\n", s.name, float64(s.unpacked)/1e6, float64(s.packed)/1e6,
					r.Program, r.MS, r.PeakMiB, r.Written, r.Note)
			}
		}
	}
	_ = w.Flush() // standard output
	for _, s := range b.skipped {
		fmt.Println("skipped:", s)
	}
}

// unpackDebian fetches what this machine lacks of the other programs.
func (b *bench) unpackDebian(ctx context.Context) {
	b.debian = filepath.Join(b.dir, "debian")
	arch := map[string]string{"amd64": "amd64", "arm64": "arm64", "arm": "armhf"}[runtime.GOARCH]
	args := []string{arch, b.debian, "runc", "containerd", "podman", "conmon", "libyajl2", "libgpgme11", "libassuan0", "libsubid4",
		"libdevmapper1.02.1", "libglib2.0-0", "skopeo", "docker-registry"}
	if err := quiet(exec.CommandContext(ctx, "packaging/debs.sh", args...)); err != nil {
		b.skipped = append(b.skipped, fmt.Sprintf("packages that are not installed: %v", err))
	}
}

// forget reads all programs from the disk, as after a boot.
func (b *bench) forget() error {
	programs, err := filepath.Glob(filepath.Join(b.debian, "usr/*bin/*"))
	if err != nil {
		return err
	}
	for _, p := range append(programs, b.ledge) {
		if isFile(p) {
			if err := measure.Forget(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// command is a program of Debian's, from the packages unpacked here if they have it.
func (b *bench) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := name
	for _, dir := range []string{"usr/bin", "usr/sbin"} {
		if p := filepath.Join(b.debian, dir, name); isFile(p) {
			path = p
		}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	triple := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu", "arm": "arm-linux-gnueabihf"}[runtime.GOARCH]
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(b.debian, "usr/bin")+":"+filepath.Join(b.debian, "usr/sbin")+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+filepath.Join(b.debian, "usr/lib", triple)+":"+filepath.Join(b.debian, "lib", triple))
	return cmd
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// registry is Debian's docker-registry on loopback.
func (b *bench) registry(ctx context.Context) (stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.addr = l.Addr().String()
	_ = l.Close()
	config := filepath.Join(b.dir, "registry.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage:\n  filesystem: {rootdirectory: %s}\nhttp: {addr: %s}\n",
		filepath.Join(b.dir, "registry"), b.addr)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := b.command(ctx, "docker-registry", "serve", config)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return stop, wait(10*time.Second, func() error {
		conn, err := net.Dial("tcp", b.addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

func wait(limit time.Duration, f func() error) error {
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("not within %s: %w", limit, err)
}

func quiet(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, lines[len(lines)-1])
	}
	return nil
}
