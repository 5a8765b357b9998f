package httpd

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

// Limits of a request. A typed Pod costs over a hundred times the bytes of its body (measured: 3 MB of
// {"containers":[{},{}...]} cost 346 MB), so what is let in is small, counted before it is decoded, and decoded
// by few at once.
const (
	maxDepth      = 32         // of nesting; encoding/json alone allows 10,000
	maxTokens     = 4          // tokens being checked at once
	maxStrangers  = 4          // requests of those who do not say who they are
	maxDecoding   = 512 << 10  // bytes being decoded at once, those of YAML counted yamlWeight times; more only alone
	elementWeight = 64         // bytes that an element counts for at least: 8,192 empty containers at once cost some 15 MB
	yamlWeight    = 24         // three bytes of YAML can be an element, whose node is as large as dozens of them
	maxBodies     = 1536 << 10 // bytes of bodies held at once, small ones aside
	smallBody     = 16 << 10   // heartbeats and the like need no place among them
	maxYAML       = 64 << 10   // of a body in YAML, whose parser builds a node for every other byte
	maxFieldOwner = 128        // characters of fieldManager, as on Kubernetes
)

// bound is what a body may have: bytes, and elements (objects, lists and what they separate by commas; fields in
// protobuf, down to some depth).
type bound struct {
	bytes    int64
	elements int
	messages int
}

var (
	boundPod   = bound{256 << 10, 4096, maxDepth}
	boundData  = bound{1536 << 10, 16384, 1} // 1 MiB of ConfigMap or Secret, with base64 and JSON around it
	boundOther = bound{512 << 10, 8192, maxDepth}
	boundSmall = bound{64 << 10, 1024, maxDepth} // options, reviews, bindings, evictions
)

func boundOf(k *api.Kind) bound {
	switch k {
	case api.Pods:
		return boundPod
	case api.ConfigMaps, api.Secrets:
		return boundData
	case api.Scales:
		return boundSmall
	}
	return boundOther
}

// limits counts what is going on at this moment.
type limits struct {
	calls        chan struct{}       // requests of everybody
	nodes        chan struct{}       // the lane of the nodes: a flood of others must not delay a heartbeat
	tokens       chan struct{}       // being checked, of callers who are not known yet
	strangers    chan struct{}       // the lane of those who do not say who they are
	decodes      *semaphore.Weighted // of maxDecoding
	looks        chan struct{}       // lists being read from the store
	answers      *answers
	bodies       *semaphore.Weighted
	queue        chan struct{} // who waits for one of the two
	watches      *perUser
	logs         *perUser
	sessions     *perUser
	adminWatches int // of one administrator
	rates        rates
}

func newLimits(c Config) limits {
	or := func(n, otherwise int) int {
		if n > 0 {
			return n
		}
		return otherwise
	}
	calls := or(c.MaxInFlight, 64)
	return limits{
		calls:        make(chan struct{}, calls),
		nodes:        make(chan struct{}, calls),
		tokens:       make(chan struct{}, maxTokens),
		strangers:    make(chan struct{}, maxStrangers),
		decodes:      semaphore.NewWeighted(maxDecoding),
		bodies:       semaphore.NewWeighted(maxBodies),
		queue:        make(chan struct{}, max(1, calls/2)),
		looks:        make(chan struct{}, maxAnswers),
		answers:      newAnswers(maxAnswers),
		watches:      &perUser{each: or(c.MaxWatches, 32), total: 8 * or(c.MaxWatches, 32)},
		logs:         &perUser{each: or(c.MaxLogs, 16), total: 4 * or(c.MaxLogs, 16)},
		sessions:     &perUser{each: or(c.MaxSessions, 16), total: 2 * or(c.MaxSessions, 16)},
		adminWatches: or(c.MaxWatches, 128),
	}
}

