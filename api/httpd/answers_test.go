package httpd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
)

// timed is an answer's connection that remembers its deadline.
type timed struct {
	httptest.ResponseRecorder
	until time.Time
}

func (t *timed) SetWriteDeadline(at time.Time) error {
	t.until = at
	return nil
}

func timedAnswer(a *answers) (*response, *timed) {
	conn := &timed{}
	return &response{ResponseWriter: conn, places: a}, conn
}

// TestAnswers: large answers wait for a place. Who has one and does not read is hurried as soon as somebody waits, and
// has all its time while nobody does.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers(2)
		one, first := timedAnswer(a)
		two, second := timedAnswer(a)
		for _, w := range []*response{one, one, two} { // entering again takes no second place
			if err := a.enter(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
		one.extend()
		if left := time.Until(first.until); left != writeTime {
			t.Errorf("alone it has %s", left)
		}
		three, third := timedAnswer(a)
		if a.tryEnter(three) {
			t.Error("a third place")
		}
		got := make(chan error, 1)
		go func() { got <- a.enter(t.Context(), three) }()
		synctest.Wait()
		two.extend()
		if one, two := time.Until(first.until), time.Until(second.until); one != hurryTime || two != hurryTime {
			t.Errorf("while one waits they have %s and %s", one, two)
		}
		one.finish()
		synctest.Wait()
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("a free place is not taken")
		}
		three.extend()
		if left := time.Until(third.until); left != writeTime {
			t.Errorf("with nobody waiting it has %s", left)
		}
		first.until = time.Time{}
		one.hurry(hurryTime)
		if !first.until.IsZero() {
			t.Error("an answer that is over was given a deadline")
		}
		begin := time.Now()
		four, _ := timedAnswer(a)
		if err := a.enter(t.Context(), four); !apierrors.IsTooManyRequests(err) || time.Since(begin) != waitTime {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if a.enter(gone, four) == nil {
			t.Error("a client that has gone got a place")
		}
		two.finish()
		three.finish()
		three.finish()
		if len(a.held) != 0 || len(a.waiters) != 0 || a.taken != [ranks]int{} {
			t.Errorf("%+v", a.share)
		}
	})
}

// TestPacer: a long answer goes out in pieces, and each gives its reader time.
func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers(1)
		slow := &slowReader{}
		w := &response{ResponseWriter: slow, places: a}
		data := make([]byte, 5*pieceSize+1)
		if n, err := (&pacer{w}).Write(data); n != len(data) || err != nil || slow.pieces != 6 {
			t.Errorf("%d of %d bytes in %d pieces, %v", n, len(data), slow.pieces, err)
		}
	})
}

// slowReader takes each piece just in time.
type slowReader struct {
	timed
	pieces int
}

func (s *slowReader) Write(p []byte) (int, error) {
	time.Sleep(writeTime - time.Second)
	if time.Now().After(s.until) {
		return 0, context.DeadlineExceeded
	}
	s.pieces++
	return len(p), nil
}

// TestLargeDocument: built once for all who ask.
func TestLargeDocument(t *testing.T) {
	l := newLimits(Config{})
	built := 0
	text := strings.Repeat("text ", 50<<10)
	d := &largeDocument{build: func() ([]byte, error) { built++; return []byte(text), nil }}
	for range 2 {
		rec := httptest.NewRecorder()
		w := &response{ResponseWriter: rec, places: l.answers}
		if err := d.serve(w, &request{Request: httptest.NewRequest(http.MethodGet, "/", nil)}, "text/x", &l); err != nil {
			t.Fatal(err)
		}
		if rec.Body.String() != text || rec.Header().Get("Content-Length") != strconv.Itoa(len(text)) ||
			rec.Header().Get("Content-Type") != "text/x" {
			t.Errorf("%d bytes, %v", rec.Body.Len(), rec.Header())
		}
	}
	if built != 1 || len(d.packed) > len(text)/10 {
		t.Errorf("built %d times, %d bytes are kept", built, len(d.packed))
	}
}

// TestReadInPlace: who holds a large answer has a place for it; who found none read again with one, and with a kind that was
// large the last time waits before it reads.
func TestReadInPlace(t *testing.T) {
	l := newLimits(Config{})
	h := &handler{large: map[*api.Kind]*atomic.Bool{api.Pods: {}}}
	was := h.largeBefore(api.Pods, api.Selection{})
	if was != h.large[api.Pods] || h.largeBefore(api.Pods, api.Selection{Fields: fields.Everything()}) == was ||
		h.largeBefore(api.Nodes, api.Selection{}) == nil {
		t.Error("it is remembered elsewhere")
	}
	reads, drops := 0, 0
	read := func(w *response, size int) {
		t.Helper()
		got, err := readInPlace(t.Context(), l.answers, w, was, func() (int, error) { reads++; return size, nil },
			func(n int) int { return n }, func(int) { drops++ })
		if got != size || err != nil || (w.place != nil) != (size >= largeAnswer) {
			t.Errorf("%d bytes, %v, in place: %t", got, err, w.place != nil)
		}
	}
	one, _ := timedAnswer(l.answers)
	two, _ := timedAnswer(l.answers)
	three, _ := timedAnswer(l.answers)
	read(one, 10)
	read(one, largeAnswer)
	read(two, largeAnswer)
	if reads != 3 || drops != 0 || !was.Load() {
		t.Errorf("%d reads, %d dropped", reads, drops)
	}
	was.Store(false)
	done := make(chan struct{})
	go func() { defer close(done); read(three, largeAnswer) }()
	for waits := 0; waits == 0; {
		l.answers.mu.Lock()
		waits = len(l.answers.waiters)
		l.answers.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	one.finish()
	<-done
	if reads != 5 || drops != 1 {
		t.Errorf("%d reads, %d dropped", reads, drops)
	}
	three.finish()
	read(one, 10) // was large, and is no longer
	if was.Load() || l.answers.taken[strangers] != 1 {
		t.Errorf("%+v", l.answers.share)
	}
}

// TestSizeOf: what decides whether an answer is large is near enough to what is sent.
func TestSizeOf(t *testing.T) {
	m := &corev1.ConfigMap{Data: map[string]string{"a": string(make([]byte, 100<<10))}}
	if n := sizeOf(m, m); n < 200<<10 || n > 201<<10 {
		t.Errorf("%d bytes", n)
	}
	if n := sizeOf(&api.NodeMetrics{}); n != 0 {
		t.Errorf("%d bytes", n)
	}
}
