package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestAsk: a request about what is no kind here, and whatever a server may answer it with.
func TestAsk(t *testing.T) {
	type review struct {
		Spec   string `json:"spec,omitempty"`
		Status string `json:"status,omitempty"`
	}
	const path = "/apis/x/v1/reviews"
	c, s := script(t, answer(201, `{"spec":"who","status":"you"}`))
	var got review
	if err := c.Ask(t.Context(), http.MethodPost, path, review{Spec: "who"}, &got); err != nil || got.Status != "you" {
		t.Errorf("%v %v", got, err)
	}
	if want := []string{"POST " + path + ` application/json {"spec":"who"}`}; fmt.Sprint(s.came) != fmt.Sprint(want) {
		t.Errorf("came %q", s.came)
	}
	for _, tc := range []struct {
		name  string
		reply func(http.ResponseWriter, *http.Request)
		is    func(error) bool
		says  string
	}{
		{"a status", answer(403, `{"kind":"Status","status":"Failure","message":"not you","reason":"Forbidden","code":403}`), apierrors.IsForbidden, "not you"},
		{"no status", answer(500, `<html>`), apierrors.IsInternalError, ""},
		{"busy", answer(503, ``), apierrors.IsServiceUnavailable, ""},
		{"not JSON", answer(200, `<html>`), apierrors.IsInternalError, "cannot be read"},
		{"elsewhere", answer(302, ``, "Location", "/api/v1/secrets"), func(err error) bool { return err != nil }, ""},
		{"too much", answer(200, `{"status":"`+strings.Repeat("x", 3<<20)+`"}`), apierrors.IsInternalError, "more than"},
		{"a status that is too much", answer(500, strings.Repeat("x", 3<<20)), apierrors.IsInternalError, "more than"},
		{"gone", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, apierrors.IsServiceUnavailable, "EOF"},
	} {
		c, _ := script(t, tc.reply)
		if err := c.Ask(t.Context(), http.MethodGet, path, nil, &got); !tc.is(err) || !strings.Contains(fmt.Sprint(err), tc.says) {
			t.Errorf("%s: %.300v", tc.name, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c, _ := script(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		start := time.Now()
		err := c.Ask(context.Background(), http.MethodGet, path, nil, &got)
		if d := time.Since(start); !apierrors.IsServiceUnavailable(err) || d != 30*time.Second {
			t.Errorf("after %s: %v", d, err)
		}
	})
}
