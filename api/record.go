package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How much a Recorder holds and how often it writes. A repeated event costs a write to the board's flash each time
// its count is raised, so the waits between such writes grow.
const (
	eventsHeld       = 512              // entries; the oldest makes room
	eventMemory      = time.Hour        // a repetition after this is a new event
	firstRepeatWait  = 10 * time.Second // between an event and the next write of its count
	longestRepeat    = 5 * time.Minute
	similarMax       = 10 // different messages of one reason on one object before they are combined
	eventMessageMax  = 1024
	eventNameMax     = 253 - 17 // the suffix has 17
	eventFlushWindow = 2 * time.Second
	combinedPrefix   = "(combined from similar events): "
)

// Recorder writes Events for users to read. Event never blocks and never fails: what cannot be written now is kept
// and written later, within bounds. Repetitions raise the count of the one Event there is (N-11.39).
type Recorder struct {
	client          Client
	component, host string
	wake            chan struct{} // capacity 1

	mu      sync.Mutex
	entries map[eventKey]*eventEntry
	order   []*eventEntry         // by first occurrence
	similar map[eventKey][]string // messages seen, by key without message
	dropped int                   // never written, since the last time that was logged
}

type eventKey struct {
	namespace, kind, name, fieldPath string
	uid                              types.UID
	eventType, reason, message       string
}

type eventEntry struct {
	key         eventKey
	ref         corev1.ObjectReference
	message     string
	annotations map[string]string
	count       int32
	first, last time.Time
	written     string    // name of the Event, once there is one
	writtenAs   int32     // count in it
	due         time.Time // not written before
	wait        time.Duration
}

func (e *eventEntry) dirty() bool { return e.count != e.writtenAs }

// NewRecorder prepares a recorder for one component on one host ("" for the control plane); Run writes.
func NewRecorder(c Client, component, host string) *Recorder {
	return &Recorder{client: c, component: component, host: host, wake: make(chan struct{}, 1),
		entries: map[eventKey]*eventEntry{}, similar: map[eventKey][]string{}}
}

// Event records that something happened to an object.
func (r *Recorder) Event(object Object, eventType, reason, message string) {
	ref := corev1.ObjectReference{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion()}
	ref.APIVersion, ref.Kind = object.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	for _, kind := range []*Kind{Nodes, Pods} { // those that callers make themselves do not say what they are
		if kind.Is(object) {
			ref.APIVersion, ref.Kind = kind.APIVersion(), kind.Name
		}
	}
	r.EventOn(ref, eventType, reason, message)
}

