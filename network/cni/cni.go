// Package cni is the network.Setup of a board whose cluster brings its network by plugins of the Container Network Interface: programs
// that are run for each pod, as the first file of /etc/cni/net.d says. What ledge makes of them is a loop over a list; what they make
// is their own. The specification is that of containernetworking/cni, versions 0.3.0 to 1.1.0.
//
// A record for each pod has the list that it was connected by and what the plugins answered: a pod is disconnected by what connected it,
// whatever the file says by then. It outlives a reboot, as what plugins note for themselves does: an address that a plugin has given is
// taken until the plugin is told that the pod has gone.
package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/internal/durable"
	"ledge/network"
	"ledge/network/netns"
	"ledge/network/plan"
)

// The directories that clusters' networks know.
const (
	DefaultNetworks = "/etc/cni/net.d"
	DefaultPrograms = "/opt/cni/bin"
	DebianPrograms  = "/usr/lib/cni" // of the package containernetworking-plugins
)

// Config says where things are. Dir is required.
type Config struct {
	Networks string   // the directory of configurations; DefaultNetworks if empty
	Programs []string // the directories of plugins; DefaultPrograms and DebianPrograms if empty
	Dir      string   // of the records; it outlives a reboot
	BootID   string   // of the running kernel; if empty it is read. Pods of another boot stand no more.
	NetNS    string   // the path of the network namespace that plays the host; if empty, that of this process
}

// Setup implements network.Setup. It is safe for concurrent use.
type Setup struct {
	cfg Config

	mu       sync.Mutex
	pods     map[string]*record // by UID
	busy     map[string]bool    // something is being done to that pod
	freed    *sync.Cond         // some pod is not busy any more
	unwanted map[string]bool    // pods that were to be disconnected and are not yet
	tidying  bool

	counted sync.RWMutex // written to by who tells plugins which pods there are: none comes or goes meanwhile

	asking sync.Mutex // of the network's state
	asked  time.Time
	of     string // the configuration that was asked
	state  error
}

var _ network.Setup = (*Setup)(nil)

// record is what is known of a pod's attachment.
type record struct {
	Boot   string
	Pod    network.Pod
	List   list
	Result json.RawMessage // nil: it was begun, and may be half done

	ns *os.File // the pod's namespace: it is there until the plugins have taken back what they made in it
}

// stands tells whether the pod was connected since the machine started.
func (s *Setup) stands(r *record) bool { return r.Boot == s.cfg.BootID }

// New reads what an earlier process of this boot recorded. It changes nothing.
func New(cfg Config) (*Setup, error) {
	if cfg.Dir == "" {
		return nil, errors.New("network of pods: Dir is required")
	}
	if cfg.Networks == "" {
		cfg.Networks = DefaultNetworks
	}
	if len(cfg.Programs) == 0 {
		cfg.Programs = []string{DefaultPrograms, DebianPrograms}
	}
	if cfg.BootID == "" {
		id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return nil, fmt.Errorf("read boot id: %w", err)
		}
		cfg.BootID = strings.TrimSpace(string(id))
	}
	s := &Setup{cfg: cfg, pods: map[string]*record{}, busy: map[string]bool{}, unwanted: map[string]bool{}}
	s.freed = sync.NewCond(&s.mu)
	paths, err := filepath.Glob(filepath.Join(cfg.Dir, "cni-*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var r record
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err == nil && s.path(r.Pod.UID) == path {
			s.hold(&r)
			s.pods[r.Pod.UID] = &r
		}
	}
	return s, nil
}

// hold keeps the namespace of a pod. One that is gone is not held.
func (s *Setup) hold(r *record) {
	if !s.stands(r) {
		return
	}
	if fd, err := netns.Open(r.Pod.NetNS); err == nil {
		r.ns = os.NewFile(uintptr(fd), r.Pod.NetNS)
	}
}

// let lets the namespace go.
func (r *record) let() {
	if r.ns != nil {
		r.ns.Close()
	}
}

// where is the path of the pod's namespace; "": it is gone.
func (r *record) where() string {
	if r.ns == nil {
		return ""
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), r.ns.Fd())
}

