package controller

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/rbac"
)

// TestAggregated: an aggregated role follows those that it picks, through another one too, whatever somebody writes into it; a failed
// write is made good; and at rest nothing is written.
func TestAggregated(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		role := func(name, picked, picks string, resources ...string) *rbacv1.ClusterRole {
			out := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{picked: "yes"}}}
			for _, what := range resources {
				out.Rules = append(out.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{what}})
			}
			if picks != "" {
				out.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{picks: "yes"}}}}
			}
			return out
		}
		get := func(name string) *rbacv1.ClusterRole {
			t.Helper()
			got, err := api.Get[*rbacv1.ClusterRole](r.ctx, r.Client, rbac.ClusterRoles, "", name)
			must(r, got, err)
			return got
		}
		holds := func(name string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, rule := range get(name).Rules {
				got = append(got, rule.Resources...)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s holds %v, want %v", name, got, want)
			}
		}
		for _, o := range []*rbacv1.ClusterRole{role("upper", "high", "middle", "own"), role("middle", "middle", "low"),
			role("a", "low", "", "pods")} {
			made, err := api.Create(r.ctx, r.Client, rbac.ClusterRoles, o)
			must(r, made, err)
		}
		holds("upper", "pods")
		holds("middle", "pods")

		made, err := api.Create(r.ctx, r.Client, rbac.ClusterRoles, role("b", "low", "", "pods", "secrets"))
		must(r, made, err)
		holds("upper", "pods", "secrets")

		stray := get("upper")
		stray.Rules = role("x", "x", "", "nodes").Rules
		_, err = r.Client.Update(r.ctx, rbac.ClusterRoles, stray, api.WriteOptions{})
		must(r, stray, err)
		holds("upper", "pods", "secrets")

		fail := func(string, *api.Kind) error { return errors.New("the disk is full") }
		r.broken.Store(&fail)
		_, err = r.Client.Delete(r.ctx, rbac.ClusterRoles, "", "a", api.DeleteOptions{})
		must(r, stray, err)
		holds("upper", "pods", "secrets")
		synctest.Wait()
		r.broken.Store(nil)
		before := r.writes.Load()
		r.pass(2 * retryAggregated)
		holds("upper", "pods", "secrets") // b alone has both

		_, err = r.Client.Delete(r.ctx, rbac.ClusterRoles, "", "b", api.DeleteOptions{})
		must(r, stray, err)
		holds("upper")
		// Each once; a pass that does not see the last write yet tries it again, and is refused.
		writes := r.writes.Load()
		if n := writes - before; n < 2 || n > 4 {
			t.Errorf("%d writes for two roles", n)
		}
		view := get("view")
		r.pass(time.Hour)
		if now := get("view"); len(view.Rules) == 0 || now.ResourceVersion != view.ResourceVersion || r.writes.Load() != writes {
			t.Errorf("at rest: %d writes, view at %s and %s", r.writes.Load()-writes, view.ResourceVersion, now.ResourceVersion)
		}
	})
}

// TestAggregatedFindsNoRoom: an aggregated role for which there is no room loses what it should lose, gets nothing new, and has all of it
// once there is room. Neither one role nor all roles together take more memory than when people write them.
func TestAggregatedFindsNoRoom(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		labels := map[string]string{"picked": "yes"}
		role := func(name string, rules int) *rbacv1.ClusterRole {
			out := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
			for i := range rules {
				out.Rules = append(out.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"x"},
					ResourceNames: []string{fmt.Sprint(name, i)}})
			}
			return out
		}
		write := func(obj *rbacv1.ClusterRole) {
			t.Helper()
			_, err := api.Create(r.ctx, r.Client, rbac.ClusterRoles, obj)
			if apierrors.IsAlreadyExists(err) {
				_, err = r.Client.Update(r.ctx, rbac.ClusterRoles, obj, api.WriteOptions{})
			}
			must(r, obj, err)
		}
		holds := func(name string, want int) {
			t.Helper()
			r.pass(time.Second)
			got, err := api.Get[*rbacv1.ClusterRole](r.ctx, r.Client, rbac.ClusterRoles, "", name)
			must(r, got, err)
			if len(got.Rules) != want {
				t.Errorf("%s holds %d rules, want %d", name, len(got.Rules), want)
			}
		}
		sum := func(name string) *rbacv1.ClusterRole {
			return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: labels}}}}
		}
		write(role("a", 900))
		write(sum("sum"))
		holds("sum", 900)
		write(role("b", 900))
		holds("sum", 900) // both are too much for one
		write(role("a", 800))
		holds("sum", 800)
		was, err := api.Get[*rbacv1.ClusterRole](r.ctx, r.Client, rbac.ClusterRoles, "", "sum")
		must(r, was, err)
		r.pass(10 * retryAggregated)
		now, err := api.Get[*rbacv1.ClusterRole](r.ctx, r.Client, rbac.ClusterRoles, "", "sum")
		if must(r, now, err); now.ResourceVersion != was.ResourceVersion { // what is tried is refused, and writes nothing
			t.Errorf("written at rest: %s, then %s", was.ResourceVersion, now.ResourceVersion)
		}
		write(role("b", 10))
		r.pass(retryAggregated)
		holds("sum", 810)
		write(role("b", 0))
		holds("sum", 800)
		for i := range 40 { // too much for all together
			write(sum(fmt.Sprint("sum", i)))
		}
		r.pass(2 * retryAggregated)
		list, err := r.Client.List(r.ctx, rbac.ClusterRoles, api.ListOptions{})
		must(r, sum("x"), err)
		weight := 0
		for _, o := range list.Items {
			weight += rbac.Weight(o)
		}
		if weight > 4<<20 || weight < 3<<20 {
			t.Errorf("all roles take %d bytes of memory", weight)
		}
	})
}
