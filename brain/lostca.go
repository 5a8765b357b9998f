package brain

import (
	"context"
	"encoding/hex"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"ledge/storage"
)

// A certificate authority that is not the one of the store (pki/ was emptied, or is another board's) shuts out every board and every
// kubeconfig. The node works all the same, so that its own board is not lost as well; it says so until somebody takes the new one as
// it is ('ledge resume'), or puts the old one back.

const caPinKey = "caPin"

const lostCAWords = "the certificate authority of this control plane is lost, and a new one was made: no board that has joined and no kubeconfig " +
	"made before is let in. Put pki/ in the data directory back from a backup; or let the boards join again (ledge token create), " +
	"hand out new kubeconfigs, and say so with 'ledge resume'"

// caLost says whether the authority is another than the store's. A store that has boards and names no authority, from an earlier version,
// has lost it if this one was made just now.
func caLost(known, pin string, made bool, boards int) bool {
	if known == "" {
		return made && boards > 0
	}
	return known != pin
}

// lookAtCA compares the authority with what the store remembers, and has it remember one that it can.
func (p *plane) lookAtCA(ctx context.Context) error {
	settings := p.b.store.Table("settings")
	rows, _, err := settings.All()
	if err != nil {
		return err
	}
	pin := p.ca.Pin()
	own := hex.EncodeToString(pin[:])
	if caLost(string(rows[caPinKey]), own, p.ca.Made(), len(p.joins.Boards())) {
		slog.Error(lostCAWords)
		p.caLost.Store(true)
		return nil
	}
	if string(rows[caPinKey]) == own {
		return nil
	}
	return p.b.debts.orOwe(ctx, "remember the certificate authority", func(context.Context) error { return p.keepCA(settings) })
}

func (p *plane) keepCA(settings *storage.Table) error {
	pin := p.ca.Pin()
	return settings.Put(caPinKey, []byte(hex.EncodeToString(pin[:])))
}

// acceptCA takes the authority as it is. Without a control plane there is none to take.
func (p *plane) acceptCA() error {
	if p == nil || !p.caLost.Load() {
		return nil
	}
	if err := p.keepCA(p.b.store.Table("settings")); err != nil {
		return err
	}
	p.caLost.Store(false)
	slog.Info("the new certificate authority is taken as it is")
	return nil
}

// lost says what is wrong with the authority; "" when nothing is, or there is no control plane here.
func (p *plane) lost() string {
	if p != nil && p.caLost.Load() {
		return lostCAWords
	}
	return ""
}

// AuthorityLost is what such a node says.
const AuthorityLost corev1.NodeConditionType = "AuthorityLost"

func authorityCondition(why string) corev1.NodeCondition {
	if why != "" {
		return corev1.NodeCondition{Type: AuthorityLost, Status: corev1.ConditionTrue, Reason: "NewAuthority", Message: why}
	}
	return corev1.NodeCondition{Type: AuthorityLost} // nothing is said
}