func (s *Setup) path(uid string) string { return filepath.Join(s.cfg.Dir, "cni-"+uid+".json") }

// Pods is how many are connected.
func (s *Setup) Pods() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.pods {
		if s.stands(r) {
			n++
		}
	}
	return n
}

// What a network said of itself is believed for so long, while its configuration is the same: asking runs programs.
const (
	freshWell  = 5 * time.Minute
	freshError = 5 * time.Second
)

// Ready says whether there is a network, and what its plugins say of it.
func (s *Setup) Ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	l, err := load(s.cfg.Networks)
	if err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	s.tidy()
	fresh := freshWell
	if s.state != nil {
		fresh = freshError
	}
	if string(text) == s.of && time.Since(s.asked) < fresh {
		return s.state
	}
	soon, cancel := context.WithTimeoutCause(ctx, quick, fmt.Errorf("it did not end within %s", quick))
	defer cancel()
	err = s.status(soon, l)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.asked, s.of, s.state = time.Now(), string(text), err
	return err
}

// tidy disconnects, beside everything else, pods that should have been and could not.
func (s *Setup) tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tidying || len(s.unwanted) == 0 {
		return
	}
	s.tidying = true
	all := slices.Sorted(maps.Keys(s.unwanted))
	go func() {
		for _, uid := range all {
			if err := s.drop(context.Background(), uid); err != nil {
				slog.Debug("trying again", "err", err)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tidying = false
	}()
}

// drop disconnects a pod that nobody wants, or has it tried again. One that somebody wants by then stays.
func (s *Setup) drop(ctx context.Context, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, hasty)
	defer cancel()
	return s.detach(ctx, uid, func() bool { return s.unwanted[uid] })
}

func (s *Setup) status(ctx context.Context, l *list) error {
	for _, p := range l.Plugins {
		if !l.speaks("1.1.0") {
			if _, err := s.find(p.kind()); err != nil {
				return fmt.Errorf("network %s: plugin %s: %w", l.Name, p.kind(), err)
			}
			continue
		}
		if _, err := s.ask(ctx, l, p, call{command: "STATUS"}, asks{}); err != nil {
			return fmt.Errorf("network %s: %w", l.Name, err)
		}
	}
	return nil
}

// take waits until nothing is being done to a pod, and has it for the caller. A nil error wants release.
func (s *Setup) take(ctx context.Context, uid string) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.freed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.busy[uid] && ctx.Err() == nil {
		s.freed.Wait()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.busy[uid] = true
	return nil
}

func (s *Setup) release(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, uid)
	s.freed.Broadcast()
}

// Attach connects a pod.
func (s *Setup) Attach(ctx context.Context, pod network.Pod) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fail := func(err error) ([]netip.Addr, error) {
		return nil, fmt.Errorf("connect pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if !isName(pod.UID) {
		return fail(fmt.Errorf("%q is no UID", pod.UID))
	}
	if err := s.take(ctx, pod.UID); err != nil {
		return fail(err)
	}
	defer s.release(pod.UID)
	old, err := s.claim(&pod)
	if err != nil {
		return nil, err
	}
	var wanted []netip.Addr
	if old != nil {
		addrs, err := s.still(old, pod)
		if err == nil {
			return addrs, nil
		}
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		slog.Info("connecting a pod anew", "pod", pod.Namespace+"/"+pod.Name, "why", err)
		wanted, _ = addresses(old.Result) // one that was begun has none
		if err := s.disconnect(ctx, old); err != nil {
			return fail(err)
		}
	}
	began := time.Now()
	addrs, err := s.connect(ctx, pod, wanted)
	// Somebody else may have the addresses by now; and plugins that run at once meet in iptables, where one of them fails.
	if err != nil && ctx.Err() == nil && time.Since(began) < quick && !errors.Is(err, network.ErrExhausted) {
		addrs, err = s.connect(ctx, pod, nil)
	}
	if err != nil {
		return fail(err)
	}
	return addrs, nil
}

