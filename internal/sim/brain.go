package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/api/rest"
	"ledge/controller"
	networkfake "ledge/network/fake"
	"ledge/node"
	"ledge/node/pressure"
	"ledge/node/stats"
	"ledge/scheduler"
	"ledge/storage"
)

// brain is one life of the process that serves: what cmd/ledge joins, joined by imitation.
type brain struct {
	b      *Board
	door   *door
	uplink *uplink // between the agent and the API
	store  *storage.Store
	local  *local.Client
	user   *rest.Client
	node   *rest.Client
	agent  *node.Agent
	server *httpd.Server
	events *api.Recorder

	stopWork, stopAPI context.CancelFunc
	work, base        *errgroup.Group
}

func (b *Board) storeDir() string { return filepath.Join(b.disk, "store") }

const bootIDKey = "bootID"

// keptTerminated is fewer than on a board: each costs at every look at all pods.
const keptTerminated = 20

// wake starts a brain. One that does not come up because the disk is full is started again every few seconds, as its
// unit does; in the end a human makes room.
func (b *Board) wake() {
	b.t.Helper()
	for try := 0; ; try++ {
		x, err := b.start()
		if err == nil {
			b.brain = x
			x.run()
			synctest.Wait()
			return
		}
		if !b.Machine.full() {
			b.must(err, "start the brain")
		}
		if try == 10 {
			b.Logf("the brain does not start on a full disk: %v", err)
			b.must(b.Machine.empty(), "free the disk")
		}
		b.Pass(5 * time.Second)
	}
}

// start makes a brain ready, in the order of cmd/ledge.
func (b *Board) start() (*brain, error) {
	x := &brain{b: b, door: &door{}, uplink: &uplink{conns: map[net.Conn]bool{}}}
	var err error
	if x.store, err = storage.Open(b.ctx, storage.Config{Dir: b.storeDir(), NoSync: true}); err != nil {
		return nil, err
	}
	if x.local, err = local.New(local.Config{Store: x.store}); err == nil {
		if err = x.resume(); err == nil {
			err = x.join()
		}
	}
	if err != nil {
		return nil, errors.Join(err, x.store.Close())
	}
	return x, nil
}

// patient raises the conditions of a full disk and lets no pod go for it: what fills the disk here is none of theirs.
func patient() pressure.Policy {
	p := pressure.Default()
	for i := range p.Thresholds {
		if t := &p.Thresholds[i]; t.Signal.Disk() {
			t.Soft, t.Grace = true, 1000*time.Hour
		}
	}
	return p
}

// resume brings back what an orderly power-off stopped, once in each boot.
func (x *brain) resume() error {
	sample, err := x.b.Machine.Sample()
	if err != nil {
		return err
	}
	table := x.store.Table("settings")
	rows, _, err := table.All()
	if err != nil || string(rows[bootIDKey]) == sample.BootID {
		return err
	}
	if _, err := x.local.Resume(x.b.cfg.Name); err != nil {
		return err
	}
	return table.Put(bootIDKey, []byte(sample.BootID))
}

// join makes the API server, its two callers (the user, and the agent under a node's identity), and the agent.
func (x *brain) join() error {
	b := x.b
	user, dialUser := httpd.Pipe(api.User{Name: "user", Groups: []string{api.AdminGroup}})
	agent, dialAgent := httpd.Pipe(api.User{Name: api.NodeUserPrefix + b.cfg.Name, Groups: []string{api.NodesGroup}})
	x.uplink.dial = dialAgent
	var err error
	if x.user, err = rest.FromDialer(dialUser); err != nil {
		return err
	}
	if x.node, err = rest.FromDialer(x.uplink.connect); err != nil {
		return err
	}
	x.events = api.NewRecorder(x.node, "kubelet", b.cfg.Name)
	x.agent, err = node.New(node.Config{Name: b.cfg.Name, Version: "v0.0.0-sim", Client: x.node,
		Engine:  engineDoor{door: x.door, Engine: b.engine, starts: b.starts},
		Images:  imageDoor{door: x.door, store: b.images},
		Network: networkDoor{door: x.door, Setup: networkfake.New(b.network)},
		Board:   counted{b.Machine, b.kernel}, Stats: stats.New(stats.Config{Mount: b.kernel.dir, Proc: b.kernel.dir}), Stalled: b.kernel.stalled, Events: x.events, DataDir: b.disk, RunDir: b.run, Status: node.StatusConfig{Eviction: patient()},
		ResolvConf: filepath.Join(filepath.Dir(b.disk), "resolv.conf")})
	if err != nil {
		return err
	}
	h, err := httpd.New(httpd.Config{Client: scribe{Client: x.local, b: b}, Streams: x.agent})
	if err != nil {
		return err
	}
	x.server = &httpd.Server{Handler: h, Listeners: []*httpd.Listener{user, agent}}
	return nil
}

