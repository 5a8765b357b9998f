package httpd

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

const (
	// largeAnswer is what an object or a list takes as a body before it counts as large: less than a socket holds, so
	// that a small one has gone whether its reader reads or not.
	largeAnswer = 64 << 10
	// maxAnswers is how many large answers are read from the store, encoded and written at once. Each is megabytes.
	maxAnswers = 2
	// waitTime is how long a request waits for a place among them.
	waitTime = time.Minute
	// hurryTime is what is left of writeTime while somebody waits for a place: who reads at all needs less.
	hurryTime = time.Second
)

// answers are the places for large answers. Who has one and does not read loses it soon when others wait.
type answers struct {
	mu      sync.Mutex
	free    int
	holders map[*response]bool
	waiting int
	freed   chan struct{} // closed and made anew whenever a place is given back
}

func newAnswers(places int) *answers {
	return &answers{free: places, holders: map[*response]bool{}, freed: make(chan struct{})}
}

// enter waits for a place for the answer w. Its holder may enter again.
func (a *answers) enter(ctx context.Context, w *response) error {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.holders[w] && a.free == 0 {
		for h := range a.holders {
			h.hurry()
		}
		a.waiting++
		freed := a.freed
		a.mu.Unlock()
		var err error
		select {
		case <-freed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		a.mu.Lock()
		if a.waiting--; err != nil {
			return apierrors.NewTooManyRequests("too many large answers at once, please try again", 5)
		}
	}
	if !a.holders[w] {
		a.free--
		a.holders[w] = true
	}
	return nil
}

// tryEnter takes a place if one is free, or says that there is one already.
func (a *answers) tryEnter(w *response) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.free == 0 && !a.holders[w] {
		return false
	}
	if !a.holders[w] {
		a.free--
		a.holders[w] = true
	}
	return true
}

// leave gives the place back, if w has one.
func (a *answers) leave(w *response) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.holders[w] {
		return
	}
	delete(a.holders, w)
	a.free++
	close(a.freed)
	a.freed = make(chan struct{})
}

// hurry shortens the time of the piece that is being written, if one is.
func (w *response) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing {
		http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(hurryTime))
	}
}

// readInPlace reads what may be a large answer and keeps a place for it if it is. How large it is shows only when it is
// there: who then finds no place lets go of it and reads it again with one. was says that it was large the last time, and
// saves that.
func readInPlace[T any](ctx context.Context, a *answers, w *response, was *atomic.Bool, read func() (T, error), size func(T) int, drop func(T)) (none T, err error) {
	if was.Load() {
		if err := a.enter(ctx, w); err != nil {
			return none, err
		}
	}
	got, err := read()
	if err != nil {
		return none, err
	}
	large := size(got) >= largeAnswer
	was.Store(large)
	if !large {
		a.leave(w)
		return got, nil
	}
	if a.tryEnter(w) {
		return got, nil
	}
	drop(got)
	got = none // who waits holds nothing
	if err := a.enter(ctx, w); err != nil {
		return none, err
	}
	return read()
}

// largeBefore is where readInPlace remembers for all objects of a kind; for a selection of them it does not.
func (h *handler) largeBefore(k *api.Kind, s api.Selection) *atomic.Bool {
	if was := h.large[k]; was != nil && s.Labels == nil && s.Fields == nil {
		return was
	}
	return new(atomic.Bool)
}

// sizeOf is about how long an object is as a body. Those without a size of their own are small.
func sizeOf(objs ...api.Object) (n int) {
	for _, o := range objs {
		if s, ok := o.(interface{ Size() int }); ok {
			n += s.Size()
		}
	}
	return n
}
