package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"ledge/api/board"
	"ledge/images/imagestest"
	"ledge/lab/vm/pressed"
)

// hog is a pod that takes all there is of something, and what the board must do about it.
type hog struct {
	name      string
	args      []string
	signal    string // whose line it crosses
	condition string
	harmless  time.Duration // it crosses none, for so long
	hold      time.Duration // it leaves a twentieth, and is not to be evicted: the API is asked for so long
	before    func(*guest) error
	after     func(*guest) error
}

// hogs are all hogs; the host chooses among them.
func hogs() []hog {
	eater := func(mib int, how ...string) hog {
		name := strings.Join(append([]string{"leak" + strconv.Itoa(mib)}, how...), "-")
		return hog{name: name, args: append([]string{"leak", strconv.Itoa(mib)}, how...), signal: "memory.available", condition: "MemoryPressure"}
	}
	swapped := eater(5)
	swapped.name, swapped.before, swapped.after = "leak5-zram", (*guest).zramOn, (*guest).zramOff
	total := memTotal()
	return []hog{
		eater(5), eater(20), eater(40), eater(20, "deaf"), eater(40, "deaf"), swapped,
		{name: "bomb", args: []string{"bomb"}, signal: "memory.available", condition: "MemoryPressure"},
		{name: "crowd", args: []string{"crowd"}, signal: "pid.available", condition: "PIDPressure", before: (*guest).fewTasks,
			after: (*guest).manyTasks},
		{name: "bytes", args: []string{"fill", "/tmp", "bytes"}, signal: "nodefs.available", condition: "DiskPressure"},
		{name: "inodes", args: []string{"fill", "/tmp", "inodes"}, signal: "nodefs.inodesFree", condition: "DiskPressure"},
		{name: "cache", args: []string{"reread", "/tmp/file", strconv.FormatInt(total>>20, 10)}, signal: "memory.available",
			condition: "MemoryPressure", harmless: 30 * time.Second},
		{name: "full95", signal: "memory.available", condition: "MemoryPressure", hold: 20 * time.Second, before: (*guest).lowLine,
			after: (*guest).usualLine},
	}
}

// slowly bounds the time of an answer that waits for a disk, or for something to be unpacked, on an emulated machine.
const slowly = 5 * time.Minute

// press has one hog after the other at the board, and tells of each.
func (g *guest) press() error {
	g.http.Timeout = slowly
	// Who looks on must not wait for its own program to be read again when the board is short of memory.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("stay in memory: %w", err)
	}
	if err := errors.Join(g.importRough(), g.innocents()); err != nil {
		return err
	}
	all := hogs()
	for _, name := range strings.Split(argument("ledge.by"), ",") {
		i := slices.IndexFunc(all, func(h hog) bool { return h.name == name })
		if i < 0 {
			return fmt.Errorf("no hog is called %q", name)
		}
		g.host.at(name)
		begun := time.Now()
		r, err := g.squeeze(all[i])
		g.told(begun)
		if err != nil { // the next one may tell something all the same
			r.Hog = name
			r.Wrong = append(r.Wrong, err.Error())
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		g.host.say("pressed", string(text))
	}
	return nil
}

const roughImage = "load.local/rough:1"

func (g *guest) importRough() error {
	text, err := os.ReadFile("/payload/bin/testprog")
	if err != nil {
		return err
	}
	prog := imagestest.File("testprog", string(text))
	prog.Mode = 0o755
	_, err = g.ask("POST", board.ImagesPath, imagestest.OCI(imagestest.Image{Names: []string{roughImage}, Compress: imagestest.Gzip,
		Config: v1.ImageConfig{Entrypoint: []string{"/testprog"}}, Layers: [][]byte{imagestest.Layer(imagestest.Dir("tmp"), prog)}}))
	return err
}

// innocents are a pod within its request and one without any.
func (g *guest) innocents() error {
	err := errors.Join(g.pod("modest", []string{"eat", "4"}, `{"requests":{"memory":"24Mi"}}`), g.pod("idle", []string{"run"}, "{}"))
	return errors.Join(err, wait(slowly, func() error {
		_, err := g.unhurt(nil)
		return err
	}))
}

