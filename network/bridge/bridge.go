// Package bridge connects pods by a Linux bridge: a veth pair and an IPv4 address per pod, one nftables table for
// masquerading and host ports. It speaks netlink only and runs no programs.
//
//	pod: eth0 10.42.0.2 ──veth── lv1f0c… ┐                  ┌ masquerade ── eth0, wlan0 ...
//	pod: eth0 10.42.0.3 ──veth── lv92ab… ┴ ledge0 10.42.0.1 ┴ DNAT of host ports
//
// What is wanted stands in a plan.Book and, so that a restarted process gives the same addresses, in small files on
// tmpfs; the kernel is made to agree with it. The rules are compiled as data (rules.go) and replaced as a whole,
// atomically. Everything that is made carries a name derived from the bridge's or ledge's mark in its alias, and
// nothing without it is ever removed.
package bridge

import (
	"context"
	"errors"
	"fmt"
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

	"ledge/network"
	"ledge/network/netns"
	"ledge/network/nft"
	"ledge/network/plan"
)

// Config says which bridge. RunDir is required.
type Config struct {
	// Bridge is the interface to make; ledge0 if empty.
	Bridge string
	// PodCIDR is the IPv4 network of the pods; its first address is the board's. It may be zero to take down, with
	// Retain or Close, what an earlier process recorded under RunDir.
	PodCIDR netip.Prefix
	// PodCIDR6 is the IPv6 network of the pods; zero: they have no IPv6 addresses.
	PodCIDR6 netip.Prefix
	// RunDir is a directory on tmpfs: the records in it die with the boot.
	RunDir string
	// MTU of bridge and pods; if zero that of the default route's interface, or 1500.
	MTU int
	// NetNS is the path of the network namespace that plays the host; if empty, that of this process.
	NetNS string
	// Questions of pods for names are the board's own, whatever pod has its port 53.
	Questions bool
	// BootID of the running kernel; if empty it is read. Records of another boot are void.
	BootID string
}

// Setup implements network.Setup. It is safe for concurrent use.
type Setup struct {
	cfg   Config
	table string

	queue   sync.Mutex  // of leaving; taken last
	leaving []departure // who waits for mu

	mu         sync.Mutex
	book       *plan.Book // nil: no pod CIDR is known
	rec        records
	forwarding forwarding
	routed     []netip.Prefix // other boards' pod networks that routes of ours may lead to
	reached    []netip.Prefix // and those that some route leads to: what goes there keeps its address
	applied    uint32         // nftables generation at which the kernel's tables were have; 0: unknown
	have       []table
	senders    senderCheck
	made       bool
	guard      func(context.Context, network.Pod, []netip.Addr) error // nil: nobody is asked
	// framesFiltered: br_netfilter shows frames between pods to the rules.
	framesFiltered bool
	others         firewalls
	news           news
	unchanged      bool // interfaces and addresses are as they were when all was in order
	nft            nft.Conn
	warned         bool        // of conntrack
	stale          staleFlows  // of pods that have gone; later forgets them
	later          *time.Timer // nil when nothing is stale
}

var (
	_ network.Setup   = (*Setup)(nil)
	_ network.Guarded = (*Setup)(nil)
)

// The lengths are checked apart: {1,128} compiles to 128 states, which every start of this binary would pay for.

// nameShape keeps names that are good as interface, file, sysctl and (with - as .) nftables table name.
var nameShape = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// uidShape is what fits in an interface's alias, beside addresses and the bridge's name.
var uidShape = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// CheckName says what a bridge can be called.
func CheckName(name string) error {
	if !nameShape.MatchString(name) || len(name) > 15 {
		return fmt.Errorf("%q: want a letter, then up to 14 letters, digits, - or _", name)
	}
	return nil
}

