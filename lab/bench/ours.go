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
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"ledge/lab/bench/measure"
	"ledge/runtime"
	"ledge/runtime/keeper"
)

// node is a ledge of our own: directories, bridge and cgroup named after this process.
type node struct {
	b      *bench
	name   string
	run    string
	tmpfs  string // that run is on
	data   string
	mount  string // the file system that data is on
	device string // its block device; "" if it could not be had
	quotas bool   // it holds claims to their sizes
	brain  *exec.Cmd
	http   *http.Client
	marks  func(word string) error // what is told of the pod that runObject starts; nil: nobody is
}

// parts are the names of what ours measures, in this order.
var parts = []string{"starts", "engine", "memory", "idle", "calls", "restarts", "shutdown", "sampling", "claims", "trace"}

// newNode is a node that is not started yet.
func newNode(b *bench, name string) *node {
	n := &node{b: b, name: name}
	n.tmpfs = filepath.Join(b.dir, "memory")
	n.run = filepath.Join(n.tmpfs, "run") // not the mount point: reset removes it
	n.mount = filepath.Join(b.dir, "data")
	n.data = filepath.Join(n.mount, "ledge") // nor this
	n.http = &http.Client{Transport: &http.Transport{DialContext: n.dial}}
	return n
}

// ours measures ledge.
func (b *bench) ours(ctx context.Context) (err error) {
	n := newNode(b, fmt.Sprintf("lb%d", os.Getpid()))
	defer func() { err = errors.Join(err, n.remove()) }()
	if err := n.open(ctx, b.archive()); err != nil {
		return err
	}
	for i, f := range []func(context.Context) error{n.starts, n.engine, n.memory, n.idle, n.calls, n.restarts, n.shutdown, n.sampling,
		n.claims, n.trace} {
		if !b.wants(parts[i]) {
			continue
		}
		if err := f(ctx); err != nil {
			return err
		}
	}
	if b.only != "" {
		return nil
	}
	info, err := os.Stat(b.ledge)
	if err != nil {
		return err
	}
	b.add("binary size", "ledge", float64(info.Size())/1e6, "MB", "everything: API, store, agent, runtime")
	return nil
}

// open starts a node that never ran, until it is ready for pods of the image in archive.
func (n *node) open(ctx context.Context, archive string) error {
	if err := n.inMemory(ctx); err != nil {
		return err
	}
	if err := n.disk(ctx); err != nil {
		n.b.skip("bytes at the block device", err)
	}
	if err := os.WriteFile(filepath.Join(n.b.dir, "config.yaml"), []byte(measure.NodeConfig), 0o644); err != nil {
		return err
	}
	if err := measure.Forget(n.b.ledge); err != nil {
		return fmt.Errorf("take %s out of the page cache: %w", n.b.ledge, err)
	}
	if _, err := n.start(ctx); err != nil {
		return err
	}
	if err := wait(ctx, time.Minute, func() error { return n.ready(ctx) }); err != nil {
		return err
	}
	return quiet(command(ctx, n.b.ledge, "--run-dir", n.run, "images", "import", archive))
}

func (n *node) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(n.run, "ledge.sock"))
}

// inMemory makes the place of the run directory what it is on a board, whatever it is here: what is written there wears
// no card and is not to be counted.
func (n *node) inMemory(ctx context.Context) error {
	if err := os.Mkdir(n.tmpfs, 0o700); err != nil {
		return err
	}
	return quiet(command(ctx, "mount", "-t", "tmpfs", "-o", "mode=0700", n.name, n.tmpfs))
}

// disk puts the data on a file system of its own, so that its writes can be counted where they arrive.
func (n *node) disk(ctx context.Context) error {
	image := filepath.Join(n.b.dir, "data.img")
	if err := os.Mkdir(n.mount, 0o700); err != nil {
		return err
	}
	file, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(1<<30), file.Close()); err != nil {
		return err
	}
	mount := func(features, extended, option string) error { // as boards' images do it, where this kernel can
		if err := quiet(command(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-O", features, "-E", "lazy_itable_init=0,lazy_journal_init=0"+extended,
			image)); err != nil {
			return err
		}
		return quiet(command(ctx, "mount", "-o", "loop,noatime"+option, image, n.mount))
	}
	if err := mount("quota,project", ",quotatype=prjquota", ",prjquota"); err == nil {
		n.quotas = true
	} else if err := mount("none", "", ""); err != nil {
		return err
	}
	out, err := command(ctx, "losetup", "-n", "-O", "NAME", "-j", image).Output()
	if err != nil {
		return err
	}
	n.device = filepath.Base(strings.TrimSpace(string(out)))
	return nil
}

