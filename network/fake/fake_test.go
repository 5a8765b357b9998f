package fake

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"ledge/network"
	"ledge/network/networktest"
	"ledge/network/service"
)

func TestSuite(t *testing.T) {
	networktest.Run(t, func(t *testing.T, cidr, cidr6 netip.Prefix) networktest.Machine {
		m, err := NewMachine(cidr, cidr6)
		if err != nil {
			t.Fatal(err)
		}
		return networktest.Machine{
			Start: func(*testing.T) network.Setup { return New(m) },
			NetNS: func(_ *testing.T, name string) string { return "/fake/" + name },
			Left: func(*testing.T) []string {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.book.Others(nil)
			},
		}
	})
}

func TestScript(t *testing.T) {
	m, err := NewMachine(netip.MustParsePrefix("10.42.0.0/24"))
	if err != nil {
		t.Fatal(err)
	}
	s := New(m)
	m.SetReady(network.ErrBlocked)
	if err := s.Ready(t.Context()); !errors.Is(err, network.ErrBlocked) {
		t.Error(err)
	}
	m.SetReady(nil)
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Attach(t.Context(), network.Pod{UID: "a"}); err != nil {
		t.Fatal(err)
	}
	if got := m.Pods(); !slices.Equal(got, []string{"a"}) {
		t.Error(got)
	}
}

func TestForwarder(t *testing.T) {
	networktest.RunForwarder(t, func(_ *testing.T, do func(networktest.Board)) {
		k := &Kernel{}
		do(networktest.Board{
			Start: func() network.Forwarder { return NewForwarder(k) },
			Holds: func(all []network.Service) error {
				want, _ := service.Allot(all)
				if have, _ := service.Allot(k.Services()); !reflect.DeepEqual(have, want) {
					return fmt.Errorf("forwards %+v, want %+v", have, want)
				}
				return nil
			},
			Left: func() (out []string) {
				for _, s := range k.Services() {
					out = append(out, s.Name)
				}
				return out
			},
		})
	})
}
