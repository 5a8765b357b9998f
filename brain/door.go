package brain

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/node/join"
	"ledge/node/kubeport"
	"ledge/pki"
)

// listen takes this board's port.
func (u *uplink) listen(ctx context.Context, b *Brain) error {
	if b.DoorPort == 0 {
		b.Status.Port = 0
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(b.DoorPort))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--port %d: it is taken by another program, maybe a kubelet; give another one, or 0 for none", b.DoorPort)
	}
	if err != nil {
		return fmt.Errorf("--port %d: %w", b.DoorPort, err)
	}
	u.port, b.Status.Port = l, uint16(b.DoorPort)
	return nil
}

// openDoor lets the control plane, and nobody else, reach the pods of this board: logs, exec, attach, forwarded ports, figures.
func (u *uplink) openDoor(b *Brain, like httpd.Config) error {
	if u.identity == nil {
		return u.openKubeDoor(b, like)
	}
	h, err := httpd.NewDoor(httpd.Config{Client: like.Client, Streams: like.Streams, Exec: like.Exec, Forward: like.Forward,
		Metrics: like.Metrics}, pki.PlaneUser)
	if err != nil {
		return err
	}
	called, hand := httpd.Handed(planeUser)
	u.door, u.hand = &httpd.Server{Handler: h, Listeners: []*httpd.Listener{called}}, hand
	if u.port == nil {
		return nil
	}
	l, err := httpd.WrapTLS(u.port, u.identity.Server())
	if err != nil {
		return err
	}
	u.door.Listeners = append(u.door.Listeners, l)
	return nil
}

// openKubeDoor opens the port of a board that has joined by a kubeconfig: Kubernetes says who gets in, and to what.
func (u *uplink) openKubeDoor(b *Brain, like httpd.Config) (err error) {
	if u.port == nil {
		return nil
	}
	kept := ""
	var self func() []*x509.Certificate
	if b.JoinDir != "" {
		kept, self = join.ClientCA(b.JoinDir), u.kube.Chain
	}
	u.kept, err = kubeport.Open(kubeport.Config{Plane: u.plane, Node: b.Name, Dir: portDir(b),
		ClientCAFile: b.ClientCAFile, KeptCAFile: kept, Self: self, Addresses: b.agent.Addresses})
	if err != nil {
		return err
	}
	h, err := httpd.NewKubeDoor(httpd.Config{Client: like.Client, Streams: like.Streams, Exec: like.Exec, Forward: like.Forward,
		Metrics: like.Metrics, Known: u.kept.Known,
		Authenticate: func(token string, _ ...string) (api.User, error) { return u.kept.User(token) }}, u.kept)
	if err != nil {
		return err
	}
	l, err := httpd.WrapTLS(u.port, u.kept.TLS())
	if err != nil {
		return err
	}
	u.door = &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l.WithTokens()}}
	return nil
}
