package httpd

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

// notices keeps what others cause from filling the log: who does the same again and again is told of once in a while, and
// who does many things, or is many, not of all of them.
type notices struct {
	mu   sync.Mutex
	told map[string]time.Time
}

const (
	noticeEvery = 10 * time.Minute
	mostNotices = 128 // in that time
)

// due says whether there is to be a line about something now.
func (n *notices) due(about string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(n.told, func(_ string, at time.Time) bool { return now.Sub(at) >= noticeEvery })
	if _, told := n.told[about]; told || len(n.told) >= mostNotices {
		return false
	}
	if n.told == nil {
		n.told = map[string]time.Time{}
	}
	n.told[about] = now
	return true
}

// noteRefusal tells the operator of a board that wants what is not its own: who only reads the board's log may be the one who
// stole it. An administrator who stands in for a board is none, and reads the answer.
func (n *notices) noteRefusal(r *http.Request, caller api.User, a attributes, err error) {
	// That a namespace is going away is nobody's fault: events of its last pods come too late all the time.
	if !slices.Contains(caller.Groups, api.NodesGroup) || !apierrors.IsForbidden(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	what := a.resource
	if a.sub != "" {
		what += "/" + a.sub
	}
	if !n.due(strings.Join([]string{caller.Name, a.verb, what}, " ")) {
		return
	}
	s := statusOf(err)
	name := a.name
	if name == "" && s.Details != nil { // of what is created
		name = s.Details.Name
	}
	object := a.path
	if what != "" {
		object = strings.Trim(what+" "+strings.Trim(a.namespace+"/"+name, "/"), " ")
	}
	slog.Warn("a board was refused what is not its own", "node", strings.TrimPrefix(caller.Name, api.NodeUserPrefix), "from", r.RemoteAddr,
		"verb", a.verb, "object", short(object), "why", short(s.Message))
}