func (g *guest) pod(name string, args []string, resources string) error {
	words, err := json.Marshal(args)
	if err != nil {
		return err
	}
	_, err = g.ask("POST", objects+"pods", fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"restartPolicy":"Never",`+
			`"terminationGracePeriodSeconds":2,"containers":[{"name":"main","image":%q,"imagePullPolicy":"Never","args":%s,"resources":%s}]}}`,
		name, roughImage, words, resources))
	return err
}

// unhurt counts the innocents that are not as they were: containers, by pod.
func (g *guest) unhurt(before map[string]string) (now map[string]string, err error) {
	data, err := g.ask("GET", objects+"pods", nil)
	if err != nil {
		return nil, err
	}
	var l struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Phase             string
				ContainerStatuses []struct {
					ContainerID string
					State       struct{ Running *struct{} }
				}
			}
		}
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, err
	}
	now = map[string]string{}
	for _, p := range l.Items {
		if s := p.Status.ContainerStatuses; len(s) == 1 && s[0].State.Running != nil &&
			(p.Metadata.Name == "modest" || p.Metadata.Name == "idle") {
			now[p.Metadata.Name] = s[0].ContainerID
		}
	}
	if len(now) < 2 && before == nil {
		err = fmt.Errorf("only %v run", now)
	}
	return now, err
}

// seen is a time that is noted once.
type seen struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (s *seen) note(what string) { s.noteAt(what, time.Now()) }

func (s *seen) noteAt(what string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.at[what]; !ok {
		s.at[what] = at
	}
}

func (s *seen) has(what string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.at[what]
	return at, ok
}

func (s *seen) want(what string) error {
	if _, ok := s.has(what); !ok {
		return errors.New("not seen: " + what)
	}
	return nil
}

// since is how long after the line something was, in milliseconds; -1: never. What was over between two looks at the line was
// crossed when ledge said so.
func (s *seen) since(what string) int64 {
	line, crossed := s.has("line")
	if !crossed {
		line, crossed = s.has("condition")
	}
	at, ok := s.has(what)
	if !crossed || !ok {
		return -1
	}
	return at.Sub(line).Milliseconds()
}

// after is since for what follows a crossed threshold. ledge measures by itself and may have seen it before this program did: then it is 0.
func (s *seen) after(what string) int64 {
	if n := s.since(what); n == -1 || n >= 0 {
		return n
	}
	return 0
}

// trial is one hog at the board.
type trial struct {
	pressed.Result
	*guest
	hog    hog
	seen   *seen
	writer *writer
	mu     sync.Mutex // of End, while it is watched
}

// squeeze has one hog at the board until that is well again.
func (g *guest) squeeze(h hog) (r pressed.Result, err error) {
	if h.before != nil {
		if err := h.before(g); err != nil {
			return r, err
		}
	}
	if h.after != nil {
		defer func() { err = errors.Join(err, h.after(g)) }()
	}
	s := &seen{at: map[string]time.Time{}}
	t := &trial{Result: pressed.Result{Hog: h.name, Signal: h.signal, Least: -1}, guest: g, hog: h, seen: s, writer: &writer{g: g}}
	t.writer.t = t
	if t.Line, err = g.line(h.signal); err != nil {
		return r, err
	}
	if h.hold > 0 {
		t.Line = memTotal() / 20
	}
	before, err := g.unhurt(nil)
	if err != nil {
		return r, err
	}
	kills, err := oomKills()
	if err != nil {
		return r, err
	}
	begun := time.Now()
	if err := t.watched(); err != nil {
		return r, err
	}
	if err := t.count(before, kills); err != nil {
		return r, err
	}
	if t.Kills > 0 {
		if t.Victims, err = victims(begun); err != nil {
			return r, err
		}
	}
	if _, err = g.ask("DELETE", objects+"pods/"+h.name+"?gracePeriodSeconds=0", nil); err != nil && !refused(err, http.StatusNotFound) {
		return r, err
	}
	return t.Result, wait(time.Minute, func() error {
		if _, err := g.ask("GET", objects+"pods/"+h.name, nil); !refused(err, http.StatusNotFound) {
			return fmt.Errorf("%s does not go: %w", h.name, err)
		}
		return nil
	})
}

// watched starts the hog and looks on.
func (t *trial) watched() error {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { t.Least = t.look(ctx) })
	all.Go(func() { t.trace(ctx) })
	all.Go(func() { t.follow(ctx, "/api/v1/nodes?watch=1", t.node) })
	all.Go(func() { t.follow(ctx, objects+"pods?watch=1&fieldSelector=metadata.name="+t.Hog, t.end) })
	all.Go(func() { t.writer.run(ctx) })
	args := t.hog.args
	if args == nil { // so much that less than a twentieth is left; it is a little more again when the kernel has taken programs' pages
		args = []string{"eat", strconv.FormatInt((t.left()-memTotal()/33)>>20, 10)}
	}
	if err := t.pod(t.Hog, args, "{}"); err != nil {
		return err
	}
	if t.hog.harmless > 0 {
		time.Sleep(t.hog.harmless)
		return nil
	}
	what := []string{"ended", "recovered"}
	if t.hog.hold > 0 {
		what = []string{"line"}
	}
	for _, w := range what {
		if err := wait(slowly, func() error { return t.seen.want(w) }); err != nil {
			t.Wrong = append(t.Wrong, err.Error())
			if text, err := t.ask("GET", objects+"pods/"+t.Hog, nil); err == nil {
				t.host.say("note", string(text))
			}
			t.host.explain()
			break // nothing comes of who has not ended
		}
		if w == "ended" {
			t.askSince()
		}
	}
	time.Sleep(t.hog.hold)
	return nil
}

// askSince asks since when the board has been short, by ledge itself: the Node says so later, when a status is written. It is told as
// long as the condition holds.
func (t *trial) askSince() {
	data, err := t.ask("GET", board.PressurePath, nil)
	var p struct {
		Conditions []struct {
			Type  string
			Since time.Time
		}
	}
	if err := errors.Join(err, json.Unmarshal(data, &p)); err != nil {
		t.host.say("note", err.Error())
		return
	}
	for _, c := range p.Conditions {
		if c.Type == t.hog.condition && !c.Since.IsZero() {
			t.seen.noteAt("noticed", c.Since)
		}
	}
}

// node sees the condition come and go.
func (t *trial) node(o object) {
	for _, c := range o.Status.Conditions {
		switch _, was := t.seen.has("condition"); {
		case c.Type != t.hog.condition:
		case c.Status == "True":
			t.seen.note("condition")
		case was:
			t.seen.note("recovered")
		}
	}
}

// end sees how the hog ends.
func (t *trial) end(o object) {
	if o.Status.Phase == "Failed" || o.Status.Phase == "Succeeded" {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.End = strings.TrimSpace(o.Status.Phase + " " + o.Status.Reason)
		t.seen.note("ended")
	}
}

// count sums up what has been seen.
func (t *trial) count(before map[string]string, kills int) error {
	s, w := t.seen, t.writer
	t.Noticed = s.after("noticed")
	t.Condition, t.Evicted, t.Eased, t.Recovered = s.after("condition"), s.after("ended"), s.after("eased"), s.after("recovered")
	if near := s.since("near"); near < -1 {
		t.Rate = t.Line * 1000 / -near
	}
	t.Answers, t.Slowest, t.AtTheLimit, t.NoRoom, t.Refused = len(w.acked), w.slowest.Milliseconds(), w.atLimit, w.noRoom, w.refused
	now, err := t.unhurt(before)
	if err != nil {
		return err
	}
	for name, id := range before {
		if now[name] != id {
			t.Hurt++
		}
	}
	after, err := oomKills()
	if err != nil {
		return err
	}
	t.Kills = after - kills
	t.Lost, err = w.lost()
	return err
}