// enter takes a place for a request, or refuses it with 429. Watches and followed logs have places of their own
// because they keep them.
func (l *limits) enter(r *request) (done func(), err error) {
	name, pace := paceOf(r)
	if wait := l.rates.take(name, pace, time.Now()); wait > 0 {
		return nil, apierrors.NewTooManyRequests("too many requests of "+r.user.Name+", please slow down", int(math.Ceil(wait.Seconds())))
	}
	switch {
	case r.route.long == "watch":
		// Administrators run many tools under one name; still, they leave half to the others.
		if slices.Contains(r.user.Groups, api.AdminGroup) {
			return l.watches.enterUpTo(l.adminWatches, r.user.Name, "watches")
		}
		return l.watches.enter(r.user.Name, "watches")
	case r.route.long == "session":
		return l.sessions.enter(r.user.Name, "sessions (exec, port-forward, proxy)")
	case r.route.long == "log" && follows(r):
		return l.logs.enter(r.user.Name, "followed logs")
	}
	lane := l.calls
	if _, ok := nodeName(r.user); ok {
		lane = l.nodes
	} else if isAnonymous(r.user) {
		lane = l.strangers
	}
	select {
	case lane <- struct{}{}:
		return func() { <-lane }, nil
	default:
		return nil, apierrors.NewTooManyRequests("too many requests at once, please try again", 1)
	}
}

func follows(r *request) bool {
	follow, err := queryBool(r.query, "follow")
	return err == nil && follow
}

// perUser counts long answers by identity.
type perUser struct {
	each, total int

	mu    sync.Mutex
	users map[string]int
	all   int
}

func (p *perUser) enter(user, what string) (done func(), err error) {
	return p.enterUpTo(p.each, user, what)
}

// enterUpTo is enter with another limit for this user.
func (p *perUser) enterUpTo(most int, user, what string) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users[user] >= most || p.all >= p.total {
		return nil, apierrors.NewTooManyRequests("too many "+what+" at once, please close some", 5)
	}
	if p.users == nil {
		p.users = map[string]int{}
	}
	p.users[user]++
	p.all++
	return func() { p.leave(user) }, nil
}

func (p *perUser) leave(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.users[user]--; p.users[user] == 0 {
		delete(p.users, user)
	}
}

// looking waits until a list may be read from the store.
func (l *limits) looking(ctx context.Context) (done func(), err error) {
	select {
	case l.looks <- struct{}{}:
		return func() { <-l.looks }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// weightOf is what a body counts for among those being decoded: its bytes, or what it unfolds to if that is more. What has
// more elements than may be will be refused, so it counts for no more than it is.
func weightOf(data []byte, media string, b bound) int64 {
	weight, elements := len(data), 0
	switch {
	case strings.HasSuffix(media, "yaml"):
		weight *= yamlWeight
	case media == mediaProtobuf:
		// The envelope is a message too.
		if n, _ := protobufFields(bytes.TrimPrefix(data, []byte(api.ProtobufMark)), b.elements+envelopeFields, b.messages+1); n <= b.elements+envelopeFields {
			elements = n
		}
	default:
		elements, _ = countJSON(data, b.elements)
	}
	return int64(min(max(weight, elements*elementWeight), maxDecoding))
}

// decoding waits until a body of some weight may be decoded.
func (l *limits) decoding(r *http.Request, weight int64) (done func(), err error) {
	if err := l.acquire(r.Context(), l.decodes, weight); err != nil {
		return nil, err
	}
	return func() { l.decodes.Release(weight) }, nil
}

// acquire waits for part of what is shared by bodies. Half of the requests at most wait there, nodes aside: otherwise those
// who send large ones would take the places of all others too.
func (l *limits) acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	if u, ok := api.UserFrom(ctx); ok {
		if _, node := nodeName(u); node {
			return s.Acquire(ctx, n)
		}
	}
	select {
	case l.queue <- struct{}{}:
		defer func() { <-l.queue }()
		return s.Acquire(ctx, n)
	default:
		return apierrors.NewTooManyRequests("too many bodies at once, please try again", 1)
	}
}
