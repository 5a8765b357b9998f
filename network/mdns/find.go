package mdns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Board is one that was found.
type Board struct {
	Name      string       `json:"name"` // such as shed-1.local
	Addresses []netip.Addr `json:"addresses"`
	Port      uint16       `json:"port,omitempty"` // of its API; none: nobody else reaches it
	Version   string       `json:"version"`
	State     string       `json:"state"`
}

const (
	mostBoards = 1000
	mostText   = 100 // bytes of what a board says of itself
	askAgain   = 700 * time.Millisecond
)

// Find asks who announces boards on these links, and listens until ctx ends. Whoever answers may say what he likes.
//
// It asks from a port of its own, which needs no rights and is answered alone, and listens beside where all are answered, if the port is
// shared: some answer there whatever they are asked from (systemd-resolved before 253).
func Find(ctx context.Context, links []Link) ([]Board, error) {
	found := finder{all: map[string]*Board{}}
	var all sync.WaitGroup
	var errs []error
	asked := false
	for _, v6 := range []bool{false, true} {
		s, err := listen(ctx, v6, 0)
		if err != nil {
			errs = append(errs, fmt.Errorf("ask for boards: %w", err))
			continue
		}
		asked = true
		all.Go(func() { found.listen(ctx, s) })
		all.Go(func() { found.ask(ctx, s, links) })
		if s, err := listen(ctx, v6, Port); err == nil {
			_ = s.join(links)
			all.Go(func() { found.listen(ctx, s) })
		}
	}
	all.Wait()
	if !asked {
		return nil, errors.Join(errs...)
	}
	return found.boards(), nil
}

// ask asks again and again for boards, and for what is not known of those that answered.
func (f *finder) ask(ctx context.Context, s *socket, links []Link) {
	for ctx.Err() == nil {
		msg := f.questions()
		for _, l := range links {
			if l.family(s.v6) {
				_ = s.write(Out{Way: Way{l.Index, s.v6}, Msg: msg})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}

func (f *finder) questions() []byte {
	m := newWriter(0, 0)
	m.question(question{nameOf("_ledge", "_tcp", domain), typePTR, classIN})
	f.mu.Lock()
	defer f.mu.Unlock()
	for instance, b := range f.all {
		if len(m.msg) > mostSent/2 {
			break
		}
		if b.Name == "" || b.Version == "" {
			m.question(question{instance, typeANY, classIN})
		} else if len(b.Addresses) == 0 {
			m.question(question{nameOf(strings.Split(b.Name, ".")...), typeANY, classIN})
		}
	}
	return m.bytes()
}

// finder gathers what was answered.
type finder struct {
	mu  sync.Mutex
	all map[string]*Board
}

func (f *finder) listen(ctx context.Context, s *socket) {
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, mostMessage+1)
	for ctx.Err() == nil {
		msg, _, _, _, err := s.read(buf)
		if err == nil {
			f.hear(msg)
		} else if ctx.Err() == nil { // such as that nobody listens at a port
			select {
			case <-ctx.Done():
			case <-time.After(retryRead):
			}
		}
	}
}

// hear takes an answer. Most have all about a board in them.
func (f *finder) hear(msg []byte) {
	m, ok := newReader(msg)
	if !ok || m.flags&isResponse == 0 {
		return
	}
	for range m.counts[0] {
		if _, ok := m.question(); !ok {
			return
		}
	}
	var list []record
	for range min(int(m.counts[1])+int(m.counts[2])+int(m.counts[3]), mostRecords) {
		r, ok := m.record()
		if !ok {
			break
		}
		if r.ttl > 0 {
			list = append(list, r)
		}
	}
	kind := nameOf("_ledge", "_tcp", domain)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range list {
		if r.name == kind && r.kind == typePTR && f.all[r.data] == nil && len(f.all) < mostBoards {
			f.all[r.data] = &Board{}
		}
	}
	hosts := map[string][]*Board{}
	for instance, b := range f.all {
		for _, r := range list {
			if r.name == instance {
				b.take(r)
			}
		}
		hosts[b.Name] = append(hosts[b.Name], b)
	}
	for _, r := range list {
		a, ok := netip.AddrFromSlice([]byte(r.data))
		if !ok || r.kind != typeA && r.kind != typeAAAA {
			continue
		}
		for _, b := range hosts[strings.Join(labels(r.name), ".")] {
			if !slices.Contains(b.Addresses, a) && len(b.Addresses) < MostAddresses {
				b.Addresses = append(b.Addresses, a)
			}
		}
	}
}

// take takes what a record says of a board's service.
func (b *Board) take(r record) {
	switch {
	case r.kind == typeSRV && len(r.data) > 6:
		b.Name, b.Port = strings.Join(labels(r.data[6:]), "."), binary.BigEndian.Uint16([]byte(r.data[4:]))
	case r.kind == typeTXT:
		for _, word := range labels(r.data + "\x00") {
			key, value, _ := strings.Cut(word, "=")
			switch value = value[:min(len(value), mostText)]; key {
			case "version":
				b.Version = value
			case "state":
				b.State = value
			}
		}
	}
}

// boards are those that were found, by name. One without a host is none.
func (f *finder) boards() (out []Board) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	by := map[string]*Board{}
	for _, b := range f.all {
		if b.Name != "" && by[b.Name] == nil {
			by[b.Name], names = b, append(names, b.Name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		all := by[name].Addresses
		sort.Slice(all, func(i, j int) bool { return all[i].Less(all[j]) })
		out = append(out, *by[name])
	}
	return out
}
