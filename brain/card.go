package brain

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ledge/config"
	"ledge/firstboot"
	"ledge/firstboot/card"
	"ledge/host"
	"ledge/images"
	"ledge/images/archives"
	"ledge/node"
	"ledge/pki"
	"ledge/storage"
)

// KubeconfigName is the file on the boot partition that kubectl on a laptop is given.
const KubeconfigName = "kubeconfig"

// archived is what image archives of a directory need.
type archived struct {
	card   card.Board
	rows   *storage.Table // of what was imported
	images Images
	agent  *node.Agent
}

// boot imports what lies on the boot partition, and says there what could not be.
func (a archived) boot(ctx context.Context, dir string) error {
	var bad []string
	err := a.load(ctx, dir, func(name string, err error) {
		m := firstboot.Mistake{File: filepath.Join("images", name), What: strings.TrimPrefix(card.ArchiveWords, ": ") + firstboot.OneLine(err)}
		bad = append(bad, m.String())
	})
	boot, _, perr := a.card.Places()
	if dir != filepath.Join(boot, "images") {
		bad = nil
	}
	if err = errors.Join(err, perr); err == nil && ctx.Err() == nil {
		a.card.Tell(boot, card.ArchiveWords, bad...)
	}
	return err
}

// kubeconfigOnCard keeps the administrator's way in on the boot partition, of a board that nobody can log in to. Who has the card
// has the CA's key on its other partition all the same. The address follows the network's: a board may get another tomorrow.
func (p *plane) kubeconfigOnCard(ctx context.Context) error {
	boot, err := os.ReadFile(filepath.Join(p.b.BootState, config.BootWhereFile))
	if err != nil {
		return err
	}
	said := ""
	for at, wait := "", time.Second; ; wait = 15 * time.Second {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		url, err := p.outward()
		if err == nil && url != "" {
			// The name that is in the server's certificate wherever it is reached: that was made before there was an address.
			var data []byte
			if data, err = p.ca.Kubeconfig(url, pki.ServerIdentity); err == nil {
				err = host.TellOnCard(string(boot), KubeconfigName, data)
			}
		}
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			slog.Warn("there is no kubeconfig on the boot partition", "err", err)
		case err == nil && url != "" && url != at:
			at, said = url, ""
			slog.Info("the boot partition has a kubeconfig", "server", at)
		}
	}
}

// load imports what lies there.
func (a archived) load(ctx context.Context, dir string, failed func(name string, err error)) error {
	d := &archives.Dir{Path: dir, Failed: failed, Rows: a.rows,
		Load: func(ctx context.Context, r io.Reader) ([]images.Image, error) {
			list, err := a.images.Import(ctx, r)
			if err == nil {
				a.agent.ImagesChanged()
			}
			return list, err
		}}
	return d.Run(ctx)
}

func (c Config) card() card.Board { return card.Board{State: c.BootState} }
