package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ledge/api/board"
	"ledge/node/pressure"
)

// line is where the node says that a signal's hard threshold is.
func (g *guest) line(signal string) (int64, error) {
	data, err := g.ask("GET", board.PressurePath, nil)
	if err != nil {
		return 0, err
	}
	var report struct {
		Signals []struct {
			Signal     string
			Thresholds []struct {
				Soft  bool
				Below int64
			}
		}
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return 0, err
	}
	for _, s := range report.Signals {
		for _, t := range s.Thresholds {
			if s.Signal == signal && !t.Soft {
				return t.Below, nil
			}
		}
	}
	return 0, errors.New("no threshold for " + signal)
}

// follow reads a watch until ctx ends, and begins again when the node ends it.
func (g *guest) follow(ctx context.Context, path string, each func(object)) {
	client := &http.Client{Transport: g.http.Transport}
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://ledge"+path, nil)
		if err != nil {
			g.host.say("fault", err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			continue
		}
		for d := json.NewDecoder(resp.Body); ; {
			var e struct{ Object object }
			if d.Decode(&e) != nil {
				break
			}
			each(e.Object)
		}
		resp.Body.Close()
	}
}

// look reads a signal by itself, not through the node, every 20 ms, and gives the least there was.
func (t *trial) look(ctx context.Context) (least int64) {
	s, line := t.seen, t.Line
	least = -1
	for {
		select {
		case <-ctx.Done():
			return least
		case <-time.After(20 * time.Millisecond):
		}
		n := t.left()
		if n < 0 {
			continue
		}
		if least < 0 || n < least {
			least = n
		}
		if n < 2*line {
			s.note("near")
		}
		if n < line {
			s.note("line")
		} else if _, ended := s.has("ended"); ended {
			s.note("eased")
		}
	}
}

const dataDir = "/var/lib/ledge"

// left is how much is left of the resource that the hog takes.
func (t *trial) left() int64 {
	if t.hog.hold > 0 {
		return left(t.Signal, memTotal())
	}
	return left(t.Signal, t.Line)
}

// left of memory is by the rule of the product (docs/decisions/0066), for a threshold of line.
func left(signal string, line int64) int64 {
	var fs unix.Statfs_t
	switch signal {
	case "memory.available":
		files := field("/proc/meminfo", "Active(file):") + field("/proc/meminfo", "Inactive(file):")
		p := pressure.Policy{Thresholds: []pressure.Threshold{{Signal: pressure.MemoryAvailable, Below: pressure.Limit{Amount: line}}}}
		return p.Spare(field("/proc/meminfo", "MemAvailable:")<<10, min(field("/proc/meminfo", "Mapped:"), files)<<10, memTotal())
	case "pid.available":
		most := number("/proc/sys/kernel/threads-max")
		text, err := os.ReadFile("/proc/loadavg")
		if err != nil {
			return -1
		}
		_, all, _ := strings.Cut(strings.Fields(string(text))[3], "/")
		used, err := strconv.ParseInt(all, 10, 64)
		if err != nil {
			return -1
		}
		return max(0, min(most, number("/proc/sys/kernel/pid_max"))-used)
	case "nodefs.available":
		if unix.Statfs(dataDir, &fs) != nil {
			return -1
		}
		return int64(fs.Bavail) * fs.Bsize
	case "nodefs.inodesFree":
		if unix.Statfs(dataDir, &fs) != nil {
			return -1
		}
		return int64(fs.Ffree)
	}
	return -1
}

// none is when there is as good as nothing left: less than one page of a write, one file, one process, a twentieth of memory.
func none(signal string, n int64) bool {
	switch signal {
	case "memory.available":
		return n <= memTotal()/20
	case "nodefs.available":
		return n < 64<<10
	}
	return n <= 1
}

func number(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// field reads one number from a file of names and numbers, such as /proc/meminfo.
func field(file, name string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
	}
	return -1
}

func memTotal() int64 { return field("/proc/meminfo", "MemTotal:") << 10 }