// New reads what an earlier process of this boot recorded. It changes nothing.
func New(cfg Config) (*Setup, error) {
	if cfg.Bridge == "" {
		cfg.Bridge = "ledge0"
	}
	if err := CheckName(cfg.Bridge); err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	if cfg.RunDir == "" {
		return nil, errors.New("network: RunDir is required")
	}
	dir, err := filepath.Abs(cfg.RunDir)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	cfg.RunDir = dir
	if cfg.MTU != 0 && (cfg.MTU < 576 || cfg.MTU > 65535) {
		return nil, fmt.Errorf("bridge %s: MTU %d is not between 576 and 65535", cfg.Bridge, cfg.MTU)
	}
	if cfg.BootID == "" {
		id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return nil, fmt.Errorf("read boot id: %w", err)
		}
		cfg.BootID = strings.TrimSpace(string(id))
	}
	table := tablePrefix + strings.ReplaceAll(cfg.Bridge, "-", ".")
	s := &Setup{cfg: cfg, table: table, others: firewalls{bridge: cfg.Bridge, own: table},
		forwarding: forwarding{bridge: cfg.Bridge, table: table},
		rec:        records{dir: cfg.RunDir, boot: cfg.BootID, bridge: cfg.Bridge}}
	return s, s.load()
}

// load makes the book from the records and from the kernel: the alias of a pod's interface carries UID and address.
func (s *Setup) load() error {
	shared, found := s.rec.readShared()
	s.forwarding.v4, s.forwarding.v6, s.forwarding.uplinks6 = shared.Forwarding, shared.Forward6, shared.Uplinks6
	s.routed, s.reached = shared.Routes, shared.Routes
	if !s.cfg.PodCIDR.IsValid() {
		s.cfg.PodCIDR, s.cfg.PodCIDR6 = shared.CIDR, shared.CIDR6
	}
	if !s.cfg.PodCIDR.IsValid() {
		return nil
	}
	var err error
	if s.book, err = plan.NewBook(s.cfg.PodCIDR, s.cfg.PodCIDR6); err != nil {
		return err
	}
	known, err := s.rec.readPods()
	if err != nil {
		return err
	}
	err = s.onHost(func(h *host) error {
		link, err := h.LinkByName(s.cfg.Bridge)
		if notFound(err) {
			return nil
		}
		if err != nil || s.ownBridge(link) != nil {
			return err // a bridge of others is refused when it matters
		}
		if !found {
			if err := s.forwarding.recall(h); err != nil {
				return err
			}
		}
		ports, err := h.podLinks(link)
		for _, p := range ports {
			known = append(known, plan.Entry{Pod: network.Pod{UID: p.uid}, Addr: p.addr, Addr6: p.addr6})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look for pods on bridge %s: %w", s.cfg.Bridge, err)
	}
	for _, e := range known { // records come first and know more
		if old, had := s.book.Get(e.Pod.UID); had && old.Addr == e.Addr {
			continue
		}
		// What contradicts (the CIDR was changed, a record is damaged) gets a new address when it is attached.
		_ = s.book.Restore(e)
	}
	return nil
}

// Ready makes or repairs the bridge, forwarding and the rules. It is cheap when nothing is wrong.
func (s *Setup) Ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.onHost(func(h *host) error {
		if err := s.share(h); err != nil {
			return err
		}
		return s.others.look(h, s.book.CIDR(), s.applied)
	})
}

// record keeps what an end has to take back, and what a start goes on with.
func (s *Setup) record() error {
	return s.rec.writeShared(sharedRecord{CIDR: s.book.CIDR(), CIDR6: s.book.CIDR6(), Forwarding: s.forwarding.v4,
		Forward6: s.forwarding.v6, Uplinks6: s.forwarding.uplinks6, Routes: s.routed})
}

// share makes what all pods share.
func (s *Setup) share(h *host) (err error) {
	if s.book == nil {
		return fmt.Errorf("bridge %s: no pod CIDR is configured", s.cfg.Bridge)
	}
	// Asked before anything is looked at: what changes from here on is seen by the next look.
	if s.news.any() || !s.made {
		s.unchanged, s.forwarding.addressed = false, map[int][]string{}
	}
	if err := s.ensureBridge(h); err != nil {
		return fmt.Errorf("bridge %s: %w", s.cfg.Bridge, err)
	}
	if err := h.ensureRouted(s); err != nil {
		return fmt.Errorf("bridge %s: have pods reach each other by the board: %w", s.cfg.Bridge, err)
	}
	if err := s.forwarding.ensure(h, s.record); err != nil {
		return fmt.Errorf("bridge %s: forward packets: %w", s.cfg.Bridge, err)
	}
	if s.book.Dual() {
		err = s.forwarding.ensure6(h, s.record, func() error { return s.ensureRules(h) })
	} else {
		err = s.leaveIPv6(h)
	}
	if err != nil {
		return fmt.Errorf("bridge %s: forward IPv6 packets: %w", s.cfg.Bridge, err)
	}
	if err := s.ensureRules(h); err != nil {
		return fmt.Errorf("bridge %s: %w", s.cfg.Bridge, err)
	}
	s.made, s.unchanged = true, true
	return nil
}

// Attach connects a pod.
func (s *Setup) Attach(ctx context.Context, pod network.Pod) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !uidShape.MatchString(pod.UID) || len(pod.UID) > 128 {
		return nil, fmt.Errorf("connect pod %s/%s: %q is no UID", pod.Namespace, pod.Name, pod.UID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made {
		if err := s.onHost(s.share); err != nil {
			return nil, err
		}
	}
	old, _ := s.book.Get(pod.UID)
	e, fresh, err := s.book.Claim(pod)
	if err != nil {
		return nil, err
	}
	if err := s.connect(ctx, e, old); err != nil {
		err = fmt.Errorf("connect pod %s/%s: %w", pod.Namespace, pod.Name, err)
		if fresh { // nothing half-made stays
			return nil, errors.Join(err, s.disconnect([]string{pod.UID}))
		}
		return nil, errors.Join(err, s.book.Restore(old))
	}
	return e.Addrs(), nil
}

// Guard implements network.Guarded.
func (s *Setup) Guard(ask func(context.Context, network.Pod, []netip.Addr) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard = ask
}

// connect makes true what the book says of a pod; old is what it said before.
func (s *Setup) connect(ctx context.Context, e, old plan.Entry) error {
	ns, err := netns.Open(e.Pod.NetNS)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	return s.onHost(func(h *host) error {
		if err := notHost(ns); err != nil {
			return err
		}
		if err := h.portsFree(newPorts(e, old), s.book.Dual()); err != nil {
			return err
		}
		if s.guard != nil {
			if err := s.guard(ctx, e.Pod, e.Addrs()); err != nil {
				return err
			}
			if err := h.dropWaiting(s.cfg.Bridge, e.Addrs()); err != nil {
				return err
			}
		}
		if err := s.ensureLink(h, e, ns); err != nil {
			return err
		}
		if err := configurePod(ns, e, s.book); err != nil {
			return fmt.Errorf("inside %s: %w", e.Pod.NetNS, err)
		}
		if err := h.waitCarrier(linkName(s.cfg.Bridge, e.Pod.UID)); err != nil {
			return err
		}
		if err := s.rec.writePod(e); err != nil {
			return err
		}
		if err := s.ensureRules(h); err != nil {
			return err
		}
		var stale staleFlows
		stale.addPorts(newPorts(e, old))
		if slices.ContainsFunc(e.Addrs(), func(a netip.Addr) bool { return slices.Contains(s.stale.addrs, a) }) {
			stale.addrs, s.stale.addrs = s.stale.addrs, nil // before they are another pod's connections
		}
		s.forget(h, stale)
		return nil
	})
}

// dropWaiting throws away what was sent to addresses before anybody had them. It has passed the rules of that time, and waits at the bridge
// for somebody to answer for the address: a pod would get it, and its answer would make a connection of it that later rules let through.
func (h *host) dropWaiting(bridge string, addrs []netip.Addr) error {
	br, err := h.LinkByName(bridge)
	if err != nil {
		return nil // ensureLink says so
	}
	for _, a := range addrs {
		err := h.NeighDel(&netlink.Neigh{LinkIndex: br.Attrs().Index, IP: a.AsSlice()})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("drop what waits for %s: %w", a, err)
		}
	}
	return nil
}

// newPorts are the ports of e that old did not have.
func newPorts(e, old plan.Entry) []network.Port {
	var out []network.Port
	for _, p := range e.Pod.Ports {
		known := false
		for _, q := range old.Pod.Ports {
			known = known || p == q
		}
		if !known {
			out = append(out, p)
		}
	}
	return out
}

// departure is a pod that is to be disconnected.
type departure struct {
	uid  string
	done chan error // capacity 1
}

// Detach disconnects a pod, and in the same go those that came to the lock meanwhile: when a board goes down many do, and the
// kernel is asked for all tracked connections each time. A failure is told to all of them: who is off already finds nothing to
// do at the next try.
func (s *Setup) Detach(ctx context.Context, uid string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	own := departure{uid, make(chan error, 1)}
	s.queue.Lock()
	s.leaving = append(s.leaving, own)
	s.queue.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Lock()
	all := s.leaving
	s.leaving = nil
	s.queue.Unlock()
	uids := make([]string, len(all))
	for i, d := range all {
		uids[i] = d.uid
	}
	err := s.disconnect(uids)
	for _, d := range all {
		d.done <- err
	}
	return <-own.done // filled by now: by whoever held the lock before, or here
}

// Pods counts those that are connected.
func (s *Setup) Pods() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.book == nil {
		return 0
	}
	return len(s.book.Entries())
}

