// Package cni is the network.Setup of a board whose cluster brings its network by plugins of the Container Network Interface: programs
// that are run for each pod, as the first file of /etc/cni/net.d says. What ledge makes of them is a loop over a list; what they make
// is their own. The specification is that of containernetworking/cni, versions 0.3.0 to 1.1.0.
//
// A record for each pod, on tmpfs, has the list that it was connected by and what the plugins answered: a pod is disconnected by what
// connected it, whatever the file says by then.
package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
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

// Config says where things are. RunDir is required.
type Config struct {
	Networks string   // the directory of configurations; DefaultNetworks if empty
	Programs []string // the directories of plugins; DefaultPrograms and DebianPrograms if empty
	RunDir   string   // a directory on tmpfs: the records in it die with the boot
	BootID   string   // of the running kernel; if empty it is read. Records of another boot are void.
	NetNS    string   // the path of the network namespace that plays the host; if empty, that of this process
}

// Setup implements network.Setup. It is safe for concurrent use.
type Setup struct {
	cfg Config

	mu    sync.Mutex
	pods  map[string]*record // by UID
	busy  map[string]bool    // something is being done to that pod
	freed *sync.Cond         // some pod is not busy any more

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
}

// New reads what an earlier process of this boot recorded. It changes nothing.
func New(cfg Config) (*Setup, error) {
	if cfg.RunDir == "" {
		return nil, errors.New("network of pods: RunDir is required")
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
	s := &Setup{cfg: cfg, pods: map[string]*record{}, busy: map[string]bool{}}
	s.freed = sync.NewCond(&s.mu)
	paths, err := filepath.Glob(filepath.Join(cfg.RunDir, "cni-*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var r record
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err == nil && r.Boot == cfg.BootID && s.path(r.Pod.UID) == path {
			s.pods[r.Pod.UID] = &r
		}
	}
	return s, nil
}

func (s *Setup) path(uid string) string { return filepath.Join(s.cfg.RunDir, "cni-"+uid+".json") }

// Pods is how many are connected.
func (s *Setup) Pods() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pods)
}

// fresh is how long a network that was well is believed to be, while its configuration is the same. Asking runs programs.
const fresh = 5 * time.Minute

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
	if string(text) == s.of && s.state == nil && time.Since(s.asked) < fresh {
		return nil
	}
	err = s.status(ctx, l)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.asked, s.of, s.state = time.Now(), string(text), err
	return err
}

