package services

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/network/service"
)

// Memory keeps rows on the board's disk.
type Memory interface {
	// Load reads them all. Where some are damaged, or Lag was the last word in this boot, whole is false.
	Load() (rows map[string][]byte, whole bool, err error)
	// Lag says that more is known than the rows say, until the next Save or the next boot.
	Lag()
	// Save writes rows, and removes those that are nil: all of it or nothing.
	Save(rows map[string][]byte) error
}

const (
	// hearing is how long a control plane has to answer before what was remembered counts.
	hearing = time.Second
	// delay, gap and burst spare the card: a change is written this long after it came, burst times so, and then every gap.
	delay, gap, burst = time.Second, 5 * time.Minute, 6
	// glance is how often this board's pods are looked at while the control plane is away; for grace after a restart they are what was
	// remembered, as nobody has asked them yet how they are.
	glance, grace = time.Second, 30 * time.Second
	// mostBytes is the most that is remembered.
	mostBytes = 4 << 20
)

// memory is what a Loop knows of its Memory.
type memory struct {
	away chan struct{} // capacity 1: the control plane did not answer
	stir chan struct{} // capacity 1: something was heard

	order sync.Mutex // what is remembered never comes after what was heard

	rows  map[string][]byte // as read, until they are used or something was heard
	whole bool
	lags  bool              // Lag was called
	saved map[string]uint64 // hashes of the rows on disk

	recalled time.Time                               // when what was remembered began to count; zero: it does not
	stood    bool                                    // the kernel had rules then: no reboot lies between
	own      map[types.NamespacedName]*service.Slice // of what is remembered: slices with pods of this board
	over     bool                                    // told that there is too much
}

// Keys of rows: what, and namespace/name. The first says that all was heard once.
const all, ofService, ofSlice = "all", "service ", "slice "

var seed = maphash.MakeSeed()

// load reads what is remembered.
func (l *Loop) load() {
	m := &l.memory
	rows, whole, err := l.cfg.Memory.Load()
	if err != nil {
		slog.Warn("cannot read what is remembered of Services", "err", err)
	}
	m.rows, m.whole, m.saved = rows, whole && err == nil, map[string]uint64{}
	for key, row := range rows {
		m.saved[key] = maphash.Bytes(seed, row)
	}
}

// remember answers from what is remembered while the control plane does not, and writes down what it says.
func (l *Loop) remember(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.memory.stir:
		poke(l.memory.stir)
	case <-l.memory.away:
	case <-time.After(hearing):
	}
	l.recall(ctx)
	look := time.NewTicker(glance)
	defer look.Stop()
	write := time.NewTimer(gap)
	write.Stop()
	paid := time.Now() // until when the writes so far would last, one every gap
	for due := false; ; {
		select {
		case <-ctx.Done():
			if due {
				l.save()
			}
			return nil
		case <-l.memory.stir:
			if !due {
				due = true
				write.Reset(max(delay, time.Until(paid)-(burst-1)*gap))
			}
		case <-write.C:
			if due = false; l.save() {
				paid = later(paid, time.Now()).Add(gap)
			}
		case <-look.C:
			if !l.glance() {
				look.Stop()
			}
		}
	}
}

// recall has what is remembered count, if nothing was heard yet.
func (l *Loop) recall(ctx context.Context) {
	m := &l.memory
	m.order.Lock()
	defer m.order.Unlock()
	rows := m.rows
	m.rows = nil
	if l.got[service.OfServices] || l.got[service.OfSlices] || rows[all] == nil {
		return
	}
	if f := l.cfg.Forwarder; f != nil {
		stood, err := f.Stands(ctx)
		m.stood = stood && err == nil
	}
	m.own = map[types.NamespacedName]*service.Slice{}
	for key, row := range rows {
		l.recallRow(key, row)
	}
	m.recalled = time.Now()
	l.mend()
	for what := range l.got {
		l.got[what] = m.whole || !m.stood // rules that stand know more than rows that lag
		if m.whole {
			l.heard.Told(what)
		}
	}
	slog.Warn("the control plane does not answer; Services are forwarded and named as it said last", "services", len(l.heard.Services()))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = true
	once(l.known)
	poke(l.wake)
}

// note has a change written down in time. Its caller holds order.
func (l *Loop) note() {
	if m := &l.memory; l.cfg.Memory != nil {
		if !m.lags {
			m.lags = true
			l.cfg.Memory.Lag()
		}
		poke(m.stir)
	}
}

