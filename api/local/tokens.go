package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/storage"
)

// Tokens is what service-account tokens need. Without it there are none, and pods are given none.
type Tokens struct {
	Keys interface {
		Sign(claims []byte) (string, error)
		Verify(token string) (claims []byte, err error)
	}
	RootCA []byte           // by which pods know this API, in PEM
	Now    func() time.Time // nil: the client's clock. A board without one should give one that has a floor
	// Revoked says whether a board of that name was ever revoked, and whether no other has its place since; nil: none was.
	Revoked func(node string) (ever, still bool)
}

// tokenIssuer is who signs, and whom tokens are for unless they say otherwise. Nobody resolves it: it is a name.
const tokenIssuer = "https://kubernetes.default.svc.cluster.local"

// mostTokenLife is as long as the certificate of an administrator lasts. A token that is bound to no pod cannot be taken back but
// with its account.
const mostTokenLife = 365 * 24 * time.Hour

// deletedLeeway is how long tokens of a deleted pod or account count, as on Kubernetes.
const deletedLeeway = time.Minute

// clockSkew is how far the clocks of those who use tokens may be apart.
const clockSkew = 10 * time.Second

// claims are what a token says, in the words of Kubernetes.
type claims struct {
	Audience []string    `json:"aud"`
	Expires  int64       `json:"exp"`
	Issued   int64       `json:"iat"`
	Issuer   string      `json:"iss"`
	ID       string      `json:"jti"`
	Bound    boundClaims `json:"kubernetes.io"`
	From     int64       `json:"nbf"`
	Subject  string      `json:"sub"`
}

type boundClaims struct {
	Namespace string     `json:"namespace"`
	Node      *reference `json:"node,omitempty"`
	Pod       *reference `json:"pod,omitempty"`
	Account   reference  `json:"serviceaccount"`
}

type reference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

// token answers a request for a token of a service account. Nothing of it is kept: a token is good as long as it says,
// and as long as its account and its pod are there.
func (c *Client) token(ctx context.Context, r *authenticationv1.TokenRequest) (api.Object, error) {
	if c.cfg.Tokens == nil {
		return nil, noSubresource(api.ServiceAccounts, "token")
	}
	r = r.DeepCopy()
	api.DefaultTokenRequest(r)
	if err := api.ValidateTokenRequest(r); err != nil {
		return nil, err
	}
	if most := int64(mostTokenLife / time.Second); *r.Spec.ExpirationSeconds > most {
		api.Warn(ctx, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", *r.Spec.ExpirationSeconds, most))
		r.Spec.ExpirationSeconds = &most
	}
	now := c.tokenTime()
	cl := claims{Audience: r.Spec.Audiences, Issuer: tokenIssuer, ID: string(newUID()), Issued: now.Unix(), From: now.Unix(),
		Expires: now.Unix() + *r.Spec.ExpirationSeconds, Subject: api.AccountUser(r.Namespace, r.Name).Name}
	if len(cl.Audience) == 0 {
		cl.Audience = []string{tokenIssuer}
	}
	err := c.store.View(func(tx *storage.Tx) error {
		sa, err := get(tx, api.ServiceAccounts, r.Namespace, r.Name)
		if err != nil {
			return err
		}
		if err := c.stillThere(sa); err != nil {
			return conflict(api.ServiceAccounts, r.Name, "no token is made: %w", err)
		}
		cl.Bound = boundClaims{Namespace: r.Namespace, Account: reference{r.Name, sa.GetUID()}}
		return c.bindToken(ctx, tx, r, &cl.Bound)
	})
	if err != nil {
		return nil, status(err, "make a token of service account %q", r.Name)
	}
	data, err := json.Marshal(cl)
	if err != nil {
		return nil, api.NewInternal("make a token: %w", err)
	}
	text, err := c.cfg.Tokens.Keys.Sign(data)
	if err != nil {
		return nil, api.NewInternal("make a token: %w", err)
	}
	r.Spec.Audiences = cl.Audience
	r.CreationTimestamp = c.now()
	r.Status = authenticationv1.TokenRequestStatus{Token: text, ExpirationTimestamp: metav1.Unix(cl.Expires, 0)}
	return r, nil
}

// bindToken ties a token to the pod it is for. A node gets tokens for nothing but pods that run on it (N-1.36).
func (c *Client) bindToken(ctx context.Context, tx *storage.Tx, r *authenticationv1.TokenRequest, into *boundClaims) error {
	node, isNode := nodeIdentity(ctx)
	ref := r.Spec.BoundObjectRef
	refuse := func(format string, args ...any) error { return forbidden(api.ServiceAccounts, r.Name, format, args...) }
	if ref == nil {
		if isNode {
			return refuse("node requested token not bound to a pod")
		}
		return nil
	}
	obj, err := get(tx, api.Pods, r.Namespace, ref.Name)
	if err != nil {
		return err
	}
	pod := obj.(*corev1.Pod)
	if err := c.stillThere(pod); err != nil {
		return conflict(api.Pods, pod.Name, "no token is made: %w", err)
	}
	switch {
	case ref.UID != "" && ref.UID != pod.UID:
		return conflict(api.Pods, pod.Name, "the UID in the bound object reference (%s) does not match the UID in record. "+
			"The object might have been deleted and then recreated", ref.UID)
	case isNode && (ref.UID == "" || pod.Spec.NodeName != node):
		return refuse("node requested token bound to a pod scheduled on a different node")
	case pod.Spec.ServiceAccountName != r.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.",
			r.Name))
	}
	into.Pod = &reference{pod.Name, pod.UID}
	if pod.Spec.NodeName == "" {
		return nil
	}
	into.Node = &reference{Name: pod.Spec.NodeName} // checked only where boards were revoked: a pod that is there is on its node
	if n, err := tx.Get(api.Nodes, "", pod.Spec.NodeName); err == nil {
		into.Node.UID = n.GetUID()
	}
	return nil
}