// trace prints every few seconds what uses memory. It explains afterwards why a board stood still.
func (g *guest) trace(ctx context.Context) {
	for begun := time.Now(); ; {
		var words []any
		for _, name := range []string{"MemFree:", "MemAvailable:", "Active(file):", "Inactive(file):", "Mapped:", "AnonPages:", "SReclaimable:",
			"SwapFree:"} {
			words = append(words, strings.ToLower(name)+strconv.FormatInt(field("/proc/meminfo", name)>>10, 10))
		}
		for _, name := range []string{"pgmajfault", "workingset_refault_file", "oom_kill"} {
			words = append(words, name+":"+strconv.FormatInt(field("/proc/vmstat", name), 10))
		}
		psi, err := os.ReadFile("/proc/pressure/memory")
		if err != nil {
			g.host.say("fault", err)
			return
		}
		g.host.say("memory", append([]any{time.Now().UnixMilli(), time.Since(begun).Milliseconds()},
			append(words, strings.ReplaceAll(string(psi), "\n", " "))...)...)
		g.host.say("tasks", "left", left("pid.available", 0), "of pods", number("/sys/fs/cgroup/kubepods/pids.current"), "at most",
			number("/sys/fs/cgroup/kubepods/pids.max"))
		for _, group := range []string{"ledge.service", "ledge-keeper.service", "system.slice"} {
			dir := "/sys/fs/cgroup/" + group + "/"
			stat := func(name string) int64 { return field(dir+"memory.stat", name) }
			full, err := os.ReadFile(dir + "memory.pressure")
			if err != nil {
				g.host.say("fault", err)
				return
			}
			_, total, _ := strings.Cut(string(full), "full")
			g.host.say("group", group, "anon", stat("anon")>>10, "file", stat("file")>>10, "mapped", stat("file_mapped")>>10, "majfault",
				stat("pgmajfault"),
				"refault", stat("workingset_refault_file"), "full", strings.TrimSpace(total))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}

// told prints what the brain has logged since then. It explains what took long.
func (g *guest) told(since time.Time) {
	out, err := exec.Command("journalctl", "-q", "-o", "short-unix", "-u", "ledge.service", "--since",
		"@"+strconv.FormatInt(since.Unix(), 10)).CombinedOutput()
	if err != nil {
		g.host.say("note", "journalctl:", err)
	}
	for line := range strings.Lines(string(out)) {
		g.host.say("log", strings.TrimSpace(line))
	}
}

// oomKills is how many processes the kernel has killed for want of memory, of the machine or of a cgroup.
func oomKills() (int, error) {
	n := field("/proc/vmstat", "oom_kill")
	if n < 0 {
		return 0, errors.New("the kernel does not count what it kills")
	}
	return int(n), nil
}

var victim = regexp.MustCompile(`Killed process \d+ \(([^)]*)\)`)

// victims are the programs that the kernel has killed for want of memory since, but for the test's own.
func victims(since time.Time) (names []string, err error) {
	out, err := exec.Command("journalctl", "-k", "-q", "-o", "cat", "--since", "@"+strconv.FormatInt(since.Unix(), 10)).Output()
	if err != nil {
		return nil, fmt.Errorf("read what the kernel has told: %w", err)
	}
	killed := victim.FindAllStringSubmatch(string(out), -1)
	if len(killed) == 0 {
		return nil, errors.New("the kernel has not told whom it killed")
	}
	for _, m := range killed {
		if m[1] != "testprog" {
			names = append(names, m[1])
		}
	}
	return names, nil
}

// writer creates one object after the other, and knows which are acknowledged.
type writer struct {
	g       *guest
	t       *trial
	atLimit int
	noRoom  int
	refused int
	slowest time.Duration
	acked   []string
}

func (w *writer) run(ctx context.Context) {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
		name := fmt.Sprintf("w-%s-%d", w.t.Hog, n)
		limit := none(w.t.Signal, w.t.left())
		begun := time.Now()
		_, err := w.g.ask("POST", objects+"configmaps",
			fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"by":"writer"}},"data":{"v":%q}}`, name,
				strings.Repeat("x", 2000)))
		w.slowest = max(w.slowest, time.Since(begun))
		if refused(err, http.StatusInsufficientStorage) {
			w.noRoom++
			continue
		}
		if err != nil {
			w.refused++
			w.g.host.say("note", "not answered:", err)
			continue
		}
		w.acked = append(w.acked, name)
		if limit {
			w.atLimit++
		}
	}
}

// lost counts the acknowledged objects that are missing, and removes the others.
func (w *writer) lost() (n int, err error) {
	l, err := w.g.list(objects + "configmaps")
	if err != nil {
		return 0, err
	}
	have := map[string]bool{}
	for _, o := range l.Items {
		have[o.Metadata.Name] = true
	}
	for _, name := range w.acked {
		if !have[name] {
			n++
		}
	}
	_, err = w.g.ask("DELETE", objects+"configmaps?labelSelector=by%3Dwriter", nil)
	return n, err
}

// sh runs a command of the guest.
func (g *guest) sh(command string) error {
	out, err := exec.Command("/bin/sh", "-ec", command).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return nil
}

func (g *guest) zramOn() error {
	return g.sh(fmt.Sprintf("modprobe zram; echo %d >/sys/block/zram0/disksize; mkswap -q /dev/zram0; swapon /dev/zram0", memTotal()/2))
}

func (g *guest) zramOff() error { return g.sh("swapoff /dev/zram0; echo 1 >/sys/block/zram0/reset") }

func (g *guest) fewTasks() error {
	return errors.Join(g.sh("cat /proc/sys/kernel/threads-max >/run/threads-max; echo 350 >/proc/sys/kernel/threads-max"), g.restart())
}

func (g *guest) manyTasks() error {
	return errors.Join(g.sh("cat /run/threads-max >/proc/sys/kernel/threads-max"), g.restart())
}

func (g *guest) lowLine() error {
	return errors.Join(g.sh(`cp /etc/ledge/config.yaml /run/config.yaml; echo 'evictionHard: {memory.available: "1%"}' >>/etc/ledge/config.yaml`), g.restart())
}

func (g *guest) usualLine() error {
	return errors.Join(g.sh("cp /run/config.yaml /etc/ledge/config.yaml"), g.restart())
}

// restart has the brain read its configuration and the machine anew; its pods run on. In order: killed again and again it would
// begin in safe mode.
func (g *guest) restart() error {
	if err := g.sh("systemctl restart ledge.service"); err != nil {
		return err
	}
	return wait(slowly, func() error {
		_, unseen := g.line("memory.available") // before its first look it says nothing of the board
		return errors.Join(g.nodeReady(), g.settled(func() {}), unseen)
	})
}
