package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ledge/network"
)

func TestHostNetwork(t *testing.T) {
	none, err := New(Config{})
	if err != nil || none.Ready(t.Context()) != nil {
		t.Fatal(err)
	}
	if _, err := none.Attach(t.Context(), network.Pod{UID: "a"}); !errors.Is(err, ErrNoPodNetwork) {
		t.Error("without addresses:", err)
	}
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("fd00::7")}
	var fault error
	s, err := New(Config{Addresses: func() ([]netip.Addr, error) { return addrs, fault }})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	port := func(host, container uint16) []network.Port {
		return []network.Port{{HostPort: host, ContainerPort: container, Protocol: "TCP"}}
	}
	attach := func(uid string, ports []network.Port) error {
		got, err := s.Attach(ctx, network.Pod{UID: uid, Namespace: "default", Name: uid, Ports: ports})
		if err == nil && !slices.Equal(got, addrs) {
			t.Errorf("%s: addresses %v", uid, got)
		}
		return err
	}
	if err := errors.Join(s.Ready(ctx), attach("a", port(80, 80)), attach("a", port(80, 80)), attach("b", nil)); err != nil {
		t.Fatal(err)
	}
	if err := attach("c", port(80, 80)); !errors.Is(err, network.ErrPortInUse) || !strings.Contains(err.Error(), "default/a") {
		t.Error(err)
	}
	if err := attach("c", port(8080, 80)); err == nil || !strings.Contains(err.Error(), "8080/TCP to container port 80") {
		t.Error("a port that cannot be mapped was accepted:", err)
	}
	here := port(81, 81)
	here[0].HostIP = addrs[0]
	if err := attach("c", here); err == nil {
		t.Error("a port on one address was accepted")
	}
	if _, err := s.Attach(ctx, network.Pod{UID: "x", NetNS: "/run/x"}); !errors.Is(err, ErrNoPodNetwork) {
		t.Error("a namespace that nothing connects was accepted:", err)
	}
	if err := attach("", nil); err == nil {
		t.Error("a pod without UID was accepted")
	}
	if err := errors.Join(s.Detach(ctx, "a"), s.Detach(ctx, "a"), s.Detach(ctx, "unknown"), attach("c", port(80, 80))); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Retain(ctx, []string{"b"}), attach("d", port(80, 80)), s.Close(ctx), s.Close(ctx),
		attach("e", port(80, 80))); err != nil {
		t.Error(err)
	}
	addrs = nil // the cable is out
	if err := s.Ready(ctx); err == nil || !strings.Contains(err.Error(), "connect it to a network, or start it without --bridge none") {
		t.Error(err)
	}
	fault = errors.New("no luck")
	if err := attach("f", nil); !errors.Is(err, fault) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, aerr := s.Attach(gone, network.Pod{UID: "x"})
	for _, err := range []error{s.Ready(gone), aerr, s.Detach(gone, "x"), s.Retain(gone, nil), s.Close(gone)} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