func (s *Setup) status(ctx context.Context, l *list) error {
	for _, p := range l.Plugins {
		if !l.speaks("1.1.0") {
			if _, err := s.find(p.kind()); err != nil {
				return fmt.Errorf("network %s: plugin %s: %w", l.Name, p.kind(), err)
			}
			continue
		}
		req, err := l.request(p, asks{})
		if err == nil {
			_, err = s.run(ctx, p.kind(), call{command: "STATUS"}, req)
		}
		if err != nil {
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

// idShape is what the specification takes as the name of an attachment.
var idShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// Attach connects a pod.
func (s *Setup) Attach(ctx context.Context, pod network.Pod) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fail := func(err error) ([]netip.Addr, error) {
		return nil, fmt.Errorf("connect pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if !idShape.MatchString(pod.UID) || len(pod.UID) > 128 {
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
		if addrs, err := s.still(ctx, old, pod); err == nil {
			return addrs, nil
		}
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		wanted, _ = addresses(old.Result) // one that was begun has none
		if err := s.disconnect(ctx, old); err != nil {
			return fail(err)
		}
	}
	addrs, err := s.connect(ctx, pod, wanted)
	if err != nil && len(wanted) > 0 && ctx.Err() == nil { // somebody else may have them by now
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
		others = append(others, r.Pod)
	}
	if pod.Ports, err = plan.CheckPorts(*pod, others); err != nil {
		return nil, err
	}
	if old = s.pods[pod.UID]; old == nil {
		s.pods[pod.UID] = &record{Pod: *pod} // nobody else takes its ports meanwhile
	}
	return old, nil
}

// still tells whether a pod is connected as it is wanted.
func (s *Setup) still(ctx context.Context, r *record, pod network.Pod) ([]netip.Addr, error) {
	if r.Result == nil || r.Pod.NetNS != pod.NetNS || !slices.Equal(r.Pod.Ports, pod.Ports) {
		return nil, errors.New("it is to be connected anew")
	}
	addrs, err := addresses(r.Result)
	if err != nil {
		return nil, err
	}
	if r.List.speaks("0.4.0") && !r.List.DisableCheck {
		for _, p := range r.List.Plugins {
			req, err := r.List.request(p, asks{previous: r.Result, ports: pod.Ports})
			if err == nil {
				_, err = s.run(ctx, p.kind(), s.callOf("CHECK", pod), req)
			}
			if err != nil {
				return nil, err
			}
		}
		return addrs, nil
	}
	return addrs, netns.At(pod.NetNS, func() error { // a plugin that cannot tell: its interface is there
		_, err := netlink.LinkByName(podLink)
		return err
	})
}

func (s *Setup) callOf(command string, pod network.Pod) call {
	return call{command: command, id: pod.UID, netns: pod.NetNS, args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + pod.Namespace + ";K8S_POD_NAME=" +
		pod.Name + ";K8S_POD_INFRA_CONTAINER_ID=" + pod.UID + ";K8S_POD_UID=" + pod.UID}
}

// connect runs the plugins one after the other. What fails is taken back.
func (s *Setup) connect(ctx context.Context, pod network.Pod, wanted []netip.Addr) (addrs []netip.Addr, err error) {
	r := &record{Boot: s.cfg.BootID, Pod: pod}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.disconnect(context.WithoutCancel(ctx), r))
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
		req, err := l.request(p, asks{previous: result, ports: pod.Ports, wanted: wanted})
		if err != nil {
			return nil, err
		}
		out, err := s.run(ctx, p.kind(), s.callOf("ADD", pod), req)
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
		err = os.MkdirAll(s.cfg.RunDir, 0o700)
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

// disconnect runs the plugins that connected a pod, the last one first, and forgets the pod.
func (s *Setup) disconnect(ctx context.Context, r *record) error {
	pod := r.Pod
	if fd, err := netns.Open(pod.NetNS); err != nil {
		pod.NetNS = "" // it is gone, and what was in it
	} else {
		unix.Close(fd)
	}
	for _, p := range slices.Backward(r.List.Plugins) {
		req, err := r.List.request(p, asks{previous: r.Result, ports: pod.Ports})
		if err == nil {
			_, err = s.run(ctx, p.kind(), s.callOf("DEL", pod), req)
		}
		if err != nil {
			return fmt.Errorf("network %s: %w", r.List.Name, err)
		}
	}
	if err := os.Remove(s.path(pod.UID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove record of pod: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod.UID)
	return nil
}

// Detach disconnects a pod.
func (s *Setup) Detach(ctx context.Context, uid string) error {
	if err := s.take(ctx, uid); err != nil {
		return err
	}
	defer s.release(uid)
	s.mu.Lock()
	r := s.pods[uid]
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	if err := s.disconnect(ctx, r); err != nil {
		return fmt.Errorf("disconnect pod %s/%s: %w", r.Pod.Namespace, r.Pod.Name, err)
	}
	return nil
}

// Retain disconnects the pods that are not listed, and tells the plugins which are, so that they free what others have left.
func (s *Setup) Retain(ctx context.Context, uids []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	known := slices.Sorted(maps.Keys(s.pods))
	s.mu.Unlock()
	var errs []error
	for _, uid := range known {
		if !slices.Contains(uids, uid) {
			errs = append(errs, s.Detach(ctx, uid))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.collect(ctx)
}

// collect is GC of the specification.
func (s *Setup) collect(ctx context.Context) error {
	l, err := load(s.cfg.Networks)
	if err != nil || !l.speaks("1.1.0") || l.DisableGC {
		return nil //nolint:nilerr // without a network there is nothing to free; Ready says so
	}
	s.mu.Lock()
	valid := []attachment{}
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		valid = append(valid, attachment{uid, podLink})
	}
	s.mu.Unlock()
	var errs []error
	for _, p := range l.Plugins {
		req, err := l.request(p, asks{valid: valid})
		if err == nil {
			_, err = s.run(ctx, p.kind(), call{command: "GC"}, req)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close disconnects all pods. What plugins made for all of them, a bridge for one, is theirs and stays.
func (s *Setup) Close(ctx context.Context) error { return s.Retain(ctx, nil) }
