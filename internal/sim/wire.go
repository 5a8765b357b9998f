package sim

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ledge/images"
	imagesfake "ledge/images/fake"
	"ledge/network"
	networkfake "ledge/network/fake"
	"ledge/node"
	"ledge/runtime"
)

// wire is the one way from a brain to the board. When the brain dies it is cut: whatever a goroutine of a dead process
// still tries has no effect.
type wire struct{ cut atomic.Bool }

func (w *wire) check() error {
	if w.cut.Load() {
		return fmt.Errorf("the brain is dead: %w", runtime.ErrUnavailable)
	}
	return nil
}

// engineWire leads to the engine and remembers what was started.
type engineWire struct {
	*wire
	node.Engine
	starts *starts
}

func (e engineWire) Info(ctx context.Context) (runtime.Info, error) {
	if err := e.check(); err != nil {
		return runtime.Info{}, err
	}
	return e.Engine.Info(ctx)
}

func (e engineWire) EnsurePod(ctx context.Context, p runtime.Pod) (runtime.PodStatus, error) {
	if err := e.check(); err != nil {
		return runtime.PodStatus{}, err
	}
	return e.Engine.EnsurePod(ctx, p)
}

func (e engineWire) Limit(ctx context.Context, at runtime.Place, r runtime.Resources) error {
	if err := e.check(); err != nil {
		return err
	}
	return e.Engine.Limit(ctx, at, r)
}

func (e engineWire) RemovePod(ctx context.Context, uid string) error {
	if err := e.check(); err != nil {
		return err
	}
	return e.Engine.RemovePod(ctx, uid)
}

func (e engineWire) Start(ctx context.Context, c runtime.Container) (runtime.Status, error) {
	if err := e.check(); err != nil {
		return runtime.Status{}, err
	}
	st, err := e.Engine.List(ctx)
	if err != nil {
		return runtime.Status{}, err
	}
	e.starts.look(c, st)
	out, err := e.Engine.Start(ctx, c)
	if err == nil {
		say(c.LogPath, "started")
	}
	return out, err
}

// say writes a line to a container's log as the keeper would. On a full disk lines are lost, there as here.
func say(path, text string) {
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = fmt.Fprintf(f, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), text)
}

func (e engineWire) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	if err := e.check(); err != nil {
		return err
	}
	e.starts.signalled(id, sig)
	return e.Engine.Signal(ctx, id, sig)
}

func (e engineWire) Remove(ctx context.Context, id string) error {
	if err := e.check(); err != nil {
		return err
	}
	return e.Engine.Remove(ctx, id)
}

func (e engineWire) Exec(ctx context.Context, x runtime.Exec) (runtime.Exit, error) {
	if err := e.check(); err != nil {
		return runtime.Exit{}, err
	}
	return e.Engine.Exec(ctx, x)
}

func (e engineWire) Attach(ctx context.Context, x runtime.Attach) error {
	if err := e.check(); err != nil {
		return err
	}
	return e.Engine.Attach(ctx, x)
}

func (e engineWire) List(ctx context.Context) (runtime.State, error) {
	if err := e.check(); err != nil {
		return runtime.State{}, err
	}
	return e.Engine.List(ctx)
}

func (e engineWire) Watch(ctx context.Context, fn func(runtime.Status)) error {
	if err := e.check(); err != nil {
		return err
	}
	return e.Engine.Watch(ctx, func(s runtime.Status) {
		if e.check() == nil {
			fn(s)
		}
	})
}

// starts knows every container that was ever started.
type starts struct {
	fail func(format string, args ...any)

	mu     sync.Mutex
	ids    map[string][]string // "<pod uid>/<container>" -> IDs, in order
	polite map[string]bool     // IDs that were asked to stop before they were killed
	once   map[string]bool     // "<pod uid>/<container>" that may run once only
	greedy map[string]bool     // IDs that take what the board has: where half of the last is gone nobody asks them
}