// Retain detaches every pod that is not listed.
func (s *Setup) Retain(ctx context.Context, uids []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.book == nil {
		return nil
	}
	return s.disconnect(s.book.Others(uids))
}

// disconnect takes pods off: their rules first, so that no packet is sent where nobody is. A pod that cannot be
// taken off stays in the book, for the next try.
func (s *Setup) disconnect(uids []string) error {
	if s.book == nil {
		return nil
	}
	var entries []plan.Entry
	for _, uid := range uids {
		if e, ok := s.book.Get(uid); ok {
			entries = append(entries, e)
			s.book.Release(uid)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return s.onHost(func(h *host) error {
		errs, stale := []error{s.ensureRules(h)}, staleFlows{}
		for _, e := range entries {
			if err := s.removeLink(h, e.Pod.UID); err != nil {
				errs = append(errs, fmt.Errorf("disconnect pod %s: %w", e.Pod.UID, err), s.book.Restore(e))
				continue
			}
			stale.addrs = append(stale.addrs, e.Addrs()...)
			stale.addPorts(e.Pod.Ports)
			errs = append(errs, s.rec.removePod(e.Pod.UID))
		}
		s.stale.addrs = append(s.stale.addrs, stale.addrs...)
		stale.addrs = nil // a host port may be taken again at once, addresses rest
		s.forget(h, stale)
		if len(s.stale.addrs) > 0 && s.later == nil {
			s.later = time.AfterFunc(forgetAfter, s.forgetStale)
		}
		return errors.Join(errs...)
	})
}

// forgetAfter is how long the connections of pods that have gone stay tracked, so that the kernel is asked once for many: it
// goes through all connections of the machine, and a board that goes down waits for each pod.
const forgetAfter = time.Second

func (s *Setup) forgetStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	stale := s.stale
	s.stale, s.later = staleFlows{}, nil
	if len(stale.addrs) == 0 {
		return
	}
	_ = s.onHost(func(h *host) error { // without a host there are no connections either
		s.forget(h, stale)
		return nil
	})
}

// Close removes every trace, also of an earlier process with the same RunDir and Bridge.
func (s *Setup) Close(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made, s.applied, s.others.unblocked = false, 0, 0
	s.news.stop()
	err := s.onHost(func(h *host) error {
		link, err := h.LinkByName(s.cfg.Bridge)
		if err == nil && s.ownBridge(link) != nil {
			return nil // the name belongs to others, and the table of that name with it
		}
		return s.removeAll(h)
	})
	s.nft.Drop()
	if err != nil {
		return fmt.Errorf("remove bridge %s: %w", s.cfg.Bridge, err)
	}
	return s.rec.remove()
}

func (s *Setup) removeAll(h *host) error {
	var errs []error
	stale := s.stale
	s.stale = staleFlows{}
	if s.book != nil {
		for _, e := range s.book.Entries() {
			if err := s.removeLink(h, e.Pod.UID); err != nil {
				errs = append(errs, fmt.Errorf("disconnect pod %s: %w", e.Pod.UID, err))
				continue
			}
			s.book.Release(e.Pod.UID)
			stale.addrs = append(stale.addrs, e.Addrs()...)
			stale.addPorts(e.Pod.Ports)
		}
	}
	errs = append(errs, s.removeRoutesOf(h), s.removeBridge(h), h.deleteTable(s.table))
	s.forget(h, stale)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.Join(s.forwarding.restore(h), s.forwarding.restore6(h))
}