func (c *Client) tokenTime() time.Time {
	if t := c.cfg.Tokens; t != nil && t.Now != nil {
		return t.Now()
	}
	return c.cfg.Now()
}

// ErrToken says that a token proves nothing (any more).
var ErrToken = errors.New("invalid token")

// Authenticate says whose a token is, if it is one of ours, for one of these audiences (none: this API), and still
// counts: its time has not run out, and the account and the pod it was made for are the ones that are there.
func (c *Client) Authenticate(token string, audiences ...string) (api.User, error) {
	var user api.User
	if c.cfg.Tokens == nil {
		return user, ErrToken
	}
	data, err := c.cfg.Tokens.Keys.Verify(token)
	if err != nil {
		return user, fmt.Errorf("%w: %w", ErrToken, err)
	}
	var cl claims
	if err := json.Unmarshal(data, &cl); err != nil {
		return user, fmt.Errorf("%w: %w", ErrToken, err)
	}
	if err := cl.check(c.tokenTime(), audiences); err != nil {
		return user, fmt.Errorf("%w: %w", ErrToken, err)
	}
	ns := cl.Bound.Namespace
	err = c.store.View(func(tx *storage.Tx) error {
		if err := c.unchanged(tx, api.ServiceAccounts, ns, &cl.Bound.Account); err != nil {
			return err
		}
		if err := c.unchanged(tx, api.Pods, ns, cl.Bound.Pod); err != nil {
			return err
		}
		return c.trusted(tx, cl.Bound.Node)
	})
	if err != nil {
		return user, fmt.Errorf("%w: %w", ErrToken, err)
	}
	user = api.AccountUser(ns, cl.Bound.Account.Name)
	user.UID = string(cl.Bound.Account.UID)
	user.Extra = map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=" + cl.ID}}
	if p := cl.Bound.Pod; p != nil {
		user.Extra["authentication.kubernetes.io/pod-name"] = []string{p.Name}
		user.Extra["authentication.kubernetes.io/pod-uid"] = []string{string(p.UID)}
	}
	if n := cl.Bound.Node; n != nil {
		user.Extra["authentication.kubernetes.io/node-name"] = []string{n.Name}
		if n.UID != "" {
			user.Extra["authentication.kubernetes.io/node-uid"] = []string{string(n.UID)}
		}
	}
	return user, nil
}

// check is what a token says about itself.
func (cl claims) check(now time.Time, audiences []string) error {
	if len(audiences) == 0 {
		audiences = []string{tokenIssuer}
	}
	switch {
	case cl.Issuer != tokenIssuer:
		return errors.New("another issuer")
	case !slices.ContainsFunc(audiences, func(a string) bool { return slices.Contains(cl.Audience, a) }):
		return errors.New("for another audience")
	case cl.Subject != api.AccountUser(cl.Bound.Namespace, cl.Bound.Account.Name).Name ||
		strings.ContainsRune(cl.Bound.Namespace+cl.Bound.Account.Name, ':'):
		return errors.New("of nobody")
	case now.Unix() >= cl.Expires:
		return errors.New("expired")
	case now.Add(clockSkew).Unix() < cl.From:
		return errors.New("not valid yet")
	}
	return nil
}

// trusted refuses what a board has got that was revoked since. Another can have its name only after its Node was deleted, so the
// UID of that tells its tokens from those of the one before; of boards that never were revoked it is not asked.
func (c *Client) trusted(tx *storage.Tx, node *reference) error {
	if node == nil || c.cfg.Tokens.Revoked == nil {
		return nil
	}
	switch ever, still := c.cfg.Tokens.Revoked(node.Name); {
	case still:
		return errors.New("its node is revoked")
	case ever:
		return c.unchanged(tx, api.Nodes, "", node)
	}
	return nil
}

// unchanged says whether the object that a token was made for is the one that is there.
func (c *Client) unchanged(tx *storage.Tx, kind *api.Kind, namespace string, ref *reference) error {
	if ref == nil {
		return nil
	}
	obj, err := tx.Get(kind, namespace, ref.Name)
	if err != nil {
		return fmt.Errorf("its %s: %w", kind.Singular, err)
	}
	if obj.GetUID() != ref.UID {
		return fmt.Errorf("its %s has been replaced", kind.Singular)
	}
	return c.stillThere(obj)
}

// stillThere refuses what was to be gone a while ago and is held by a finalizer alone, which whoever has edited it may have put there
// to live on by its tokens. A moment is left to programs that clean up.
func (c *Client) stillThere(obj api.Object) error {
	if at := obj.GetDeletionTimestamp(); at != nil && c.cfg.Now().After(at.Add(deletedLeeway)) {
		return fmt.Errorf("%s %q has been deleted at %s", strings.ToLower(obj.GetObjectKind().GroupVersionKind().Kind), obj.GetName(),
			at.UTC().Format(time.RFC3339))
	}
	return nil
}
