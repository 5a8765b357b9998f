package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// tokens are the service-account tokens that pods of this board hold. Each is asked for once and again when four
// fifths of its life are over; none is kept on the board but in the volumes of its pod.
type tokens struct {
	client api.Client

	mu   sync.Mutex
	held map[tokenKey]heldToken
}

type tokenKey struct {
	pod      types.UID
	audience string
	seconds  int64
}

type heldToken struct {
	text    string
	life    time.Duration
	expires time.Time
}

// fresh: it need not be renewed yet. One that seems to live longer than it was made for was made under another clock.
func (t heldToken) fresh(now time.Time) bool {
	left := t.expires.Sub(now)
	return left > t.life/5 && left <= t.life+time.Minute
}

func newTokens(c api.Client) *tokens {
	return &tokens{client: c, held: map[tokenKey]heldToken{}}
}

// get is a token for a pod that is good for a while yet. While the API is away the old one goes on.
func (t *tokens) get(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{pod.UID, p.Audience, 3600}
	if p.ExpirationSeconds != nil {
		key.seconds = *p.ExpirationSeconds
	}
	t.mu.Lock()
	have, ok := t.held[key]
	t.mu.Unlock()
	now := time.Now()
	if ok && have.fresh(now) {
		return have.text, nil
	}
	next, err := t.ask(ctx, pod, key)
	switch {
	case err != nil && ok && now.Before(have.expires):
		slog.Warn("cannot renew a service account token; the old one is still good", "pod", api.Key(pod), "until", have.expires, "err", err)
		return have.text, nil
	case err != nil:
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	t.mu.Lock()
	t.held[key] = next
	t.mu.Unlock()
	return next.text, nil
}

func (t *tokens) ask(ctx context.Context, pod *corev1.Pod, key tokenKey) (heldToken, error) {
	r := &authenticationv1.TokenRequest{}
	r.Namespace, r.Name = pod.Namespace, pod.Spec.ServiceAccountName
	r.Spec.ExpirationSeconds = &key.seconds
	r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	if key.audience != "" {
		r.Spec.Audiences = []string{key.audience}
	}
	obj, err := t.client.Create(ctx, api.ServiceAccounts, r, api.WriteOptions{Subresource: "token"})
	if err != nil {
		return heldToken{}, err
	}
	got, ok := obj.(*authenticationv1.TokenRequest)
	if !ok || got.Status.Token == "" {
		return heldToken{}, fmt.Errorf("the API answered %T without a token", obj)
	}
	// The API may give another life than was asked for.
	life := time.Duration(key.seconds) * time.Second
	if got.Spec.ExpirationSeconds != nil {
		life = time.Duration(*got.Spec.ExpirationSeconds) * time.Second
	}
	return heldToken{text: got.Status.Token, life: life, expires: got.Status.ExpirationTimestamp.Time}, nil
}

func (t *tokens) release(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.held {
		if key.pod == uid {
			delete(t.held, key)
		}
	}
}
