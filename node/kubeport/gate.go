package kubeport

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// How long an answer counts, as with a kubelet; a refused token counts for less, since it may be one that is not known yet.
const (
	tokenGood  = 2 * time.Minute
	tokenBad   = 10 * time.Second
	allowedFor = 5 * time.Minute
	deniedFor  = 30 * time.Second
	awayFor    = 2 * time.Second // after a question without an answer the next ones are not asked

	mostAnswers = 512 // remembered of each sort
	maxToken    = 16 << 10
)

// Gate asks the API server who somebody is and what they may do here, and remembers its answers.
type Gate struct {
	plane Plane
	node  string
	now   func() time.Time

	good, bad       answers[api.User] // by token
	allowed, denied answers[struct{}] // by who wants what

	mu   sync.Mutex
	away time.Time // until then nothing is asked
	why  error
}

// NewGate is the gate of a board. now may be nil.
func NewGate(plane Plane, node string, now func() time.Time) *Gate {
	if now == nil {
		now = time.Now
	}
	return &Gate{plane: plane, node: node, now: now}
}

var errNobody = apierrors.NewUnauthorized("Unauthorized")

// User is who a token belongs to. It must be for the API server itself: one for another audience is refused there.
func (g *Gate) User(token string) (api.User, error) {
	if token == "" || len(token) > maxToken {
		return api.User{}, errNobody
	}
	key, now := sha256.Sum256([]byte(token)), g.now()
	if u, ok := g.good.get(key, now); ok {
		return u, nil
	}
	if _, ok := g.bad.get(key, now); ok {
		return api.User{}, errNobody
	}
	review := authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec: authenticationv1.TokenReviewSpec{Token: token}}
	var said authenticationv1.TokenReview
	if err := g.ask("whose the token is", "/apis/authentication.k8s.io/v1/tokenreviews", review, &said); err != nil {
		return api.User{}, err
	}
	who := said.Status.User
	if !said.Status.Authenticated || who.Username == "" {
		g.bad.put(key, api.User{}, now.Add(tokenBad), now)
		return api.User{}, errNobody
	}
	u := api.User{Name: who.Username, Groups: who.Groups, UID: who.UID, Extra: map[string][]string{}}
	for k, v := range who.Extra {
		u.Extra[k] = v
	}
	g.good.put(key, u, now.Add(tokenGood), now)
	return u, nil
}

// May gives the first of these subresources of the board's Node to which somebody may do this.
func (g *Gate) May(u api.User, verb string, subresources ...string) (by string, err error) {
	for _, sub := range subresources {
		switch ok, err := g.allows(u, verb, sub); {
		case err != nil:
			return "", err
		case ok:
			return sub, nil
		}
	}
	return "", apierrors.NewForbidden(api.Nodes.GR(), g.node, fmt.Errorf("user %q may not %s nodes/%s here", u.Name, verb, subresources[0]))
}

func (g *Gate) allows(u api.User, verb, sub string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.Name, Groups: u.Groups, UID: u.UID,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: api.Nodes.Resource, Subresource: sub,
			Name: g.node}}
	if len(u.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range u.Extra {
			spec.Extra[k] = v
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return false, api.NewInternal("ask what %q may do: %v", u.Name, err)
	}
	key, now := sha256.Sum256(text), g.now()
	if _, ok := g.allowed.get(key, now); ok {
		return true, nil
	}
	if _, ok := g.denied.get(key, now); ok {
		return false, nil
	}
	review := authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec: spec}
	var said authorizationv1.SubjectAccessReview
	what := fmt.Sprintf("whether %q may %s nodes/%s", u.Name, verb, sub)
	if err := g.ask(what, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, &said); err != nil {
		return false, err
	}
	if said.Status.Allowed && !said.Status.Denied {
		g.allowed.put(key, struct{}{}, now.Add(allowedFor), now)
		return true, nil
	}
	g.denied.put(key, struct{}{}, now.Add(deniedFor), now)
	return false, nil
}

// ask puts a review to the plane. While it does not answer, callers hear so at once: they would only wait in line.
func (g *Gate) ask(what, path string, in, out any) error {
	g.mu.Lock()
	away, why := g.now().Before(g.away), g.why
	g.mu.Unlock()
	if away {
		return unanswered(what, why)
	}
	// It is not the caller's context: an answer counts for the next one too.
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	err := g.plane.Ask(ctx, post, path, in, out)
	if err == nil {
		return nil
	}
	if apierrors.IsServiceUnavailable(err) { // other errors may be about this caller alone
		g.mu.Lock()
		g.away, g.why = g.now().Add(awayFor), err
		g.mu.Unlock()
	}
	return unanswered(what, err)
}

// unanswered refuses whoever cannot be judged.
func unanswered(what string, why error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("the API server does not say %s: %s", what, clipped(why)))
}

// answers are remembered until their time, no more than mostAnswers.
type answers[T any] struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]answer[T]
}

type answer[T any] struct {
	is    T
	until time.Time
}

func (a *answers[T]) get(key [sha256.Size]byte, now time.Time) (is T, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one, ok := a.kept[key]
	if !ok || !now.Before(one.until) {
		delete(a.kept, key)
		return is, false
	}
	return one.is, true
}

// put keeps an answer. When there are too many, the old ones go, and any one if none is old: it is asked for again.
func (a *answers[T]) put(key [sha256.Size]byte, is T, until, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil {
		a.kept = map[[sha256.Size]byte]answer[T]{}
	}
	if len(a.kept) >= mostAnswers {
		for k, one := range a.kept {
			if !now.Before(one.until) {
				delete(a.kept, k)
			}
		}
	}
	for k := range a.kept {
		if len(a.kept) < mostAnswers {
			break
		}
		delete(a.kept, k)
	}
	a.kept[key] = answer[T]{is, until}
}
