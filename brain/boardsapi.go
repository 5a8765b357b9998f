package brain

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/board"
	"ledge/api/networking"
	"ledge/api/rbac"
)

func (p *plane) listBoards(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, p.joins.Boards())
}

// revokeBoard lets a board in no more, and ends what it has open: nothing that comes after this answer is the board's.
func (p *plane) revokeBoard(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("name")
	gone, err := p.joins.Revoke(name)
	names := p.joins.Names(name)
	for _, n := range names {
		if ever, still := p.joins.Revoked(n); ever && still { // it may be, and not be kept everywhere
			p.cut(n)
		}
	}
	if err != nil {
		return refused(err)
	}
	user, _ := api.UserFrom(r.Context())
	slog.Warn("a board is revoked", "node", name, "by", user.Name)
	p.b.events.EventOn(corev1.ObjectReference{Kind: api.Nodes.Name, APIVersion: api.Nodes.APIVersion(), Name: name, UID: types.UID(name)},
		corev1.EventTypeWarning, "Revoked", "The key of this board was revoked: it is let in no more, and its pods are lost")
	said := board.Revoked{Board: gone}
	if said.Secrets, said.Accounts, err = p.exposedOn(r.Context(), names); err != nil {
		return fmt.Errorf("%s is revoked, but what its pods name cannot be said: %w", name, err)
	}
	return answer(w, said)
}

// exposedOn is what a board may have read, for its pods name it or take requests in with it, and the service accounts with rights that
// they run as.
func (p *plane) exposedOn(ctx context.Context, nodes []string) (secrets, accounts []string, err error) {
	var bindings rbac.Policy
	for _, kind := range []*api.Kind{rbac.ClusterRoleBindings, rbac.RoleBindings} {
		list, err := p.api.List(ctx, kind, api.ListOptions{})
		if err != nil {
			return nil, nil, err
		}
		for _, b := range list.Items {
			bindings.Set(b)
		}
	}
	takesIn := false
	for _, node := range nodes {
		list, err := p.api.List(ctx, api.Pods,
			api.ListOptions{Selection: api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", node)}})
		if err != nil {
			return nil, nil, err
		}
		for _, o := range list.Items {
			pod := o.(*corev1.Pod)
			_, names := api.References(pod)
			for _, s := range names {
				secrets = append(secrets, pod.Namespace+"/"+s)
			}
			if account := pod.Spec.ServiceAccountName; account != "" && bindings.Names(api.AccountUser(pod.Namespace, account)) {
				accounts = append(accounts, pod.Namespace+"/"+account)
			}
			takesIn = takesIn || pod.Namespace == metav1.NamespaceSystem && pod.Spec.ServiceAccountName == networking.Pods
		}
	}
	if takesIn {
		certs, err := p.certificates(ctx)
		if err != nil {
			return nil, nil, err
		}
		secrets = append(secrets, certs...)
	}
	slices.Sort(secrets)
	slices.Sort(accounts)
	return slices.Compact(secrets), slices.Compact(accounts), nil
}

// certificates are the Secrets that Ingresses of ledge's classes name: each board with a pod that takes requests in reads them all.
func (p *plane) certificates(ctx context.Context) (secrets []string, err error) {
	classes, err := p.api.List(ctx, networking.IngressClasses, api.ListOptions{})
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, c := range classes.Items {
		ours[c.GetName()] = c.(*networkingv1.IngressClass).Spec.Controller == networking.Controller
	}
	ingresses, err := p.api.List(ctx, networking.Ingresses, api.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, o := range ingresses.Items {
		i := o.(*networkingv1.Ingress)
		for _, t := range i.Spec.TLS {
			if ours[networking.ClassOf(i)] && t.SecretName != "" {
				secrets = append(secrets, i.Namespace+"/"+t.SecretName)
			}
		}
	}
	return secrets, nil
}

// cut ends all that a board has open, and all that is open to it.
func (p *plane) cut(node string) {
	for _, d := range p.doors {
		d.CloseBoard(node)
	}
	p.boards.end(func(name string) bool { return name == node })
	p.boards.mu.Lock()
	defer p.boards.mu.Unlock()
	p.boards.hangUp(node)
}