func (l *Loop) recallRow(key string, row []byte) {
	if name, ok := strings.CutPrefix(key, ofService); ok {
		s := &service.Service{}
		if json.Unmarshal(row, s) == nil && s.Name == name {
			l.heard.SetService(s)
			l.need(s)
		}
	}
	if name, ok := strings.CutPrefix(key, ofSlice); ok {
		s := &service.Slice{}
		if json.Unmarshal(row, s) != nil {
			return
		}
		if l.heard.SetSlice(service.Key(name), s); slices.ContainsFunc(s.Endpoints, func(e service.Endpoint) bool { return e.Pod != "" }) {
			l.memory.own[service.Key(name)] = s
		}
	}
}

// glance keeps what is remembered of this board's own pods true; false: the control plane answers.
func (l *Loop) glance() bool {
	m := &l.memory
	m.order.Lock()
	defer m.order.Unlock()
	if m.recalled.IsZero() || l.fresh[service.OfSlices] {
		m.own = nil
		return false
	}
	if l.mend() {
		poke(l.wake)
	}
	return true
}

// mend has remembered endpoints of this board be where its pods are now: after a reboot they have other addresses.
func (l *Loop) mend() (changed bool) {
	m := &l.memory
	pods := map[types.NamespacedName]*corev1.Pod{}
	if l.cfg.Here != nil {
		for _, p := range l.cfg.Here() {
			pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
		}
	}
	keep := m.stood && time.Since(m.recalled) < grace
	for n, s := range m.own {
		unready := false
		l.heard.RLock()
		if of := l.heard.Service(service.Key(s.Service)); of != nil {
			unready = of.Unready
		}
		is := l.heard.Slice(n)
		l.heard.RUnlock()
		now := *s
		now.Endpoints = nil
		for _, e := range s.Endpoints {
			if e, ok := present(e, pods[types.NamespacedName{Namespace: n.Namespace, Name: e.Pod}], unready, keep); ok {
				now.Endpoints = append(now.Endpoints, e)
			}
		}
		if is != nil && slices.Equal(is.Endpoints, now.Endpoints) || is == nil && len(now.Endpoints) == 0 {
			continue
		}
		next := &now
		if len(now.Endpoints) == 0 {
			next = nil
		}
		services, _ := l.heard.SetSlice(n, next)
		l.touch(services...)
		changed = true
	}
	return changed
}

// present is a remembered endpoint as the pod is now; false: nothing is there.
func present(e service.Endpoint, p *corev1.Pod, unready, keep bool) (service.Endpoint, bool) {
	if e.Pod == "" {
		return e, true
	}
	addr := addressOf(p, e.Addr.Is4())
	if keep && (!addr.IsValid() || addr == e.Addr) {
		return e, true
	}
	if !addr.IsValid() || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return e, false
	}
	ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	e.Addr, e.Terminating, e.Serving = addr, p.DeletionTimestamp != nil, ready
	e.Ready = unready || ready && !e.Terminating
	return e, true
}

func addressOf(p *corev1.Pod, v4 bool) (none netip.Addr) {
	if p == nil {
		return none
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Is4() == v4 {
			return a
		}
	}
	return none
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// save writes down what is other than on disk, if all of it was heard, and says whether there was anything.
func (l *Loop) save() bool {
	m := &l.memory
	m.order.Lock()
	defer m.order.Unlock()
	if l.fresh != [2]bool{true, true} {
		return false
	}
	rows, over := l.rows()
	if over && !m.over {
		slog.Warn("there are more Services than a board remembers; while the control plane is away some are not known after a reboot",
			"bytes", mostBytes)
	}
	m.over = over
	hashes := map[string]uint64{}
	for key, row := range rows {
		hashes[key] = maphash.Bytes(seed, row)
	}
	maps.DeleteFunc(rows, func(key string, _ []byte) bool { old, is := m.saved[key]; return is && old == hashes[key] })
	for key := range m.saved {
		if _, is := hashes[key]; !is {
			rows[key] = nil
		}
	}
	if len(rows) == 0 && !m.lags {
		return false
	}
	if err := l.cfg.Memory.Save(rows); err != nil {
		slog.Warn("cannot remember Services; a reboot without the control plane will miss some", "err", err)
		return true
	}
	m.saved, m.lags = hashes, false
	return len(rows) > 0
}

// rows are what is heard, as it is written down. Services come first: a slice without its own is of no use.
func (l *Loop) rows() (rows map[string][]byte, over bool) {
	rows = map[string][]byte{all: []byte("1")}
	size := 0
	add := func(key string, v any) {
		row, err := json.Marshal(v)
		if size += len(key) + len(row); err != nil || size > mostBytes {
			size -= len(key) + len(row)
			over = true
			return
		}
		rows[key] = row
	}
	l.heard.RLock()
	defer l.heard.RUnlock()
	for n, s := range l.heard.Services() {
		add(ofService+n.String(), s)
	}
	l.heard.EachSlice(func(n types.NamespacedName, s *service.Slice) { add(ofSlice+n.String(), s) })
	return rows, over
}
