package controller

import (
	"context"
	"errors"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/rbac"
)

// Aggregated keeps in each aggregated ClusterRole the rules of those that it picks (rbac.Aggregate). It has no more room than people
// have: a role that would grow beyond it only loses what it should lose, until there is room.
type Aggregated struct {
	client  api.Client
	roles   Of[*rbacv1.ClusterRole]
	changed <-chan struct{}
	failed  grumble
}

// NewAggregated prepares the loop.
func NewAggregated(w *World) *Aggregated {
	a := &Aggregated{client: w.Client, roles: Of[*rbacv1.ClusterRole]{w.view(rbac.ClusterRoles, api.Selection{})}}
	a.changed = listen(a.roles)
	return a
}

// Run keeps them until ctx ends.
func (a *Aggregated) Run(ctx context.Context) error { return loop(ctx, a.changed, a.pass, a.roles) }

// retryAggregated is when a write that failed is tried again.
const retryAggregated = 30 * time.Second

func (a *Aggregated) pass(ctx context.Context, _ time.Time) time.Duration {
	var failed error
	all := a.roles.List()
	for _, r := range all {
		if r.AggregationRule == nil || r.DeletionTimestamp != nil {
			continue
		}
		rules := rbac.Aggregate(r, all)
		err := a.write(ctx, r, func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return rules })
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) { // there is no room for all of it
			err = errors.Join(err, a.write(ctx, r, func(have []rbacv1.PolicyRule) []rbacv1.PolicyRule { return rbac.Narrowed(have, rules) }))
		}
		if err != nil {
			failed = err
		}
	}
	a.failed.about(ctx, "cannot write what an aggregated ClusterRole holds; trying again", failed)
	if failed != nil {
		return retryAggregated
	}
	return idle
}

func (a *Aggregated) write(ctx context.Context, r *rbacv1.ClusterRole, rules func(have []rbacv1.PolicyRule) []rbacv1.PolicyRule) error {
	_, _, err := amend(ctx, a.client, rbac.ClusterRoles, r, "", func(r *rbacv1.ClusterRole) bool {
		have := r.Rules
		r.Rules = rules(have)
		return r.AggregationRule != nil && !apiequality.Semantic.DeepEqual(r.Rules, have)
	})
	return err
}
