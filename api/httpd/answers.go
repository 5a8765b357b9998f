package httpd

import (
	"context"
	"net/http"
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
)

// answers are the places for large answers. A client that has one and reads slowly loses it soon when others wait.
type answers struct{ *pool }

func newAnswers(places int) *answers {
	return &answers{newPool("large answers", places, [ranks]terms{})}
}

// enter waits for a place for the answer w. Its holder may enter again.
func (a *answers) enter(ctx context.Context, w *response) error {
	if w.place != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	pl, err := a.wait(ctx, w.party, 1, w.hurry)
	if err != nil {
		return apierrors.NewTooManyRequests("too many large answers at once, please try again", 5)
	}
	w.place = pl
	return nil
}

// tryEnter takes a place if one is free, or says that there is one already.
func (a *answers) tryEnter(w *response) bool {
	if w.place == nil {
		w.place = a.tryWait(w.party, w.hurry)
	}
	return w.place != nil
}

// leave gives the place back, if w has one.
func (a *answers) leave(w *response) {
	if w.place != nil {
		w.place.leave()
		w.place = nil
	}
}

// hurry is called when somebody begins to wait for the place of this answer. The piece that is being written gets less time. left is how
// long the whole rest of the answer may take; 0: there is no limit as long as each piece is quick.
func (w *response) hurry(left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if over := now.Add(left); left > 0 && (w.until.IsZero() || over.Before(w.until)) {
		w.until = over
	}
	if soon := now.Add(hurryTime); w.writing && soon.Before(w.deadline) {
		w.deadline = soon
		http.NewResponseController(w.ResponseWriter).SetWriteDeadline(soon)
	}
}

// extend sets the deadline of the next piece: shorter when somebody waits for the place. Setting it fails on connections that know
// no deadlines, which does not matter.
func (w *response) extend() {
	some, left := w.place.awaited()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.writing, w.deadline = true, now.Add(writeTime)
	if some {
		w.deadline = now.Add(hurryTime)
	}
	switch {
	case left == 0:
		w.until = time.Time{}
	case w.until.IsZero():
		w.until = now.Add(left)
	}
	if left > 0 && w.until.Before(w.deadline) {
		w.deadline = w.until
	}
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(w.deadline)
}

// readInPlace reads an answer, and takes a place for it if it is large. How large it is shows only after reading. If no place is free
// then, the answer is dropped, and read again once there is a place. was remembers that the answer was large the last time: then the
// place is taken first, and nothing is read twice.
func readInPlace[T any](ctx context.Context, a *answers, w *response, was *atomic.Bool, read func() (T, error), size func(T) int,
	drop func(T)) (none T, err error) {
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
	got = none // nothing is kept in memory while this request waits
	if err := a.enter(ctx, w); err != nil {
		return none, err
	}
	return read()
}

// largeBefore is where readInPlace remembers that the list of a kind was large. Lists with a selector are not remembered.
func (h *handler) largeBefore(k *api.Kind, s api.Selection) *atomic.Bool {
	if was := h.large[k]; was != nil && s.Labels == nil && s.Fields == nil {
		return was
	}
	return new(atomic.Bool)
}

// sizeOf is about how many bytes objects take as a body. Objects of types without a method Size count nothing: they are small.
func sizeOf(objs ...api.Object) (n int) {
	for _, o := range objs {
		if s, ok := o.(interface{ Size() int }); ok {
			n += s.Size()
		}
	}
	return n
}