func (x *brain) run() {
	apiCtx, stopAPI := context.WithCancel(context.WithoutCancel(x.b.ctx))
	x.base, apiCtx = errgroup.WithContext(apiCtx)
	for _, r := range []func(context.Context) error{x.store.Run, x.local.Run, x.server.Run, x.events.Run} {
		x.base.Go(func() error { return r(apiCtx) })
	}
	workCtx, stopWork := context.WithCancel(apiCtx)
	x.work, workCtx = errgroup.WithContext(workCtx)
	plane := controller.Config{Client: scribe{Client: x.local, b: x.b}, TerminatedPods: keptTerminated,
		Schedule: scheduler.Config{Closed: func(string) bool { return x.agent.Closed() }}}
	for _, r := range []func(context.Context) error{
		x.agent.Run,
		func(ctx context.Context) error { return controller.Run(ctx, plane) },
		func(ctx context.Context) error { return x.b.witness.Run(ctx, x.user) },
	} {
		x.work.Go(func() error { return r(workCtx) })
	}
	x.stopAPI, x.stopWork = stopAPI, stopWork
}

// end lets every goroutine of the brain come to its end.
func (x *brain) end() error {
	x.stopWork()
	err := x.work.Wait()
	x.stopAPI()
	err = errors.Join(err, x.base.Wait())
	x.user.Close()
	x.node.Close()
	return err
}

// sleep ends the brain as a signal does: pods run on.
func (b *Board) sleep() {
	b.t.Helper()
	x := b.brain
	b.brain = nil
	if x != nil {
		b.must(x.end(), "end the brain")
		b.must(x.store.Close(), "close the store")
	}
}

// die ends the brain as kill -9 does: its memory is lost, its later calls have no effect, and the file keeps the
// content of that moment.
func (b *Board) die() {
	b.t.Helper()
	synctest.Wait() // no goroutine is in the middle of a write
	b.brain.door.shut.Store(true)
	kept := filepath.Join(filepath.Dir(b.disk), "kept") // beside the disk, which may be full
	b.must(copyDir(b.storeDir(), kept), "keep the store as it is")
	if err := b.brain.end(); err != nil {
		b.Errorf("the brain ended with %v", err)
	}
	_ = b.brain.store.Close() // what it flushes now is thrown away
	b.brain = nil
	b.must(os.RemoveAll(b.storeDir()), "throw away the store")
	b.must(copyDir(kept, b.storeDir()), "put the store back")
	b.must(os.RemoveAll(kept), "clean up")
}

// copyDir copies a tree of plain files; holes stay holes, or a copy would need more room than there was.
func copyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			err = copyDir(src, dst)
		} else {
			err = copySparse(src, dst)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", src, err)
		}
	}
	return nil
}

func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	page, empty := make([]byte, 4096), make([]byte, 4096)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, page)
		if n > 0 && !bytes.Equal(page[:n], empty[:n]) {
			if _, err := out.WriteAt(page[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}

// uplink is the agent's way to the API. It can be cut.
type uplink struct {
	dial func(context.Context) (net.Conn, error)

	mu    sync.Mutex
	cut   bool
	slow  time.Duration // that each piece takes either way
	conns map[net.Conn]bool
}

var errCut = errors.New("the uplink is cut")

func (u *uplink) connect(ctx context.Context) (net.Conn, error) {
	u.mu.Lock()
	cut := u.cut
	u.mu.Unlock()
	if cut {
		return nil, errCut
	}
	c, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.conns[c] = true
	return &linked{Conn: c, up: u}, nil
}

// set cuts the uplink, with every connection on it, or mends it.
func (u *uplink) set(cut bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cut = cut
	if cut {
		for c := range u.conns {
			c.Close()
		}
		clear(u.conns)
	}
}

// lag makes everything on the uplink take that long.
func (u *uplink) lag(slow time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.slow = slow
}

type linked struct {
	net.Conn
	up *uplink
}

func (l *linked) delay() {
	l.up.mu.Lock()
	slow := l.up.slow
	l.up.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow)
	}
}

func (l *linked) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.delay()
	return n, err
}

func (l *linked) Write(p []byte) (int, error) {
	l.delay()
	return l.Conn.Write(p)
}

func (l *linked) Close() error {
	l.up.mu.Lock()
	delete(l.up.conns, l.Conn)
	l.up.mu.Unlock()
	return l.Conn.Close()
}

func (b *Board) getNode() (*corev1.Node, error) {
	return api.Get[*corev1.Node](b.ctx, b.brain.user, api.Nodes, "", b.cfg.Name)
}
