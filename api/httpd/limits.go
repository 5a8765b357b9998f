package httpd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

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

	maxTokensWaiting = 256  // requests that wait for their token to be checked
	mostBoards       = 1024 // of one control plane, for which there are places
	watchesOfBoard   = 8    // on the average: its Node, its pods and what they name
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

// limits counts what is going on at this moment. What there may be of it together is bounded by memory; the terms say who may have
// how much of that, so that nobody without rights keeps a board, an administrator or root waiting.
type limits struct {
	calls    *pool // requests being answered, those below aside
	watches  *pool
	logs     *pool // that are followed
	sessions *pool
	tokens   *pool // being checked
	looks    *pool // lists being read from the store
	bodies   *pool // bytes of them
	decodes  *pool // of maxDecoding
	answers  *answers
	streams  *streams // to other boards
	rates    rates
}

func newLimits(c Config) limits {
	calls := cmp.Or(max(0, c.MaxInFlight), 64)
	bodies, decodes := newPool("bodies", maxBodies, [ranks]terms{}), newPool("bodies", maxDecoding, [ranks]terms{})
	bodies.queue = newQueue(calls)
	decodes.queue = bodies.queue
	return limits{
		calls:    newCalls(calls),
		watches:  newWatches(cmp.Or(max(0, c.MaxWatches), 32), cmp.Or(max(0, c.MaxWatches), 128)),
		logs:     newLogs(cmp.Or(max(0, c.MaxLogs), 16)),
		sessions: newSessions(cmp.Or(max(0, c.MaxSessions), 16)),
		tokens:   newTokens(),
		looks:    newPool("lists", maxAnswers, [ranks]terms{}),
		bodies:   bodies,
		decodes:  decodes,
		answers:  newAnswers(maxAnswers),
		streams:  &streams{},
	}
}

// newTokens: pods that are known, and those who come for the first time, do not keep each other out.
func newTokens() *pool {
	p := newPool("tokens", maxTokens-2, [ranks]terms{strangers: {least: 1}, serviceAccounts: {least: 1}})
	p.queue = newPool("tokens", maxTokensWaiting, [ranks]terms{strangers: {half: true}, serviceAccounts: {half: true}})
	return p
}

// newQueue is for requests that wait with their bodies, at most half of them: otherwise those who send large ones would take the
// places of all others too. Every board may wait.
func newQueue(calls int) *pool {
	n := max(1, calls/2)
	t := crowd(n)
	t[boards] = terms{least: 2 * calls}
	p := newPool("bodies", n, t)
	p.retry = 1
	return p
}

func newCalls(n int) *pool {
	p := newPool("requests", n, crowd(n))
	p.retry = 1
	return p
}

// crowd are the terms of what many do for a moment: n places for all, and some kept for each rank. Nodes have a lane of their own: a
// flood of others must not delay a heartbeat. Strangers have a narrow one, and nothing else.
func crowd(n int) [ranks]terms {
	return [ranks]terms{
		strangers:       {least: maxStrangers, most: maxStrangers, half: true},
		serviceAccounts: {least: n / 8, half: true},
		users:           {least: n / 8, half: true},
		boards:          {least: n, half: true},
		administrators:  {least: n, half: true},
		root:            {least: n / 8},
	}
}

// newWatches: each user or board may have some, and a namespace's accounts twice as many. Administrators run many tools under one
// name. A watch that is ended begins again where it was, so places are taken back. Boards are not counted among the others: a
// control plane has as many as there are boards, each of them bounded.
func newWatches(each, admin int) *pool {
	p := newPool("watches", 3*each, [ranks]terms{
		serviceAccounts: {least: 2 * each, each: 2 * each},
		users:           {least: each / 2, each: each},
		boards:          {least: mostBoards * watchesOfBoard, each: each},
		administrators:  {least: 2 * each, each: admin},
		root:            {least: each / 2, each: admin},
	})
	p.takenBack = true
	return p
}

// newLogs: who follows a log that is cut may follow it again, and is told by the cut that this was not its end.
func newLogs(each int) *pool {
	p := newPool("followed logs", 2*each, [ranks]terms{
		serviceAccounts: {least: each, each: 2 * each},
		users:           {least: each / 2, each: each},
		administrators:  {least: each, each: each},
		root:            {least: each / 2, each: each},
	})
	p.takenBack = true
	return p
}

// newSessions: nobody's is cut for another's.
func newSessions(each int) *pool {
	return newPool("sessions (exec, port-forward, proxy)", each, [ranks]terms{
		serviceAccounts: {least: each / 2, each: each, half: true},
		users:           {least: each / 4, each: each, half: true},
		administrators:  {least: each / 2, each: each, half: true},
		root:            {least: each / 4, each: each},
	})
}

// partyKey marks a request with the party that it counts for.
type partyKey struct{}

func withParty(ctx context.Context, p party) context.Context {
	return context.WithValue(ctx, partyKey{}, p)
}

// partyIn is who made a request: a stranger where that is not known.
func partyIn(ctx context.Context) party {
	p, _ := ctx.Value(partyKey{}).(party)
	return p
}

// enter takes a place for a request, or refuses it with 429. Watches and followed logs have places of their own because they keep
// them; r ends with its place.
func (l *limits) enter(r *request) (*place, error) {
	who := partyIn(r.Context())
	name, pace := paceOf(r, who)
	if wait := l.rates.take(name, pace, time.Now()); wait > 0 {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("too many requests of %s, please slow down", who), int(math.Ceil(wait.Seconds())))
	}
	ctx, lose := context.WithCancelCause(r.Context())
	pool := l.poolOf(r)
	pl, err := pool.enter(who, func() { lose(errPlaceLost) })
	if err != nil {
		lose(err)
		return nil, err
	}
	r.Request = r.WithContext(ctx)
	return pl, nil
}

// poolOf is where a request has its place.
func (l *limits) poolOf(r *request) *pool {
	switch {
	case r.route.long == "watch":
		return l.watches
	case r.route.long == "session":
		return l.sessions
	case r.route.long == "log" && follows(r):
		return l.logs
	}
	return l.calls
}

// errPlaceLost is for who held on to the most, and made room for another.
var errPlaceLost = apierrors.NewTooManyRequests("others need the place of this request, please try again", 5)

func follows(r *request) bool {
	follow, err := queryBool(r.query, "follow")
	return err == nil && follow
}

// looking waits until a list may be read from the store.
func (l *limits) looking(ctx context.Context) (done func(), err error) {
	pl, err := l.looks.wait(ctx, partyIn(ctx), 1, nil)
	if err != nil {
		return nil, err
	}
	return pl.leave, nil
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
		if n, _ := protobufFields(bytes.TrimPrefix(data, []byte(api.ProtobufMark)), b.elements+envelopeFields,
			b.messages+1); n <= b.elements+envelopeFields {
			elements = n
		}
	default:
		elements, _ = countJSON(data, b.elements)
	}
	return int64(min(max(weight, elements*elementWeight), maxDecoding))
}

// decoding waits until a body of some weight may be decoded.
func (l *limits) decoding(r *http.Request, weight int64) (done func(), err error) {
	return acquire(r.Context(), l.decodes, weight, nil)
}

// acquire waits for part of what is shared by bodies.
func acquire(ctx context.Context, p *pool, n int64, press func(left time.Duration)) (done func(), err error) {
	pl, err := p.wait(ctx, partyIn(ctx), int(n), press)
	if err != nil {
		return nil, err
	}
	return pl.leave, nil
}
