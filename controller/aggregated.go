package controller

import (
	"context"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
	"ledge/api/rbac"
)

// Aggregated keeps in each aggregated ClusterRole the rules of those that it picks (rbac.Aggregate).
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
		_, _, err := amend(ctx, a.client, rbac.ClusterRoles, r, "", func(r *rbacv1.ClusterRole) bool {
			same := r.AggregationRule == nil || apiequality.Semantic.DeepEqual(r.Rules, rules)
			r.Rules = rules
			return !same
		})
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
