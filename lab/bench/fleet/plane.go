package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ledge/lab/bench/measure"
	"ledge/pki"
)

// plane is the control plane: 'ledge serve', with a board of its own as always.
type plane struct {
	ledge, dir string
	name, run  string
	port       int
	nodes      int      // of its own
	flags      []string // more of them
	brain      *exec.Cmd
	http       *http.Client
}

func newPlane(ledge, dir string) *plane {
	p := &plane{ledge: ledge, dir: dir, name: fmt.Sprintf("lf%d", os.Getpid()), nodes: 1}
	p.run = filepath.Join("/run", p.name)
	p.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(p.run, "ledge.sock"))
	}}}
	return p
}

func (p *plane) url() string  { return fmt.Sprintf("https://127.0.0.1:%d", p.port) }
func (p *plane) data() string { return filepath.Join(p.dir, "plane") }

// start runs it until its API answers.
func (p *plane) start(ctx context.Context) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.port = free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		return err
	}
	config := filepath.Join(p.dir, "config.yaml")
	if err := os.WriteFile(config, []byte(measure.NodeConfig), 0o644); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(p.dir, "ledge.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.brain = exec.CommandContext(ctx, p.ledge, append([]string{"--run-dir", p.run, "serve", "--data-dir", p.data(), "--config", config,
		"--listen", fmt.Sprintf("127.0.0.1:%d", p.port), "--bridge", p.name, "--cgroup-root", "/" + p.name, "--power-backend=none"},
		p.flags...)...)
	p.brain.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	p.brain.Stdout, p.brain.Stderr = log, log
	p.brain.Cancel = func() error { return p.brain.Process.Signal(syscall.SIGTERM) }
	if err := p.brain.Start(); err != nil {
		return err
	}
	if err := p.settled(ctx, p.nodes, 0); err != nil {
		text, readErr := os.ReadFile(log.Name())
		return errors.Join(fmt.Errorf("%w; its log:\n%s", err, text), readErr)
	}
	return nil
}

// remove leaves nothing behind, also after a failure half way.
func (p *plane) remove() error {
	if p.brain == nil || p.brain.Process == nil {
		return nil
	}
	err := p.brain.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	if waitErr := p.brain.Wait(); waitErr != nil && !errors.Is(waitErr, context.Canceled) {
		err = errors.Join(err, waitErr)
	}
	out, resetErr := exec.Command(p.ledge, "--run-dir", p.run, "reset", "--data", "--data-dir", p.data()).CombinedOutput()
	if resetErr != nil {
		err = errors.Join(err, fmt.Errorf("reset: %w: %s", resetErr, out))
	}
	return errors.Join(err, os.RemoveAll(p.run))
}

// own are the brain and the keeper: those whose command line has the run directory in it.
func (p *plane) own() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		var pid int
		if n, _ := fmt.Sscanf(e.Name(), "%d", &pid); n != 1 {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		exe = strings.TrimSuffix(exe, " (deleted)") // a build meanwhile
		if err != nil || filepath.Base(exe) != filepath.Base(p.ledge) {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(line), p.run) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (p *plane) call(ctx context.Context, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://ledge"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Ledge-Meant", "yes")
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// token is for so many boards.
func (p *plane) token(ctx context.Context, uses int) (pki.JoinToken, error) {
	var got struct{ Token string }
	q := url.Values{"ttl": {"2h"}, "uses": {fmt.Sprint(uses)}, "node": {""}}
	if err := p.call(ctx, http.MethodPost, "/ledge/v1/tokens?"+q.Encode(), nil, &got); err != nil {
		return pki.JoinToken{}, err
	}
	return pki.ParseJoinToken(got.Token)
}

// makePod makes one that is placed on a board of the fleet. It has no token: a volume for one would be a mount here.
func (p *plane) makePod(ctx context.Context, name string) error {
	return p.call(ctx, http.MethodPost, "/api/v1/namespaces/default/pods", map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"app": "bench"}},
		"spec": map[string]any{"nodeSelector": map[string]any{label: "yes"}, "automountServiceAccountToken": false,
			"topologySpreadConstraints": []any{map[string]any{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
				"whenUnsatisfiable": "ScheduleAnyway",
				"labelSelector":     map[string]any{"matchLabels": map[string]any{"app": "bench"}}}},
			"containers": []any{map[string]any{"name": "main", "image": imageName, "command": []any{"/app"}, "imagePullPolicy": "Never"}}}}, nil)
}

// settled waits until so many nodes are ready and so many pods run.
func (p *plane) settled(ctx context.Context, nodes, pods int) error {
	var why error
	for end := time.Now().Add(settleTime); time.Now().Before(end); {
		if why = p.wrong(ctx, nodes, pods); why == nil {
			return nil
		}
		if err := measure.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return why
}

func (p *plane) wrong(ctx context.Context, nodes, pods int) error {
	var list struct {
		Items []struct {
			Status struct {
				Phase             string
				Conditions        []struct{ Type, Status, Message string }
				ContainerStatuses json.RawMessage
			}
		}
	}
	ready, running, stuck := 0, 0, ""
	if err := p.call(ctx, http.MethodGet, "/api/v1/nodes", nil, &list); err != nil {
		return err
	}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				ready++
			}
		}
	}
	list.Items = nil
	if err := p.call(ctx, http.MethodGet, "/api/v1/namespaces/default/pods", nil, &list); err != nil {
		return err
	}
	for _, pod := range list.Items {
		if pod.Status.Phase == "Running" {
			running++
		} else {
			stuck = fmt.Sprintf(": one is %s, %v %s", pod.Status.Phase, pod.Status.Conditions, pod.Status.ContainerStatuses)
		}
	}
	if ready != nodes || running != pods {
		return fmt.Errorf("%d of %d nodes are ready, %d of %d pods run%s", ready, nodes, running, pods, stuck)
	}
	return nil
}

// rest measures the control plane once it has calmed down.
func (p *plane) rest(ctx context.Context, watch time.Duration, r *row) (err error) {
	if err := measure.Rest(ctx); err != nil {
		return err
	}
	written, cpu, err := p.spent()
	if err != nil {
		return err
	}
	if err := measure.Sleep(ctx, watch); err != nil {
		return err
	}
	writtenThen, cpuThen, err := p.spent()
	if err != nil {
		return err
	}
	r.CPU, r.WrittenAt = 100*(cpuThen-cpu)/watch.Seconds(), float64(writtenThen-written)/1024
	if r.PSS, r.Anonymous, err = measure.PSS(p.own()...); err != nil {
		return err
	}
	// Any write takes along what was held back: leases and reports that change nothing, for an hour at most.
	if err := p.call(ctx, http.MethodPost, "/api/v1/namespaces/default/configmaps",
		map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("commit-%d", r.Boards)}},
		nil); err != nil {
		return err
	}
	if written, _, err = p.spent(); err != nil {
		return err
	}
	r.Commit = float64(written-writtenThen) / 1024
	return filepath.WalkDir(filepath.Join(p.data(), "store"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			r.Store += float64(info.Size()) / 1024
		}
		return err
	})
}

func (p *plane) spent() (written int64, cpu float64, err error) {
	syscall.Sync()
	return measure.Spent(p.own()...)
}

// settleTime is how long boards may take to be ready, all together.
const settleTime = 5 * time.Minute
