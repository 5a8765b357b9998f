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

// mostTokenLife is as long as the certificate of an administrator lasts. A token that is bound to no pod ends early only with its account.
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

// issuer makes tokens, and says whose they are.
type issuer struct {
	cfg   *Tokens // nil: there are no tokens
	store *storage.Store
	clock func() time.Time // the client's
}

// token answers a request for a token of a service account. Nothing of it is kept: a token is good as long as it says,
// and as long as its account and its pod are there.
func (i *issuer) token(ctx context.Context, r *authenticationv1.TokenRequest) (api.Object, error) {
	if i.cfg == nil {
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
	now := i.now()
	cl := claims{Audience: r.Spec.Audiences, Issuer: tokenIssuer, ID: string(newUID()), Issued: now.Unix(), From: now.Unix(),
		Expires: now.Unix() + *r.Spec.ExpirationSeconds, Subject: api.AccountUser(r.Namespace, r.Name).Name}
	if len(cl.Audience) == 0 {
		cl.Audience = []string{tokenIssuer}
	}
	err := i.store.View(func(tx *storage.Tx) error {
		sa, err := get(tx, api.ServiceAccounts, r.Namespace, r.Name)
		if err != nil {
			return err
		}
		if err := i.stillThere(sa); err != nil {
			return conflict(api.ServiceAccounts, r.Name, "no token is made: %w", err)
		}
		cl.Bound = boundClaims{Namespace: r.Namespace, Account: reference{r.Name, sa.GetUID()}}
		return i.bind(ctx, tx, r, &cl.Bound)
	})
	if err != nil {
		return nil, status(err, "make a token of service account %q", r.Name)
	}
	data, err := json.Marshal(cl)
	if err != nil {
		return nil, api.NewInternal("make a token: %w", err)
	}
	text, err := i.cfg.Keys.Sign(data)
	if err != nil {
		return nil, api.NewInternal("make a token: %w", err)
	}
	r.Spec.Audiences = cl.Audience
	r.CreationTimestamp = seconds(i.clock())
	r.Status = authenticationv1.TokenRequestStatus{Token: text, ExpirationTimestamp: metav1.Unix(cl.Expires, 0)}
	return r, nil
}

// bind ties a token to the pod it is for. A node gets tokens for nothing but pods that run on it (N-1.36).
func (i *issuer) bind(ctx context.Context, tx *storage.Tx, r *authenticationv1.TokenRequest, into *boundClaims) error {
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
	if err := i.stillThere(pod); err != nil {
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

func (i *issuer) now() time.Time {
	if i.cfg != nil && i.cfg.Now != nil {
		return i.cfg.Now()
	}
	return i.clock()
}

// ErrToken says that a token proves nothing (any more).
var ErrToken = errors.New("invalid token")

// Authenticate says whose a token is, if it is one of ours, for one of these audiences (none: this API), and still counts.
func (c *Client) Authenticate(token string, audiences ...string) (api.User, error) {
	return c.issuer.user(token, audiences)
}

// user says whose a token is, if it is one of ours, for one of these audiences (none: this API), and still
// counts: its time has not run out, and the account and the pod it was made for are the ones that are there.
func (i *issuer) user(token string, audiences []string) (api.User, error) {
	var user api.User
	if i.cfg == nil {
		return user, ErrToken
	}
	data, err := i.cfg.Keys.Verify(token)
	if err != nil {
		return user, fmt.Errorf("%w: %w", ErrToken, err)
	}
	var cl claims
	if err := json.Unmarshal(data, &cl); err != nil {
		return user, fmt.Errorf("%w: %w", ErrToken, err)
	}
	if err := cl.check(i.now(), audiences); err != nil {
		return user, fmt.Errorf("%w: %w", ErrToken, err)
	}
	ns := cl.Bound.Namespace
	err = i.store.View(func(tx *storage.Tx) error {
		if err := i.unchanged(tx, api.ServiceAccounts, ns, &cl.Bound.Account); err != nil {
			return err
		}
		if err := i.unchanged(tx, api.Pods, ns, cl.Bound.Pod); err != nil {
			return err
		}
		return i.trusted(tx, cl.Bound.Node)
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

// trusted refuses tokens that a board got before it was revoked. Another board may have that name now, with a new Node: the UID of the
// Node in the token tells whose it is. Names that were never revoked are not looked up.
func (i *issuer) trusted(tx *storage.Tx, node *reference) error {
	if node == nil || i.cfg.Revoked == nil {
		return nil
	}
	switch ever, still := i.cfg.Revoked(node.Name); {
	case still:
		return errors.New("its node is revoked")
	case ever:
		return i.unchanged(tx, api.Nodes, "", node)
	}
	return nil
}

// unchanged says whether the object that a token was made for is the one that is there.
func (i *issuer) unchanged(tx *storage.Tx, kind *api.Kind, namespace string, ref *reference) error {
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
	return i.stillThere(obj)
}

// stillThere refuses the tokens of an object whose deletion is over but for a finalizer: somebody may have added the finalizer to keep
// the tokens alive. For deletedLeeway they still count, for programs that clean up.
func (i *issuer) stillThere(obj api.Object) error {
	if at := obj.GetDeletionTimestamp(); at != nil && i.clock().After(at.Add(deletedLeeway)) {
		return fmt.Errorf("%s %q has been deleted at %s", strings.ToLower(obj.GetObjectKind().GroupVersionKind().Kind), obj.GetName(),
			at.UTC().Format(time.RFC3339))
	}
	return nil
}
