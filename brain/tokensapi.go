package brain

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api/board"
	"ledge/pki"
)

func (p *plane) listTokens(w http.ResponseWriter, _ *http.Request) error {
	list, err := p.joins.List()
	if err != nil {
		return err
	}
	return answer(w, list)
}

func (p *plane) createToken(w http.ResponseWriter, r *http.Request) error {
	if p.listener == nil {
		return apierrors.NewBadRequest("this node has no TLS address: start it with --listen 0.0.0.0:6443")
	}
	q := r.URL.Query()
	ttl, err := time.ParseDuration(q.Get("ttl"))
	if err != nil {
		return apierrors.NewBadRequest("ttl: how long the token is good for, such as 1h")
	}
	uses, err := strconv.Atoi(q.Get("uses"))
	if err != nil {
		return apierrors.NewBadRequest("uses: how many boards may join")
	}
	t, err := p.joins.Create(pki.TokenTerms{TTL: ttl, Uses: uses, Node: q.Get("node")})
	if err != nil {
		return refused(err)
	}
	urls, local := p.reachableAt()
	return answer(w, board.NewToken{Token: t.String(), Server: urls, Local: local})
}

func (p *plane) deleteToken(w http.ResponseWriter, r *http.Request) error {
	if err := p.joins.Delete(r.URL.Query().Get("id")); err != nil {
		return refused(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// refused makes what the authority refuses a caller's mistake, and leaves everything else ours.
func refused(err error) error {
	if r, ok := errors.AsType[*pki.Refusal](err); ok {
		return apierrors.NewBadRequest(r.Why)
	}
	return err
}