// claim checks the ports of a pod and keeps them for it. It gives what is known of the pod.
func (s *Setup) claim(pod *network.Pod) (old *record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var others []network.Pod
	for _, r := range s.pods {
		if s.stands(r) {
			others = append(others, r.Pod)
		}
	}
	delete(s.unwanted, pod.UID)
	if pod.Ports, err = plan.CheckPorts(*pod, others); err != nil {
		return nil, err
	}
	if old = s.pods[pod.UID]; old == nil {
		s.pods[pod.UID] = &record{Boot: s.cfg.BootID, Pod: *pod} // nobody else takes its ports meanwhile
	}
	return old, nil
}

// still tells whether a pod is connected as it is wanted: it has its interface and its addresses. Plugins are not asked (CHECK): the
// network's own programs may be away for a while, and no pod is cut off for that (decision 161).
func (s *Setup) still(r *record, pod network.Pod) ([]netip.Addr, error) {
	switch {
	case !s.stands(r):
		return nil, errors.New("the machine was started since")
	case r.Result == nil:
		return nil, errors.New("it was begun and not done")
	case r.Pod.NetNS != pod.NetNS || r.ns == nil:
		return nil, errors.New("it has another network namespace")
	case !slices.Equal(r.Pod.Ports, pod.Ports):
		return nil, errors.New("it has other host ports")
	}
	addrs, err := addresses(r.Result)
	if err != nil {
		return nil, err
	}
	return addrs, netns.Within(int(r.ns.Fd()), func() error { return has(podLink, addrs) })
}

// has says which of the addresses an interface lacks.
func has(name string, addrs []netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("its %s: %w", name, err)
	}
	list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("its %s: %w", name, err)
	}
	for _, want := range addrs {
		if !slices.ContainsFunc(list, func(a netlink.Addr) bool { return a.IP.Equal(want.AsSlice()) }) {
			return fmt.Errorf("its %s has no %s", name, want)
		}
	}
	return nil
}

func callOf(command string, pod network.Pod, netns string) call {
	return call{command: command, id: pod.UID, netns: netns, args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + pod.Namespace + ";K8S_POD_NAME=" +
		pod.Name + ";K8S_POD_INFRA_CONTAINER_ID=" + pod.UID + ";K8S_POD_UID=" + pod.UID}
}

// connect runs the plugins one after the other. What fails is taken back.
func (s *Setup) connect(ctx context.Context, pod network.Pod, wanted []netip.Addr) (addrs []netip.Addr, err error) {
	s.counted.RLock()
	defer s.counted.RUnlock()
	r := &record{Boot: s.cfg.BootID, Pod: pod}
	s.hold(r)
	defer func() {
		if err != nil {
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), hasty)
			defer cancel()
			err = errors.Join(err, s.takeBack(back, r))
		}
	}()
	l, err := load(s.cfg.Networks)
	if err != nil {
		return nil, err
	}
	r.List = *l
	if len(pod.Ports) > 0 && !l.can("portMappings") {
		return nil, fmt.Errorf("hostPort %d: no plugin of network %s has the capability portMappings", pod.Ports[0].HostPort, l.Name)
	}
	if err := netns.At(pod.NetNS, loopbackUp); err != nil {
		return nil, err
	}
	if err := s.keep(r); err != nil { // a start that finds this takes back what was begun
		return nil, err
	}
	var result json.RawMessage
	for _, p := range l.Plugins {
		out, err := s.ask(ctx, l, p, callOf("ADD", pod, pod.NetNS), asks{previous: result, ports: pod.Ports, wanted: wanted})
		if err == nil {
			result, err = compact(out)
		}
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", l.Name, err)
		}
	}
	if addrs, err = addresses(result); err != nil {
		return nil, fmt.Errorf("network %s: %w", l.Name, err)
	}
	done := *r
	done.Result = result
	if err := s.keep(&done); err != nil {
		return nil, err
	}
	return addrs, nil
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("start loopback: %w", err)
	}
	return nil
}

