package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/rest"
	"ledge/images"
	imagesfake "ledge/images/fake"
	"ledge/lab/bench/measure"
	networkfake "ledge/network/fake"
	"ledge/network/plan"
	"ledge/node"
	"ledge/pki"
	enginefake "ledge/runtime/fake"
)

// board is one agent: all of it but what it would do to a machine.
type board struct {
	name   string
	client *rest.Client
	agent  *node.Agent
	events *api.Recorder
}

// imageName is what all pods run, and all boards have.
const imageName = "bench.local/app:v1"

// label of the boards, which pods are placed by.
const label = "bench.local/fleet"

// steady is a board's hardware, of which nothing ever changes.
type steady struct{ name string }

func (s steady) Sample() (node.Sample, error) {
	fs := node.Filesystem{Capacity: 32 << 30, Available: 20 << 30, Inodes: 1 << 20, InodesFree: 1 << 19}
	return node.Sample{Hostname: s.name, MachineID: s.name, SystemUUID: s.name, BootID: "1", KernelVersion: "6.12.0", OSImage: "Bench", OS: "linux",
		Arch: "arm64", CPUs: 4, MemoryTotal: 1 << 30, MemoryAvailable: 700 << 20, NodeFS: fs, ImageFS: fs, PIDMax: 32768, PIDUsed: 200,
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 10})}}, nil
}

// rooted makes the root file systems that the fake images only name: an agent looks into them.
type rooted struct{ *imagesfake.Store }

func (r rooted) Mount(ctx context.Context, imageID, key string) (string, error) {
	dir, err := r.Store.Mount(ctx, imageID, key)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// join gets a certificate as 'ledge agent' does.
func join(ctx context.Context, server string, token pki.JoinToken, id *pki.Identity) error {
	request, err := id.Request()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+httpd.JoinPath, bytes.NewReader(request))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/pkcs10")
	req.Header.Set("Authorization", "Bearer "+token.Proof())
	servers, err := rest.NewServers([]string{server}, id.Join(token.CA), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: servers.Transport()}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	cert, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, cert)
	}
	if err != nil {
		return err
	}
	return id.Accept(cert, token.CA, resp.TLS.PeerCertificates)
}

// newBoard joins the n-th board.
func newBoard(ctx context.Context, dir string, n int, server string, token pki.JoinToken) (*board, error) {
	b := &board{name: fmt.Sprintf("fleet-%d", n)}
	dir = filepath.Join(dir, b.name)
	id, err := pki.OpenIdentity(pki.IdentityConfig{Dir: filepath.Join(dir, "board"), Node: b.name})
	if err != nil {
		return nil, err
	}
	for wait := time.Second; ; wait *= 2 { // as 'ledge agent' does: a busy machine may not answer in time
		if err = join(ctx, server, token, id); err == nil {
			break
		}
		if ctx.Err() != nil || wait > 16*time.Second {
			return nil, fmt.Errorf("join %s: %w", b.name, err)
		}
		fmt.Fprintf(os.Stderr, "  %s has to ask again: %v\n", b.name, err)
		if err := measure.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
	servers, err := rest.NewServers([]string{server}, id.Client(), nil)
	if err != nil {
		return nil, err
	}
	if b.client, err = rest.New(rest.Config{Servers: servers}); err != nil {
		return nil, err
	}
	resolv := filepath.Join(dir, "resolv.conf")
	store := &imagesfake.Store{Dir: filepath.Join(dir, "roots")}
	_, err = store.Add(images.Image{Names: []string{imageName}, Size: 1 << 20})
	err = errors.Join(err, os.WriteFile(resolv, []byte("nameserver 192.0.2.1\n"), 0o600))
	for _, d := range []string{"data", "run"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	if err != nil {
		return nil, err
	}
	network, err := networkfake.NewMachine(plan.ChooseCIDR(nil))
	if err != nil {
		return nil, err
	}
	b.events = api.NewRecorder(b.client, "kubelet", b.name)
	b.agent, err = node.New(node.Config{Name: b.name, Version: "v0.0.0-bench", Client: b.client, Engine: enginefake.New(enginefake.Config{}),
		Images: rooted{store}, Network: networkfake.New(network), Board: steady{b.name}, Events: b.events,
		Registration: node.Registration{Labels: map[string]string{label: "yes"}},
		DataDir:      filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run"), ResolvConf: resolv})
	return b, err
}

// Run works until ctx ends.
func (b *board) Run(ctx context.Context) error {
	defer b.client.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.agent.Run(ctx) })
	g.Go(func() error { return b.events.Run(ctx) })
	return g.Wait()
}
