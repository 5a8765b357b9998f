package brain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDebts: what finds no room at the start is done when there is, every other failure ends the start, and the Node says what is owed.
func TestDebts(t *testing.T) {
	full := fmt.Errorf("write: %w", unix.ENOSPC)
	saidFull := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInsufficientStorage}}
	synctest.Test(t, func(t *testing.T) {
		var d debts
		answers := map[string][]error{
			"ok":      {nil},
			"bytes":   {full, full, nil},
			"quota":   {unix.EDQUOT, nil},
			"API":     {saidFull, saidFull, saidFull, nil},
			"another": {full, errors.New("another fault")},
		}
		for _, what := range []string{"ok", "bytes", "quota", "API", "another"} {
			if err := d.orOwe(t.Context(), what, func(context.Context) error {
				err := answers[what][0]
				answers[what] = answers[what][1:]
				return err
			}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := d.orOwe(t.Context(), "broken", func(context.Context) error { return unix.EIO }); !errors.Is(err, unix.EIO) {
			t.Errorf("a fault that is no full disk: %v", err)
		}
		if c := d.condition(); c.Status != corev1.ConditionTrue || c.Message == "" {
			t.Errorf("%+v", c)
		}
		done := make(chan error, 1)
		go func() { done <- d.Run(t.Context()) }()
		for _, want := range [][]string{{"bytes", "API"}, {"API"}, nil} {
			synctest.Wait()
			if got := d.owed(); !slices.Equal(got, want) {
				t.Errorf("owed: %q, want %q", got, want)
			}
			time.Sleep(owedEvery)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if c := d.condition(); c.Status == corev1.ConditionTrue {
			t.Errorf("%+v", c)
		}
	})
}
