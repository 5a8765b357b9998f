// Command load is what runs in the guest of `vm power`: at each boot it tells what the node has, then keeps the node busy or
// waits for an orderly end. It knows nothing of the boots before; the host compares (lab/vm/ledger.go has the grammar).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	g := &guest{do: argument("ledge.do"), http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", "/run/ledge/ledge.sock")
		}}}}
	g.seed, _ = strconv.ParseUint(argument("ledge.seed"), 10, 64) // 0 is a seed too
	if err := g.run(); err != nil {
		g.host.say("fault", err)
		g.host.explain()
	}
	g.host.say("done")
	time.Sleep(time.Hour) // the host ends this machine
}

// argument is a word of the kernel's command line.
func argument(name string) string {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return ""
	}
	for _, word := range strings.Fields(string(line)) {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			return v
		}
	}
	return ""
}

type guest struct {
	do   string
	seed uint64
	http *http.Client
	host console

	mu  sync.Mutex
	ops int // changes tried so far
}

// console is how the host hears of this machine.
type console struct{ mu sync.Mutex }

// say prints one line for the host.
func (c *console) say(word string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Print("@" + word + " " + strings.ReplaceAll(fmt.Sprintln(args...), "\n", " ") + "\n")
}

// at says how long after the kernel's start something was so.
func (c *console) at(word string) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		c.say("fault", err)
	}
	up, _, _ := strings.Cut(string(text), " ")
	seconds, _ := strconv.ParseFloat(up, 64) // the kernel writes numbers
	c.say("at", word, int(seconds*1000))
}

// booted is when the kernel started.
func (c *console) booted() time.Time {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		c.say("fault", err)
	}
	return time.Now().Add(-time.Duration(info.Uptime) * time.Second)
}

func (g *guest) run() error {
	if err := wait(5*time.Minute, func() error { _, err := g.ask("GET", "/version", nil); return err }); err != nil {
		return fmt.Errorf("the API does not answer: %w", err)
	}
	g.host.at("api")
	if err := wait(5*time.Minute, lasting{g}.mendClaims); err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	first := sync.OnceFunc(func() { g.host.at("pod") })
	err := wait(5*time.Minute, func() error { return errors.Join(g.nodeReady(), g.settled(first), lasting{g}.claimsSettled()) })
	if err != nil {
		return fmt.Errorf("not settled: %w", err)
	}
	g.host.at("settled")
	if err := g.tell(); err != nil {
		return err
	}
	g.host.say("state")
	switch g.do {
	case "busy":
		return g.busy()
	case "order":
		return g.order()
	case "press":
		return g.press()
	}
	return nil
}

// wait tries until f succeeds; the error is its last one.
func wait(limit time.Duration, f func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		if err := f(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// ask makes a request of the node.
func (g *guest) ask(method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(method, "http://ledge"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	req.Header.Set("Ledge-Meant", "yes")
	resp, err := g.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = &refusal{resp.StatusCode, fmt.Sprintf("%s %s: %s: %.300s", method, path, resp.Status, data)}
	}
	return data, err
}

type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// object has the fields that this program reads of objects of any kind.
type object struct {
	Metadata struct {
		Name, UID         string
		ResourceVersion   string
		DeletionTimestamp string
	}
	Spec          struct{ RestartPolicy string }
	Data          map[string]string
	Reason        string
	LastTimestamp time.Time
	Status        struct {
		Phase, Reason string
		Conditions    []struct{ Type, Status string }
	}
}

type list struct {
	Metadata struct{ ResourceVersion string }
	Items    []object
}

const objects = "/api/v1/namespaces/default/"

func (g *guest) list(path string) (l list, err error) {
	data, err := g.ask("GET", path, nil)
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	return l, err
}

func (g *guest) nodeReady() error {
	l, err := g.list("/api/v1/nodes")
	if err != nil {
		return err
	}
	for _, n := range l.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			}
		}
	}
	return errors.New("no node is Ready")
}

// settled returns nil when every wanted pod runs and every deleted one has gone.
func (g *guest) settled(first func()) error {
	l, err := g.list(objects + "pods")
	for _, p := range l.Items {
		switch {
		case p.Metadata.DeletionTimestamp != "":
			err = fmt.Errorf("%s is being deleted", p.Metadata.Name)
		case p.Status.Phase == "Running":
			first()
		case p.Spec.RestartPolicy == "Always":
			err = fmt.Errorf("%s is %s %s", p.Metadata.Name, p.Status.Phase, p.Status.Reason)
		}
	}
	return err
}

// tell prints the objects of the node, and the faults of the machine.
func (g *guest) tell() error {
	// Those of a boot that was cut short while it told; after the list is told they would be missed.
	if err := g.removePods("check-"); err != nil {
		return err
	}
	for _, kind := range []string{"configmaps", "pods"} {
		l, err := g.list(objects + kind)
		if err != nil {
			return err
		}
		for _, o := range l.Items {
			switch {
			case kind == "pods":
				g.host.say("have", kind, o.Metadata.Name, "there")
			case o.Data["n"] != "":
				g.host.say("have", kind, o.Metadata.Name, o.Data["n"])
			}
			if strings.HasPrefix(o.Metadata.Name, orderPrefix) {
				g.host.say("ended", o.Metadata.Name, o.Status.Phase, o.Status.Reason)
				if err := g.tellLog(o.Metadata.Name); err != nil {
					return err
				}
			}
		}
		g.host.say("revision", l.Metadata.ResourceVersion)
	}
	if err := errors.Join(g.tellImages(), lasting{g}.tellClaims()); err != nil {
		return err
	}
	l, err := g.list(objects + "events")
	for _, e := range l.Items {
		if e.LastTimestamp.After(g.host.booted()) {
			g.host.say("event", e.Reason)
		}
	}
	// Of the kernel only what says that a disk or the kernel itself is damaged: it has a word for each mount option it lacks.
	g.host.mustPrintNothing("systemctl --failed --no-legend --plain")
	g.host.mustPrintNothing("dmesg | grep -E 'EXT4-fs (error|warning)|JBD2:|I/O error|BUG:|Oops|Call Trace' || true")
	return err
}

// tellLog prints the log of a pod, and of its signs of life only the last.
func (g *guest) tellLog(pod string) error {
	data, err := g.ask("GET", objects+"pods/"+pod+"/log", nil)
	last := ""
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "here") {
			last = line
			continue
		}
		g.host.say("log", pod, line)
	}
	if last != "" {
		g.host.say("log", pod, last)
	}
	return err
}

func (c *console) mustPrintNothing(command string) {
	out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		c.say("fault", command, string(out), err)
	}
}

// explain prints what a person would look at after a failure.
func (c *console) explain() {
	for _, command := range [][]string{{"journalctl", "-b", "--no-pager", "-q", "-o", "cat", "-n", "60", "-u", "ledge.service", "-u",
		"ledge-keeper.service"},
		{"ledge", "get", "pods", "-o", "wide"}, {"ledge", "get", "events"}, {"df", "-h", "/"}} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			c.say("note", line)
		}
		if err != nil {
			c.say("note", command, err)
		}
	}
}