func newStarts() *starts {
	return &starts{ids: map[string][]string{}, polite: map[string]bool{}, once: map[string]bool{}, greedy: map[string]bool{}}
}

// look checks a start: of no container two run at once, one that is to run once does, and what it needs is there.
func (s *starts) look(c runtime.Container, have runtime.State) {
	key := c.PodUID + "/" + c.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.ids[key], c.ID) {
		s.ids[key] = append(s.ids[key], c.ID)
	}
	s.greedy[c.ID] = slices.ContainsFunc(c.Args, func(word string) bool { return strings.HasPrefix(word, "eats=") })
	if s.once[c.PodUID] && len(s.ids[key]) > 1 {
		s.fail("container %s runs again, and is to run once: %v", key, s.ids[key])
	}
	for _, o := range have.Containers {
		if o.PodUID == c.PodUID && o.Name == c.Name && o.ID != c.ID && o.Phase == runtime.Running {
			s.fail("container %s is started while %s runs", c.ID, o.ID)
		}
	}
	paths := []string{c.Rootfs}
	for _, m := range c.Mounts {
		paths = append(paths, m.Source)
	}
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			s.fail("container %s is started without %s: %v", c.ID, p, err)
		}
	}
}

// runsOnce notes a pod whose containers may be started only once in their life.
func (s *starts) runsOnce(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once[uid] = true
}

// mayRepeat takes that back: the pod's spec was changed.
func (s *starts) mayRepeat(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.once, uid)
}

// signalled checks that nothing is killed that was not asked to stop before.
func (s *starts) signalled(id string, sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sig == syscall.SIGKILL && !s.polite[id] && !s.greedy[id] {
		s.fail("container %s is killed without having been asked to stop", id)
	}
	s.polite[id] = true
}

// forget lets go of a container that is removed.
func (s *starts) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.polite, id)
	delete(s.greedy, id)
	for key, ids := range s.ids {
		if slices.Contains(ids, id) {
			delete(s.ids, key)
		}
	}
}

// restart forgets everything: so did the machine.
func (s *starts) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ids)
	clear(s.polite)
	clear(s.greedy)
}

// asked says whether a container was told to stop.
func (s *starts) asked(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polite[id]
}

// imageWire leads to the images. It makes the root file systems that the fake only names: the agent looks into them
// for account files, and one that is missing must stay an error there (a mount that is gone must not mean root).
type imageWire struct {
	*wire
	*imagesfake.Store
}

func (i imageWire) Pull(ctx context.Context, req images.PullRequest) (images.Pulled, error) {
	if err := i.check(); err != nil {
		return images.Pulled{}, err
	}
	return i.Store.Pull(ctx, req)
}

func (i imageWire) Mount(ctx context.Context, imageID, key string) (string, error) {
	if err := i.check(); err != nil {
		return "", err
	}
	dir, err := i.Store.Mount(ctx, imageID, key)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func (i imageWire) Unmount(ctx context.Context, key string) error {
	if err := i.check(); err != nil {
		return err
	}
	if err := i.Store.Unmount(ctx, key); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(i.Store.Dir, key))
}

func (i imageWire) Retain(ctx context.Context, keys []string) error {
	if err := i.check(); err != nil {
		return err
	}
	return i.Store.Retain(ctx, keys)
}

// networkWire leads to the network.
type networkWire struct {
	*wire
	*networkfake.Setup
}

func (n networkWire) Attach(ctx context.Context, p network.Pod) ([]netip.Addr, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	return n.Setup.Attach(ctx, p)
}

func (n networkWire) Detach(ctx context.Context, uid string) error {
	if err := n.check(); err != nil {
		return err
	}
	return n.Setup.Detach(ctx, uid)
}

func (n networkWire) Retain(ctx context.Context, uids []string) error {
	if err := n.check(); err != nil {
		return err
	}
	return n.Setup.Retain(ctx, uids)
}