// start runs the brain and returns how long its API took to answer.
func (n *node) start(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(filepath.Join(n.b.dir, "ledge.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	n.brain = command(ctx, n.b.ledge, "--run-dir", n.run, "serve", "--data-dir", n.data, "--config", filepath.Join(n.b.dir, "config.yaml"),
		"--listen", "", "--bridge", n.name, "--cgroup-root", "/"+n.name, "--power-backend=none")
	n.brain.Stdout, n.brain.Stderr = log, log
	n.brain.Cancel = func() error { return n.brain.Process.Signal(syscall.SIGTERM) }
	begin := time.Now()
	if err := n.brain.Start(); err != nil {
		return 0, err
	}
	err = wait(ctx, 30*time.Second, func() error {
		_, err := n.call(ctx, "GET", "/api/v1/nodes", nil)
		return err
	})
	if err != nil {
		text, readErr := os.ReadFile(log.Name())
		return 0, errors.Join(fmt.Errorf("%w; its log:\n%s", err, text), readErr)
	}
	return time.Since(begin), nil
}

func (n *node) stop() error {
	if n.brain == nil {
		return nil
	}
	brain := n.brain
	n.brain = nil
	if err := brain.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return brain.Wait()
}

// remove leaves nothing behind, also after a failure half way.
func (n *node) remove() error {
	err := n.stop()
	reset := exec.Command(n.b.ledge, "--run-dir", n.run, "reset", "--data", "--data-dir", n.data)
	err = errors.Join(err, quiet(reset))
	if n.device != "" {
		err = errors.Join(err, quiet(exec.Command("umount", n.mount)))
	}
	return errors.Join(err, quiet(exec.Command("umount", n.tmpfs)))
}

func (n *node) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://ledge"+path, reader)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Ledge-Meant", "yes")
	resp, err := n.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return text, err
}

func (n *node) ready(ctx context.Context) error {
	text, err := n.call(ctx, "GET", "/api/v1/nodes", nil)
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, node := range list.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			}
		}
	}
	return errors.New("the node is not Ready")
}

const podsPath = "/api/v1/namespaces/default/pods"

func podObject(name string, hostNetwork bool) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"hostNetwork": hostNetwork, "terminationGracePeriodSeconds": 1,
			"containers": []any{map[string]any{"name": "main", "image": imageName, "imagePullPolicy": "Never"}}}}
}

// runPod posts a pod and returns when a watcher has been told that it is Running, with the time since the post.
func (n *node) runPod(ctx context.Context, name string, hostNetwork bool) (time.Duration, error) {
	return n.runObject(ctx, name, podObject(name, hostNetwork))
}

