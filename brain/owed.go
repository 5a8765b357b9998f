package brain

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/host"
)

// A full disk must not keep a board down: nobody could delete anything. What a start would write and can do without is owed, and
// done when there is room.

// owedEvery is how often that is tried.
const owedEvery = 10 * time.Second

// noRoom knows a full disk in what the API says of it too.
func noRoom(err error) bool {
	var said apierrors.APIStatus
	return host.NoRoom(err) || errors.As(err, &said) && said.Status().Code == http.StatusInsufficientStorage
}

// debts are the steps of a start that found no room.
type debts struct {
	mu    sync.Mutex
	steps []debt
}

type debt struct {
	what string
	pay  func(context.Context) error
}

// orOwe does a step, or owes it where the disk is full.
func (d *debts) orOwe(ctx context.Context, what string, step func(context.Context) error) error {
	err := step(ctx)
	if !noRoom(err) {
		return err
	}
	slog.Error("there is no room for a step of the start; it is done when there is", "step", what, "err", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.steps = append(d.steps, debt{what, step})
	return nil
}

// owed names the steps that are still to be done.
func (d *debts) owed() (what []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.steps {
		what = append(what, s.what)
	}
	return what
}

// startUnfinished is a condition of the Node of a board that owes something.
const startUnfinished corev1.NodeConditionType = "StartUnfinished"

func (d *debts) condition() corev1.NodeCondition {
	if what := d.owed(); len(what) > 0 {
		return corev1.NodeCondition{Type: startUnfinished, Status: corev1.ConditionTrue, Reason: "DiskFull",
			Message: "there was no room to " + strings.Join(what, ", to ") + "; it is done when there is"}
	}
	return corev1.NodeCondition{Type: startUnfinished} // nothing is said
}

// Run does what is owed. A step that fails for another reason is given up: the next start finds out whether it is needed.
func (d *debts) Run(ctx context.Context) error {
	for {
		d.mu.Lock()
		due := slices.Clone(d.steps)
		d.mu.Unlock()
		var left []debt
		for _, s := range due {
			switch err := s.pay(ctx); {
			case noRoom(err):
				left = append(left, s)
			case err != nil && ctx.Err() == nil:
				slog.Error("a step of the start that was put off has failed", "step", s.what, "err", err)
			case err == nil:
				slog.Info("a step of the start that was put off is done", "step", s.what)
			}
		}
		d.mu.Lock()
		d.steps = left
		d.mu.Unlock()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(owedEvery):
		}
	}
}
