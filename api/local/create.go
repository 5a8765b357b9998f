package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/storage"
)

// Create implements api.Client.
func (c *Client) Create(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if kind.View != nil {
		if err := checkKind(kind, obj); err != nil {
			return nil, err
		}
		out, err := c.Create(ctx, kind.View.Of, kind.View.Read(obj), opts)
		return show(kind, out, err)
	}
	switch {
	case opts.Subresource == "":
	case kind == api.Pods && opts.Subresource == "binding":
		if b, ok := obj.(*corev1.Binding); ok {
			return nil, c.bind(ctx, b, opts)
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got %T where a Binding was expected", obj))
	case kind == api.Pods && opts.Subresource == "eviction":
		if e, ok := obj.(*policyv1.Eviction); ok {
			return nil, c.evict(ctx, e, opts)
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got %T where an Eviction was expected", obj))
	case kind == api.ServiceAccounts && opts.Subresource == "token":
		if r, ok := obj.(*authenticationv1.TokenRequest); ok {
			return c.issuer.token(ctx, r)
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got %T where a TokenRequest was expected", obj))
	default:
		return nil, noSubresource(kind, opts.Subresource)
	}
	if err := checkKind(kind, obj); err != nil {
		return nil, err
	}
	if obj.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	given, events := obj, 0
	err := c.write(ctx, opts.DryRun, func(tx *storage.Tx) error {
		obj, events = clone(given), 0
		prepare(kind, obj, c.now())
		return c.create(ctx, tx, kind, obj, how{manager: opts.Manager, events: &events})
	})
	if err != nil {
		return nil, status(err, "create %s %q", kind.Singular, obj.GetName())
	}
	switch {
	case opts.DryRun:
		obj.SetResourceVersion("")
		return obj, nil
	case kind == api.Events:
		c.events.made(ctx, obj, events)
	}
	c.collector.written(obj, nil)
	return obj, nil
}

// prepare sets what only the server may set and drops what only it may say.
func prepare(kind *api.Kind, obj api.Object, now metav1.Time) {
	obj.SetUID(newUID())
	obj.SetCreationTimestamp(now)
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	obj.SetManagedFields(nil)
	kind.Fresh(obj)
}

func (in *inTx) create(ctx context.Context, tx *storage.Tx, kind *api.Kind, obj api.Object, ch how) error {
	if err := generateName(tx, kind, obj); err != nil {
		return err
	}
	kind.Default(obj)
	if !ch.applied {
		if err := in.fields.Create(kind, obj, ch.manager); err != nil {
			return err
		}
	}
	if kind.Namespaced {
		if err := in.admitNamespace(tx, kind, obj); err != nil {
			return err
		}
	}
	if err := restrictCreate(ctx, tx, kind, obj); err != nil {
		return err
	}
	g, a := gates(kind), admission{kind: kind, obj: obj}
	if err := in.ask(ctx, tx, g.create, a); err != nil {
		return err
	}
	if err := kind.Validate(obj); err != nil {
		return err
	}
	if err := holdToLimits(tx, a); err != nil {
		return err
	}
	if err := in.security.admit(ctx, tx, g, a); err != nil {
		return err
	}
	_, err := tx.Get(kind, obj.GetNamespace(), obj.GetName())
	switch {
	case err == nil:
		return apierrors.NewAlreadyExists(kind.GR(), obj.GetName())
	case !errors.Is(err, storage.ErrNotFound):
		return storeError(err, kind, obj.GetNamespace(), obj.GetName())
	}
	if err := in.quotas.admit(tx, a, in.cfg.Now()); err != nil { // last: who is refused for anything else hears of that
		return err
	}
	if kind == api.Events {
		if *ch.events, err = in.events.makeRoom(tx); err != nil {
			return err
		}
	}
	for _, text := range kind.Warnings(obj) {
		api.Warn(ctx, text)
	}
	if err := in.shares.put(ctx, tx, kind, obj, nil, "", kind.Lazy); err != nil {
		return err
	}
	return in.then(tx, g.made, obj)
}

// furnishNew furnishes a namespace that was made.
func (in *inTx) furnishNew(tx *storage.Tx, ns api.Object) error { return in.furnish(tx, ns.GetName()) }

// furnish puts into a new namespace what every namespace has.
func (in *inTx) furnish(tx *storage.Tx, namespace string) error {
	for _, o := range in.accounts.namespaceObjects(namespace) {
		if err := in.makeSystem(tx, o); err != nil {
			return err
		}
	}
	return nil
}

// admitNamespace: what is created must have a namespace to live in (N-11.41).
func (in *inTx) admitNamespace(tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	name := obj.GetNamespace()
	if name == "" {
		return nil // validation says so
	}
	found, err := tx.Get(api.Namespaces, "", name)
	if errors.Is(err, storage.ErrNotFound) && isSystemNamespace(name) {
		return in.makeNamespace(tx, name) // deleted since the last look
	}
	if err != nil {
		return storeError(err, api.Namespaces, "", name)
	}
	if ns := found.(*corev1.Namespace); ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		err := apierrors.NewForbidden(kind.GR(), obj.GetName(),
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", name))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", name), Field: "metadata.namespace"})
		return err
	}
	return nil
}

// nameLetters spell no words.
const nameLetters = "bcdfghjklmnpqrstvwxz2456789"

// generateName makes a name nobody has from a prefix, as Kubernetes does: five letters and digits that spell
// no words.
func generateName(tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	base := obj.GetGenerateName()
	if obj.GetName() != "" || base == "" {
		return nil
	}
	const suffix, longest, tries = 5, 63, 8
	base = base[:min(len(base), longest-suffix)]
	for range tries {
		random := make([]byte, suffix)
		if _, err := rand.Read(random); err != nil {
			return api.NewInternal("make a name: %w", err)
		}
		for i := range random {
			random[i] = nameLetters[int(random[i])%len(nameLetters)]
		}
		obj.SetName(base + string(random))
		if _, err := tx.Get(kind, obj.GetNamespace(), obj.GetName()); errors.Is(err, storage.ErrNotFound) {
			return nil
		}
	}
	return apierrors.NewGenerateNameConflict(kind.GR(), obj.GetName(), 1)
}

// now is the time as objects carry it: whole seconds, so that what a create answers is what a get will.
func (in *inTx) now() metav1.Time { return seconds(in.cfg.Now()) }

func seconds(t time.Time) metav1.Time { return metav1.Time{Time: t}.Rfc3339Copy() }

// newUID is a random UUID (RFC 9562, version 4).
func newUID() types.UID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	s := hex.EncodeToString(b[:])
	return types.UID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:])
}