// runObject does so with a pod, and with what is to be posted before it.
func (n *node) runObject(ctx context.Context, name string, pod map[string]any, before ...func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://ledge"+podsPath+"?watch=true&fieldSelector=metadata.name%3D"+name, nil)
	if err != nil {
		return 0, err
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	mark := func(string) error { return nil }
	if n.marks != nil {
		mark = n.marks
	}
	begin := time.Now()
	for _, do := range before {
		if err := do(); err != nil {
			return 0, err
		}
	}
	if err := mark("post"); err != nil {
		return 0, err
	}
	if _, err := n.call(ctx, "POST", podsPath, pod); err != nil {
		return 0, err
	}
	if err := mark("posted"); err != nil {
		return 0, err
	}
	for d := json.NewDecoder(resp.Body); ; {
		var event struct {
			Object struct {
				Status struct{ Phase, Reason, Message string }
			}
		}
		if err := d.Decode(&event); err != nil {
			return 0, fmt.Errorf("watch pod %s: %w", name, err)
		}
		switch s := event.Object.Status; s.Phase {
		case "Running":
			return time.Since(begin), mark("running")
		case "Failed":
			return 0, fmt.Errorf("pod %s failed: %s %s", name, s.Reason, s.Message)
		}
	}
}

func (n *node) deletePod(ctx context.Context, name string) error {
	if _, err := n.call(ctx, "DELETE", podsPath+"/"+name+"?gracePeriodSeconds=1", nil); err != nil {
		return err
	}
	return wait(ctx, 30*time.Second, func() error {
		if _, err := n.call(ctx, "GET", podsPath+"/"+name, nil); err == nil {
			return fmt.Errorf("pod %s is still there", name)
		}
		return nil
	})
}

// starts is the whole way of a pod: POST, schedule, mount, network, container, status, watch.
func (n *node) starts(ctx context.Context) error {
	for _, kind := range []struct {
		what string
		host bool
	}{{"ledge POST -> Running", false}, {"ledge POST -> Running, hostNetwork", true}} {
		ms, err := median(n.b.runs, func(i int) (time.Duration, error) {
			name := fmt.Sprintf("bench-%v-%d", kind.host, i)
			took, err := n.runPod(ctx, name, kind.host)
			return took, errors.Join(err, n.deletePod(ctx, name))
		})
		if err != nil {
			return err
		}
		n.b.add(startAll, kind.what, ms, "ms", "API, store, scheduler and status included")
	}
	ms, err := median(rounds(n.b.runs), func(i int) (time.Duration, error) { return n.manyAtOnce(ctx, fmt.Sprintf("ten-%d", i), tenAtOnce) })
	if err == nil {
		n.b.add(startTen, "ledge POST -> Running", ms, "ms", "from the first request to the last watcher that has been told")
	}
	return err
}

// manyAtOnce posts pods at once and returns when each is Running.
func (n *node) manyAtOnce(ctx context.Context, name string, pods int) (time.Duration, error) {
	errs := make([]error, pods)
	var all sync.WaitGroup
	begin := time.Now()
	for i := range pods {
		all.Go(func() { _, errs[i] = n.runPod(ctx, fmt.Sprintf("%s-%d", name, i), false) })
	}
	all.Wait()
	took := time.Since(begin)
	for i := range pods {
		errs = append(errs, n.deletePod(ctx, fmt.Sprintf("%s-%d", name, i)))
	}
	return took, errors.Join(errs...)
}

// engine is the keeper alone, as comparable with runc as it gets: no API, no image, no network.
func (n *node) engine(ctx context.Context) error {
	engine := keeper.New(keeper.ClientConfig{RunDir: n.run})
	ms, err := median(n.b.runs, func(i int) (time.Duration, error) {
		uid := fmt.Sprintf("bench-engine-%d", i)
		begin := time.Now()
		if _, err := engine.EnsurePod(ctx, runtime.Pod{UID: uid, Namespace: "default", Name: uid, HostNetwork: true,
			Cgroup: "kubepods/besteffort/pod" + uid}); err != nil {
			return 0, err
		}
		_, err := engine.Start(ctx, runtime.Container{ID: uid + "-c", PodUID: uid, Name: "main", Rootfs: n.b.rootfs(),
			Args: []string{"/pause"}, Cwd: "/", LogPath: filepath.Join(n.b.dir, uid+".log")})
		took := time.Since(begin)
		return took, errors.Join(err, engine.RemovePod(ctx, uid))
	})
	if err == nil {
		n.b.add(startEngine, "ledge engine", ms, "ms", "pod and container by the keeper, no network")
	}
	return err
}

// own are the PIDs of brain and keeper.
func (n *node) own() []int { return processes(n.run, filepath.Base(n.b.ledge)) }

func (n *node) memory(ctx context.Context) error {
	if err := measure.Rest(ctx); err != nil {
		return err
	}
	empty, own, err := measure.PSS(n.own()...)
	if err != nil {
		return err
	}
	n.b.add("memory with 0 pods (PSS)", fmt.Sprintf("ledge, %d processes", len(n.own())), empty, "MiB",
		fmt.Sprintf("%.1f of it anonymous", own))
	measured := func(from, to int) (pss, anonymous float64, err error) {
		for i := from; i < to; i++ {
			if _, err := n.runPod(ctx, fmt.Sprintf("many-%d", i), false); err != nil {
				return 0, 0, err
			}
		}
		if err := measure.Rest(ctx); err != nil {
			return 0, 0, err
		}
		return measure.PSS(n.own()...)
	}
	// What the first pod brings is there once: code that a node without pods does not run.
	one, oneOwn, err := measured(0, 1)
	if err != nil {
		return err
	}
	n.b.add("memory with 1 pod (PSS)", "ledge", one, "MiB", fmt.Sprintf("%.1f of it anonymous; without the container's own process", oneOwn))
	full, anonymous, err := measured(1, n.b.pods)
	if err != nil {
		return err
	}
	n.b.add(fmt.Sprintf("memory with %d pods (PSS)", n.b.pods), "ledge", full, "MiB",
		fmt.Sprintf("%.1f of it anonymous; without the containers' own processes", anonymous))
	each := func(pss, anonymous float64, pods int) (float64, string) {
		return pss / float64(pods), fmt.Sprintf("%.2f of it anonymous; the rest are pages of the binary", anonymous/float64(pods))
	}
	took, note := each(full-one, anonymous-oneOwn, n.b.pods-1)
	n.b.add("memory for each pod (PSS)", fmt.Sprintf("ledge, from 1 to %d", n.b.pods), took, "MiB", note)
	more, moreOwn, err := measured(n.b.pods, 2*n.b.pods)
	if err != nil {
		return err
	}
	took, note = each(more-full, moreOwn-anonymous, n.b.pods)
	n.b.add("memory for each pod (PSS)", fmt.Sprintf("ledge, from %d to %d", n.b.pods, 2*n.b.pods), took, "MiB", note)
	for i := range 2 * n.b.pods {
		if err := n.deletePod(ctx, fmt.Sprintf("many-%d", i)); err != nil {
			return err
		}
	}
	return nil
}