// keep records a pod.
func (s *Setup) keep(r *record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(s.cfg.Dir, 0o700)
	}
	if err == nil {
		err = durable.Volatile.Replace(s.path(r.Pod.UID), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record pod: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[r.Pod.UID] = r
	return nil
}

// ask runs one plugin of a network, and gives what it answers.
func (s *Setup) ask(ctx context.Context, l *list, p plugin, c call, a asks) ([]byte, error) {
	req, err := l.request(p, a)
	if err != nil {
		return nil, err
	}
	return s.run(ctx, p.kind(), c, req)
}

// disconnect runs the plugins that connected a pod, the last one first, and forgets the pod.
func (s *Setup) disconnect(ctx context.Context, r *record) error {
	s.counted.RLock()
	defer s.counted.RUnlock()
	return s.takeBack(ctx, r)
}

// takeBack is disconnect for who holds counted. What a plugin has made that is not installed any more stays: nobody else knows it.
func (s *Setup) takeBack(ctx context.Context, r *record) error {
	for _, p := range slices.Backward(r.List.Plugins) {
		_, err := s.ask(ctx, &r.List, p, callOf("DEL", r.Pod, r.where()), asks{previous: r.Result, ports: r.Pod.Ports})
		if errors.Is(err, errNoProgram) {
			slog.Warn("a plugin cannot take back what it made for a pod", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "err", err)
		} else if err != nil {
			return fmt.Errorf("network %s: %w", r.List.Name, err)
		}
	}
	return s.forget(r)
}

func (s *Setup) forget(r *record) error {
	if err := os.Remove(s.path(r.Pod.UID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove record of pod: %w", err)
	}
	r.let()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, r.Pod.UID)
	delete(s.unwanted, r.Pod.UID)
	return nil
}

// Detach disconnects a pod.
func (s *Setup) Detach(ctx context.Context, uid string) error {
	return s.detach(ctx, uid, func() bool { return true })
}

// detach disconnects a pod that is still meant, when nothing else is being done to it.
func (s *Setup) detach(ctx context.Context, uid string, meant func() bool) error {
	if err := s.take(ctx, uid); err != nil {
		return err
	}
	defer s.release(uid)
	s.mu.Lock()
	r, is := s.pods[uid], meant()
	s.mu.Unlock()
	if r == nil || !is {
		return nil
	}
	if err := s.disconnect(ctx, r); err != nil {
		return fmt.Errorf("disconnect pod %s/%s: %w", r.Pod.Namespace, r.Pod.Name, err)
	}
	return nil
}

// Retain disconnects the pods that are not in uids. It tells the plugins which are, and they free what other pods have left. What cannot
// be disconnected is tried again with each look at the board.
func (s *Setup) Retain(ctx context.Context, uids []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var errs []error
	late := time.Now().Add(hasty)
	for _, uid := range s.others(uids) {
		if time.Now().Before(late) {
			errs = append(errs, s.drop(ctx, uid))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.collect(ctx)
}

// others are the pods that are not listed: nobody wants them.
func (s *Setup) others(uids []string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		if !slices.Contains(uids, uid) {
			s.unwanted[uid] = true
			out = append(out, uid)
		}
	}
	return out
}

// collect is GC of the specification.
func (s *Setup) collect(ctx context.Context) error {
	l, err := load(s.cfg.Networks)
	if err != nil || !l.speaks("1.1.0") || l.DisableGC {
		return nil //nolint:nilerr // without a network there is nothing to free; Ready says so
	}
	ctx, cancel := context.WithTimeout(ctx, hasty)
	defer cancel()
	s.counted.Lock() // a pod that came meanwhile would be taken for one that has gone
	defer s.counted.Unlock()
	s.mu.Lock()
	valid := []attachment{}
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		valid = append(valid, attachment{uid, podLink})
	}
	s.mu.Unlock()
	var errs []error
	for _, p := range l.Plugins {
		_, err := s.ask(ctx, l, p, call{command: "GC"}, asks{valid: valid})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close disconnects all pods. What plugins made for all of them, a bridge for one, is theirs and stays; so does what one of them will
// not take back: whoever leaves a network is not held by it.
func (s *Setup) Close(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, uid := range s.others(nil) {
		err := s.drop(ctx, uid)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.mu.Lock()
		r := s.pods[uid]
		s.mu.Unlock()
		if err != nil && r != nil {
			slog.Warn("a pod is given up whose network its plugins do not take back", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "err", err)
			if err := s.forget(r); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(s.cfg.Dir); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("remove records of pods: %w", err)
	}
	return nil
}
