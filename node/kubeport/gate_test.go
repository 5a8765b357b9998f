package kubeport_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/node/kubeport"
)

const (
	tokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// TestAnswersAreRemembered: as long as a kubelet does, and no longer.
func TestAnswersAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.tokens["good"] = "prom"
		p.rights["prom get"] = "metrics proxy"
		g := kubeport.NewGate(p, "pi", nil)
		asks := func(what, path string, n int, of func() error, want bool) {
			t.Helper()
			before := p.times(path)
			for range 3 {
				if err := of(); (err == nil) != want {
					t.Fatalf("%s: %v", what, err)
				}
			}
			if got := p.times(path) - before; got != n {
				t.Errorf("%s: asked %d times, want %d", what, got, n)
			}
		}
		user := func(token string) func() error {
			return func() error { _, err := g.User(token); return err }
		}
		may := func(verb string, subs ...string) func() error {
			return func() error { _, err := g.May(api.User{Name: "prom"}, verb, subs...); return err }
		}
		for _, c := range []struct {
			what, path string
			of         func() error
			good       bool
			lasts      time.Duration
		}{
			{"a good token", tokenReviews, user("good"), true, 2 * time.Minute},
			{"a token of nobody", tokenReviews, user("bad"), false, 10 * time.Second},
			{"what is allowed", accessReviews, may("get", "metrics"), true, 5 * time.Minute},
			{"what is not", accessReviews, may("create", "proxy"), false, 30 * time.Second},
		} {
			asks(c.what, c.path, 1, c.of, c.good)
			time.Sleep(c.lasts - time.Second)
			asks(c.what+", later", c.path, 0, c.of, c.good)
			time.Sleep(2 * time.Second)
			asks(c.what+", much later", c.path, 1, c.of, c.good)
		}
		if by, err := g.May(api.User{Name: "prom"}, "get", "pods", "proxy"); err != nil || by != "proxy" {
			t.Errorf("let in by %q, %v", by, err)
		}
		asks("the second of two subresources", accessReviews, 0, may("get", "pods", "proxy"), true) // both are known by now
	})
}

// TestStrangersAreForgotten: what is remembered of those who come with a thousand tokens and names is bounded.
func TestStrangersAreForgotten(t *testing.T) {
	p := newPlane(t)
	p.tokens["good"] = "prom"
	g := kubeport.NewGate(p, "pi", nil)
	_, err := g.User("good")
	must(t, err)
	for i := range 3 * kubeport.MostAnswers {
		if _, err := g.User(fmt.Sprint("bad", i)); !apierrors.IsUnauthorized(err) {
			t.Fatal(err)
		}
		if _, err := g.May(api.User{Name: fmt.Sprint("x", i)}, "get", "proxy"); !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
	}
	for i, n := range g.Remembered() {
		if n > kubeport.MostAnswers {
			t.Errorf("%d of sort %d are remembered", n, i)
		}
	}
	before := p.times(tokenReviews)
	if _, err := g.User("good"); err != nil || p.times(tokenReviews) != before {
		t.Errorf("bad tokens have pushed out a good one: %v", err)
	}
	if _, err := g.User(string(make([]byte, 1<<20))); !apierrors.IsUnauthorized(err) || p.times(tokenReviews) != before {
		t.Errorf("a token of a million bytes: %v, asked %d times", err, p.times(tokenReviews)-before)
	}
}

// TestPlaneIsAway: nobody is let in (N-13.16), and nobody waits long. Who is remembered goes on.
func TestPlaneIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.tokens["good"] = "prom"
		p.rights["prom get"] = "metrics"
		g := kubeport.NewGate(p, "pi", nil)
		u, err := g.User("good")
		must(t, err)
		_, err = g.May(u, "get", "metrics")
		must(t, err)

		p.change(func() { p.hangs = true })
		began := time.Now()
		for range 20 { // one after the other
			if _, err := g.User("other"); !apierrors.IsServiceUnavailable(err) {
				t.Fatal(err)
			}
			if _, err := g.May(u, "create", "proxy"); !apierrors.IsServiceUnavailable(err) {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("40 callers waited %v", took)
		}
		_, err = g.User("good")
		by, merr := g.May(u, "get", "metrics")
		if must(t, errors.Join(err, merr)); by != "metrics" {
			t.Errorf("let in by %q", by)
		}

		time.Sleep(time.Minute)
		p.change(func() { p.hangs, p.fails = false, api.NewInternal("it is broken") })
		if _, err := g.May(u, "create", "proxy"); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("it answers 500: %v", err)
		}
		p.change(func() { p.fails = nil })
		if _, err := g.May(u, "create", "proxy"); !apierrors.IsForbidden(err) {
			t.Errorf("it is back: %v", err)
		}
	})
}
