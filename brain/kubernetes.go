package brain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ledge/api/rest"
	"ledge/internal/durable"
	"ledge/node/join"
	"ledge/storage"
)

// openKubernetes is the way to a control plane of Kubernetes: by a file that somebody has made, or as what this board has joined that
// as, and joins if it has not yet.
func openKubernetes(ctx context.Context, b *Brain) error {
	if b.JoinDir != "" {
		if err := becomeNode(ctx, b); err != nil {
			return err
		}
	}
	at, err := rest.WhichKubernetes(b.Kubeconfig) // the same, whoever made the file
	if err != nil {
		return err
	}
	client, err := rest.FromKubeconfig(b.Kubeconfig)
	if err != nil {
		return err
	}
	b.uplink.plane = client
	if b.uplink.kube != nil {
		b.uplink.renewal = kubeRenewal{b.uplink.kube, client, b.TokenFile}
	}
	if err := movedTo(b, kubernetesAt+at); err != nil {
		return err
	}
	return b.remember(client)
}

// becomeNode opens what this board is at its Kubernetes.
func becomeNode(ctx context.Context, b *Brain) error {
	cfg := join.Config{Dir: b.JoinDir, Node: b.Name, Ticket: b.Ticket, Leaving: func() error { return leaveOwn(b) }, Now: func() time.Time {
		now, floor := time.Now(), b.Build.ClockFloor(b.DataDir)
		if now.Before(floor) {
			return floor
		}
		return now
	}}
	if len(b.Servers) > 0 {
		servers, err := rest.NewServers(b.Servers, &tls.Config{}, nil)
		if err != nil {
			return err
		}
		cfg.Server = servers.URL()
	}
	n, err := join.Open(cfg)
	if err != nil {
		return err
	}
	b.uplink.kube = n
	if !n.Joined() {
		if err := untilJoined(ctx, b, func() (final bool, err error) {
			err = n.Join(ctx)
			_, final = errors.AsType[*join.Refusal](err)
			return final, err
		}); err != nil {
			return err
		}
	}
	if n.RenewIn() > 0 { // one that has ended may need it
		wipeToken(b.TokenFile)
	}
	return leaveOwn(b) // 'ledge join' left that to the node that ran
}

// leaveOwn ends what this board was at a control plane of ledge.
func leaveOwn(b *Brain) error { return os.RemoveAll(filepath.Join(b.DataDir, "board")) }

// kubeRenewal has the new certificate shown from the next connection on: the old ones close when nothing goes over them, and after five
// minutes otherwise.
type kubeRenewal struct {
	renewal
	client    *rest.Client
	tokenFile string // that it may have needed for this; empty: there is none
}

func (r kubeRenewal) Renew(ctx context.Context) error {
	err := r.renewal.Renew(ctx)
	if err == nil {
		r.client.Close()
		wipeToken(r.tokenFile)
	}
	return err
}

// portDir is where the certificate of this board's port at its Kubernetes is.
func portDir(b *Brain) string { return filepath.Join(b.DataDir, "port") }

const (
	movedKey = "plane"
	ownPlane = "its own"
	// kubernetesAt begins the note of one of Kubernetes; its address and its CA follow.
	kubernetesAt = "kubernetes "
)

// movedTo notes which control plane this board belongs to. What was remembered of another one's pods is forgotten: its revisions say
// nothing about those of this one, so that its pods would never be known to be gone. What the port shows, which the one before has signed,
// is removed. It is done before the new one is asked, and again if the power is cut in between.
func movedTo(b *Brain, at string) error {
	notes := b.store.Table("uplink")
	rows, _, err := notes.All()
	if err != nil {
		return err
	}
	was := string(rows[movedKey])
	if _, err := os.Stat(filepath.Join(b.DataDir, "pki")); was == "" && (err == nil || at == ownPlane) {
		was = ownPlane // the notes begin with the first move
	}
	if was == at {
		return nil
	}
	if was != "" && !olderForm(was, at) {
		slog.Warn("this board belongs to another control plane now: pods of the one before are stopped as soon as the new one has said what "+
			"runs here, and their claims' data stay on the disk", "before", was, "now", at)
		if err := forget(b.store.Table("mirror")); err != nil {
			return fmt.Errorf("forget the pods of %s: %w", was, err)
		}
		err := os.RemoveAll(portDir(b))
		if err == nil {
			err = (durable.Disk{}).SyncDir(b.DataDir)
		}
		if err != nil {
			return fmt.Errorf("forget what %s has signed: %w", was, err)
		}
	}
	return notes.Put(movedKey, []byte(at))
}

// olderForm says whether a note means the same control plane, in the form of a build before: "kubeconfig" where somebody had made that
// file, and the address without the CA where the board had joined. It is written anew, and no pod is forgotten for it.
func olderForm(was, at string) bool {
	address, _, ok := strings.Cut(strings.TrimPrefix(at, kubernetesAt), " ")
	if !ok || !strings.HasPrefix(at, kubernetesAt) {
		return false
	}
	return was == "kubeconfig" || strings.TrimSuffix(was, "/") == kubernetesAt+address
}

func forget(table *storage.Table) error {
	rows, damaged, err := table.All()
	if err != nil {
		return err
	}
	for key := range rows {
		rows[key] = nil
	}
	for _, key := range damaged {
		rows[key] = nil
	}
	return table.PutAll(rows)
}
