package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"ledge/api/httpd"
	"ledge/api/rest"
	"ledge/brain/place"
	"ledge/config"
	boardpage "ledge/page"
)

type pageOptions struct {
	kubeconfig, listen string
	acts               bool
}

func pageFlags(c *Command) {
	o := &pageOptions{}
	c.Flags.StringVar(&o.kubeconfig, "kubeconfig", "", "whose rights the page has; empty: $KUBECONFIG, ~/.kube/config, or the node of this machine")
	c.Flags.StringVar(&o.listen, "listen", "", "an address of this machine and a port; empty: ones that nobody else has")
	c.Flags.BoolVar(&o.acts, "acts", false, "with buttons that restart pods, drain boards and switch them off")
	c.Opts = o
}

// pageVerb serves the page to a browser on this machine, with the rights of who started it, until it is interrupted.
func pageVerb(ctx context.Context, c *Command) error {
	o := c.Opts.(*pageOptions)
	if len(c.args) > 0 {
		return config.Usagef("page takes no words")
	}
	client, from, err := o.client(c)
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(o.listen, ownAddress()))
	if err != nil {
		return config.Usagef("page: --listen: %v", err)
	}
	defer l.Close()
	door, err := httpd.Loopback(l)
	if err != nil {
		return config.Usagef("page: --listen: %v", err)
	}
	guard, path := boardpage.NewOnce(l.Addr().String())
	h := boardpage.New(boardpage.Config{API: client, Guard: guard, Acts: o.acts, Stopping: httpd.Stopping})
	say(c.out, "The page of %s; the link opens once:\n\n  http://%s%s\n\nIt is there until this program ends (Ctrl-C).\n", from, l.Addr(), path)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return (&httpd.Server{Handler: h, Listeners: []*httpd.Listener{door}}).Run(ctx)
}

// ownAddress is one of this machine's alone: browsers send cookies to every port of an address, so that other programs of this machine
// would be sent the one by which the page knows its visitor.
func ownAddress() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // it never fails
	at := netip.AddrFrom4([4]byte{127, b[0] | 1, b[1], b[2]%253 + 1})
	if l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String()); err == nil { // some systems have 127.0.0.1 only
		_ = l.Close()
		return netip.AddrPortFrom(at, 0).String()
	}
	return "127.0.0.1:0"
}

// client is the way to the API, and whose it is.
func (o *pageOptions) client(c *Command) (client *rest.Client, from string, err error) {
	path := o.kubeconfig
	for _, p := range filepath.SplitList(os.Getenv("KUBECONFIG")) { // of several the first that is there
		if _, err := os.Stat(p); path == "" && err == nil {
			path = p
		}
	}
	if path == "" && place.Reachable(c.RunDir) == nil {
		client, err = rest.FromSocket(place.Socket(c.RunDir))
		return client, "this board", err
	}
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, "", errors.New("there is no node here, and no home directory to find a kubeconfig in: give --kubeconfig FILE")
		}
		path = filepath.Join(home, ".kube", "config")
	}
	client, err = rest.FromKubeconfig(path)
	return client, path, err
}
