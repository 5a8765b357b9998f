package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"ledge/api/rest"
	"ledge/brain/place"
	"ledge/config"
	"ledge/host"
	"ledge/node/join"
)

type joinOpts struct {
	kubeconfig, dataDir, name string
	timeout                   time.Duration
}

func joinFlags(c *Command) {
	o := &joinOpts{}
	c.Flags.StringVar(&o.kubeconfig, "kubeconfig", "", "an administrator's way in, such as kubeadm's admin.conf; it is used once and not kept")
	c.Flags.StringVar(&o.dataDir, "data-dir", "", dataDirUsage)
	c.Flags.StringVar(&o.name, "hostname-override", "", "name of the Node instead of the host's; start the board with the same one")
	c.Flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait for the certificate")
	c.Opts = o
}

// joinVerb makes this board a node of a Kubernetes with an administrator's file.
func joinVerb(ctx context.Context, c *Command) error {
	o := c.Opts.(*joinOpts)
	if o.kubeconfig == "" {
		return config.Usagef("join: give an administrator's --kubeconfig; with a token it is 'ledge agent --server https://ADDRESS:6443 --token TOKEN --ca-hash HASH'")
	}
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host's name: %w", err)
	}
	name, err := config.NodeName(hostname, o.name)
	if err != nil {
		return err
	}
	dataDir, err := c.dataOf(o.dataDir)
	if err != nil {
		return err
	}
	switch other, err := place.Foreign(dataDir, append([]string{"kubernetes"}, place.DataMarks...)); {
	case err != nil:
		return fmt.Errorf("join: %w", err)
	case other:
		return fmt.Errorf("join: %s has something in it and no store of a node (such as %s): give the --data-dir of a node", dataDir, place.DataMarks[0])
	}
	floor := c.app.Build.ClockFloor(dataDir)
	now := func() time.Time { return later(time.Now(), floor) }
	who, err := rest.OpenAccess(o.kubeconfig, now)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	dir := join.Dir(dataDir)
	n, err := join.Open(join.Config{Dir: dir, Node: name, Now: now})
	if err != nil {
		return err
	}
	defer n.Close()
	clients, err := n.JoinBy(ctx, join.Administrator(who))
	if err != nil {
		return fmt.Errorf("join %s: %w", who.Server, err)
	}
	say(c.out, "This board is the node %s of the Kubernetes at %s.\n", name, who.Server)
	say(c.out, "Kept: its own key and certificate, in %s. Of %s nothing is kept: take the file off this board.\n", dir, o.kubeconfig)
	if !clients {
		say(c.out, "Not found: the CA of the control plane's clients (extension-apiserver-authentication in kube-system).\n")
	}
	say(c.out, "From the next start of 'ledge agent' on it works there, and its pods of another control plane are stopped then; the data of their "+
		"claims stay.\n")
	_, err = say(c.out, "Where ledge is a service: write 'server: %s' into its configuration, then 'systemctl restart ledge'. Without that line, "+
		"or by 'ledge serve', it is its own control plane again.\n", who.Server)
	return err
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// kubernetesTrouble says what keeps the board from the Kubernetes that it has joined.
func kubernetesTrouble(build config.Build, dataDir string) string {
	return join.Trouble(join.Dir(dataDir), later(time.Now(), build.ClockFloor(dataDir)))
}

// elsewhere says whether the node that ran here worked without the Kubernetes that it had joined, because it serves its own API again.
// Then nothing about that Kubernetes is a trouble.
func elsewhere(info place.Info) bool { return info.DataDir != "" && !info.Kubernetes }

// kubernetesProbe is doctor's; nothing where no Kubernetes is joined, or the node works elsewhere.
func kubernetesProbe(build config.Build, info place.Info, dataDir string) []host.Probe {
	if elsewhere(info) && info.DataDir == dataDir {
		return nil
	}
	dir := join.Dir(dataDir)
	server, joined := join.JoinedAt(dir)
	if _, err := os.Stat(filepath.Join(dir, "next.pem")); !joined && err != nil {
		return nil
	}
	p := host.Probe{Name: "kubernetes", Detail: "this board is a node at " + server, Remedy: "do what is said here"}
	if why := kubernetesTrouble(build, dataDir); why != "" {
		p.Err = errors.New(why)
	}
	return []host.Probe{p}
}

// sayKubernetes is a line of status, when there is something to say.
func sayKubernetes(c *Command) error {
	info, err := place.ReadInfo(c.RunDir)
	if err != nil {
		return err
	}
	if elsewhere(info) {
		return nil
	}
	if why := kubernetesTrouble(c.app.Build, cmp.Or(info.DataDir, config.DefaultDataDir)); why != "" {
		_, err = say(c.out, "kubernetes: %s\n", why)
	}
	return err
}
