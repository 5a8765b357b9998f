package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/client-go/tools/clientcmd"
)

// node is a ledge of our own: its directories, bridge and cgroup carry its name, and go with it.
type node struct {
	binary, name, dir, run string
	bridge                 netlink.Link // where the API listens; nil: it is another's
	kubeconfig             string
	process                *exec.Cmd
}

// Some of the suite's programs do not start unless they are told where the API is, and pods are told so only when it
// listens beyond loopback. No network of the machine's is opened for that: the address, one kept for documentation, stands
// on an interface of our own with nothing behind it.
const bridgeAddress = "192.0.2.99"

func makeBridge(name string) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("add the interface %s: %w", name, err)
	}
	addr, err := netlink.ParseAddr(bridgeAddress + "/32")
	if err == nil {
		err = errors.Join(netlink.AddrAdd(bridge, addr), netlink.LinkSetUp(bridge))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("give %s the address %s: %w", name, bridgeAddress, err), netlink.LinkDel(bridge))
	}
	return bridge, nil
}

// nodeConfig evicts for disks only when they are all but full: the disk of the machine that runs the suite may be nearly so.
const nodeConfig = `shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
evictionHard: {nodefs.available: 100Mi, nodefs.inodesFree: 1%, imagefs.available: 100Mi, imagefs.inodesFree: 1%}
`

func startNode(ctx context.Context, binary, log string) (*node, error) {
	name := fmt.Sprintf("ledgecf%d", os.Getpid())
	n := &node{binary: binary, name: name, dir: "/tmp/" + name, run: "/run/" + name}
	if os.Getuid() != 0 {
		return nil, errors.New("containers need root: sudo make conformance")
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, err
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	config := filepath.Join(n.dir, "config.yaml")
	if err := os.WriteFile(config, []byte(nodeConfig), 0o600); err != nil {
		return nil, err
	}
	if n.bridge, err = makeBridge(fmt.Sprintf("lcf%d", os.Getpid())); err != nil {
		return nil, err
	}
	// Not CommandContext: after an interrupt the node still has its pods to stop. A session of its own keeps the
	// terminal's Ctrl-C from it.
	if err := n.launch(out, config, "serve", "--listen", bridgeAddress+":0"); err != nil {
		return nil, errors.Join(err, netlink.LinkDel(n.bridge))
	}
	if err := n.await(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the node did not get ready, see %s: %w", log, err), n.stop())
	}
	return n, nil
}

// launch starts the program with what every node is given.
func (n *node) launch(log *os.File, config, verb string, args ...string) error {
	n.process = exec.Command(n.binary, append([]string{"--run-dir", n.run, verb, "--data-dir", filepath.Join(n.dir, "data"), "--config", config,
		"--bridge", n.name, "--cgroup-root", "/" + n.name, "--on-term=drain", "--power-backend=none"}, args...)...)
	n.process.Stdout, n.process.Stderr = log, log
	n.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	if err := n.process.Start(); err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	return nil
}

// second is another board on this machine, which has joined the first.
func (n *node) second(ctx context.Context, log string) (*node, error) {
	name := n.name + "b"
	s := &node{binary: n.binary, name: name, dir: "/tmp/" + name, run: "/run/" + name, kubeconfig: n.kubeconfig}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	token, err := n.ledge(ctx, "token", "create")
	if err != nil {
		return nil, err
	}
	first, err := clientcmd.BuildConfigFromFlags("", n.kubeconfig)
	if err != nil {
		return nil, err
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	if err := s.launch(out, filepath.Join(n.dir, "config.yaml"), "agent", "--server", first.Host, "--token",
		lastLine(token), "--hostname-override", name, "--port", port); err != nil {
		return nil, err
	}
	if err := n.awaitNodes(ctx, 2); err != nil {
		return nil, errors.Join(fmt.Errorf("the second node did not get ready, see %s: %w", log, err), s.stop())
	}
	return s, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// await waits for a Ready node and its kubeconfig.
func (n *node) await(ctx context.Context) error {
	if err := n.awaitNodes(ctx, 1); err != nil {
		return err
	}
	conf, err := n.ledge(ctx, "kubeconfig")
	if err != nil {
		return err
	}
	n.kubeconfig = filepath.Join(n.dir, "kubeconfig")
	return os.WriteFile(n.kubeconfig, []byte(conf), 0o600)
}

// awaitNodes waits until so many are Ready.
func (n *node) awaitNodes(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		out, err := n.ledge(ctx, "get", "nodes")
		if err == nil && strings.Count(out, " Ready ") == count {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ctx.Err(), out)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func (n *node) ledge(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.binary, append([]string{"--run-dir", n.run}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("ledge %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// stop ends the node with its pods and removes what it had.
func (n *node) stop() error {
	err := n.process.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- n.process.Wait() }()
	select {
	case werr := <-done:
		err = errors.Join(err, werr)
	case <-time.After(2 * time.Minute):
		err = errors.Join(err, errors.New("the node did not stop in two minutes"), n.process.Process.Kill())
		<-done
	}
	if n.bridge != nil {
		err = errors.Join(err, netlink.LinkDel(n.bridge))
	}
	if _, rerr := n.ledge(context.Background(), "reset", "--data", "--data-dir", filepath.Join(n.dir, "data")); rerr != nil {
		return errors.Join(err, rerr)
	}
	return errors.Join(err, os.RemoveAll(n.dir), os.RemoveAll(n.run))
}