// Eventf is Event with a formatted message.
func (r *Recorder) Eventf(object Object, eventType, reason, format string, args ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// EventOn records an event on whatever ref names, such as one container of a pod by FieldPath.
func (r *Recorder) EventOn(ref corev1.ObjectReference, eventType, reason, message string) {
	r.Annotated(ref, nil, eventType, reason, message)
}

// Annotated is EventOn with annotations, which programs can read more easily than the message.
func (r *Recorder) Annotated(ref corev1.ObjectReference, annotations map[string]string, eventType, reason, message string) {
	r.mu.Lock()
	r.add(ref, eventType, reason, clip(message, eventMessageMax), time.Now()).annotations = annotations
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Recorder) add(ref corev1.ObjectReference, eventType, reason, message string, now time.Time) *eventEntry {
	k := eventKey{namespace: ref.Namespace, kind: ref.Kind, name: ref.Name, fieldPath: ref.FieldPath, uid: ref.UID,
		eventType: eventType, reason: reason}
	if seen := r.similar[k]; slices.Contains(seen, message) {
		k.message = message
	} else if len(seen) < similarMax {
		r.similar[k] = append(seen, message)
		k.message = message
	} else {
		k.message = combinedPrefix
		message = clip(combinedPrefix+message, eventMessageMax)
	}
	e := r.entries[k]
	if e != nil && now.Sub(e.last) > eventMemory {
		r.remove(e)
		e = nil
	}
	if e == nil {
		e = &eventEntry{key: k, first: now, due: now, wait: firstRepeatWait}
		r.entries[k] = e
		r.order = append(r.order, e)
		if len(r.order) > eventsHeld {
			r.makeRoom()
		}
	}
	e.ref, e.message, e.last = ref, message, now
	e.count++
	return e
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// makeRoom drops the oldest entry, one that has been written if there is any.
func (r *Recorder) makeRoom() {
	victim := r.order[0]
	if i := slices.IndexFunc(r.order, func(e *eventEntry) bool { return !e.dirty() }); i >= 0 {
		victim = r.order[i]
	} else {
		r.dropped++
	}
	r.remove(victim)
}

func (r *Recorder) remove(e *eventEntry) {
	delete(r.entries, e.key)
	group := e.key
	group.message = ""
	left := slices.DeleteFunc(r.similar[group], func(m string) bool { return m == e.key.message })
	if r.similar[group] = left; len(left) == 0 {
		delete(r.similar, group)
	}
	r.order = slices.DeleteFunc(r.order, func(o *eventEntry) bool { return o == e })
}

// Run writes events until ctx ends, and then, for a moment, what is still unwritten.
func (r *Recorder) Run(ctx context.Context) error {
	const firstRetry, longestRetry = time.Second, 30 * time.Second
	retry := firstRetry
	timer := time.NewTimer(longestRetry) // what came before Run has left its mark in wake
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventFlushWindow)
			defer cancel()
			r.flush(last, true)
			return nil
		case <-r.wake:
		case <-timer.C:
		}
		next, err := r.flush(ctx, false)
		if err != nil {
			// The server is away. Pausing here keeps a storm of events from becoming a storm of requests.
			if !pause(ctx, retry) {
				continue
			}
			next, retry = 0, min(2*retry, longestRetry)
		} else {
			retry = firstRetry
		}
		timer.Reset(next)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// flush writes all entries that are due, in order of first occurrence, and says when the next will be. An error means
// that trying others now is pointless.
func (r *Recorder) flush(ctx context.Context, all bool) (next time.Duration, err error) {
	for {
		e, wait := r.pick(all)
		if e == nil {
			return wait, nil
		}
		name, err := r.write(ctx, &e.eventEntry)
		if err != nil && !refused(err) {
			return 0, err
		}
		if err != nil {
			// Its namespace is going away, most likely. No later try can do better.
			slog.Debug("event not written", "reason", e.key.reason, "object", e.key.name, "err", err)
		}
		r.done(e, name)
	}
}

// snapshot is an entry as it was when a write of it began.
type snapshot struct {
	eventEntry
	live *eventEntry
}

func (r *Recorder) pick(all bool) (*snapshot, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped > 0 {
		slog.Warn("events were dropped, too many are unwritten", "component", r.component, "count", r.dropped)
		r.dropped = 0
	}
	now, wait := time.Now(), eventMemory
	for _, e := range r.order {
		if !e.dirty() {
			continue
		}
		if all || !e.due.After(now) {
			return &snapshot{eventEntry: *e, live: e}, 0
		}
		wait = min(wait, e.due.Sub(now))
	}
	return nil, wait
}

func (r *Recorder) done(s *snapshot, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := s.live
	e.written, e.writtenAs = name, s.count
	if s.writtenAs > 0 {
		e.wait = min(2*e.wait, longestRepeat)
	}
	e.due = time.Now().Add(e.wait)
}

// refused: the server understood and will not have it.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// write creates the Event, or raises the count of the one there is; one that has expired meanwhile is made again.
func (r *Recorder) write(ctx context.Context, e *eventEntry) (name string, err error) {
	namespace := e.ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // N-11.38
	}
	if e.written != "" {
		data, err := json.Marshal(map[string]any{"count": e.count, "message": e.message, "lastTimestamp": metav1.NewTime(e.last)})
		if err != nil {
			return "", err
		}
		_, err = r.client.Patch(ctx, Events, namespace, e.written, Patch{Type: types.MergePatchType, Data: data}, WriteOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return e.written, err
		}
	}
	for stamp := e.last.UnixNano(); ; stamp++ {
		ev := r.event(e, namespace, fmt.Sprintf("%s.%016x", clip(e.ref.Name, eventNameMax), uint64(stamp)))
		if _, err = r.client.Create(ctx, Events, ev, WriteOptions{}); !apierrors.IsAlreadyExists(err) {
			return ev.Name, err
		}
	}
}

func (r *Recorder) event(e *eventEntry, namespace, name string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: e.annotations},
		InvolvedObject:      e.ref,
		Type:                e.key.eventType,
		Reason:              e.key.reason,
		Message:             e.message,
		Count:               e.count,
		FirstTimestamp:      metav1.NewTime(e.first),
		LastTimestamp:       metav1.NewTime(e.last),
		Source:              corev1.EventSource{Component: r.component, Host: r.host},
		ReportingController: r.component,
		ReportingInstance:   r.host,
	}
}
