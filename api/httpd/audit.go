package httpd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"ledge/api"
	"ledge/api/coordination"
)

// audited is one line of the audit log: the fields of Kubernetes' audit events at the level Metadata, as far as a board
// has them. There is no query in it (the command of an exec stands there), no header but the name of the program, and
// nothing of a body, so no secret and no token.
type audited struct {
	Kind        string            `json:"kind"`
	APIVersion  string            `json:"apiVersion"`
	Level       string            `json:"level"`
	ID          string            `json:"auditID"`
	Stage       string            `json:"stage"`
	Path        string            `json:"requestURI"`
	Verb        string            `json:"verb"`
	User        auditedUser       `json:"user"`
	As          *auditedUser      `json:"impersonatedUser,omitempty"`
	Sources     []string          `json:"sourceIPs,omitempty"`
	Agent       string            `json:"userAgent,omitempty"`
	Object      *auditedObject    `json:"objectRef,omitempty"`
	Status      *auditedStatus    `json:"responseStatus,omitempty"`
	Received    string            `json:"requestReceivedTimestamp"`
	At          string            `json:"stageTimestamp"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type auditedUser struct {
	Name   string   `json:"username"`
	Groups []string `json:"groups,omitempty"`
}

type auditedObject struct {
	Resource    string `json:"resource"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	Group       string `json:"apiGroup,omitempty"`
	Version     string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

type auditedStatus struct {
	Code int `json:"code"`
}

// What callers may make a line long with.
const (
	maxAuditText   = 256
	maxAuditGroups = 16
	maxAuditNote   = 1024
)

// audit is a request on its way into the log; a nil one is not logged.
type audit struct {
	log   *auditLog
	mu    sync.Mutex // notes come from wherever the request is worked on
	event audited
}

// auditLog takes a line for each request that changes something.
type auditLog struct{ to io.Writer } // nil: there is no log

// begin starts the line of a request that changes something, or opens a way into a pod. Who only reads leaves none,
// nor do the beats of nodes: a board's card could not bear it.
func (l *auditLog) begin(r *http.Request, u api.User, a attributes, version string) *audit {
	if l.to == nil || !isWrite(a) || isBeat(u, a) {
		return nil
	}
	now := stamp(time.Now())
	path := r.URL.Path
	if at := strings.Index(path, "/proxy/"); a.sub == "proxy" && at >= 0 {
		path = path[:at+len("/proxy")] // what is behind it is between the caller and the pod
	}
	e := audited{Kind: "Event", APIVersion: "audit.k8s.io/v1", Level: "Metadata", ID: rand.Text(), Path: short(path), Verb: a.verb,
		User: auditUser(u), Agent: short(r.UserAgent()), Received: now, At: now}
	if actor, ok := r.Context().Value(actorKey{}).(api.User); ok {
		as := e.User
		e.User, e.As = auditUser(actor), &as
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		e.Sources = []string{host}
	}
	if a.resource != "" {
		e.Object = &auditedObject{Resource: a.resource, Namespace: a.namespace, Name: a.name, Group: a.group, Version: version,
			Subresource: a.sub}
	}
	return &audit{log: l, event: e}
}

// actorKey carries the real sender of an impersonated request.
type actorKey struct{}

func auditUser(u api.User) auditedUser {
	out := auditedUser{Name: short(u.Name)}
	for _, g := range u.Groups[:min(len(u.Groups), maxAuditGroups)] {
		out.Groups = append(out.Groups, short(g))
	}
	return out
}

// isWrite says whether a request changes something or lets its caller act in a pod.
func isWrite(a attributes) bool {
	switch a.verb {
	case "get", "list", "watch", "head", "options":
		return false
	}
	return !isReview(a)
}

// isBeat: what nodes say of themselves all day.
func isBeat(u api.User, a attributes) bool {
	_, node := nodeName(u)
	return node && (a.resource == coordination.Leases.Resource || a.resource == api.Events.Resource || a.sub == "status" || a.sub == "token")
}

func short(s string) string {
	if len(s) > maxAuditText {
		return strings.ToValidUTF8(s[:maxAuditText], "") + "..."
	}
	return s
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// notes lets those who work on the request write into its line.
func (a *audit) notes(ctx context.Context) context.Context {
	if a == nil {
		return ctx
	}
	return api.WithNotes(ctx, a.note)
}

func (a *audit) note(key, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.event.Annotations == nil {
		a.event.Annotations = map[string]string{}
	}
	a.event.Annotations[key] = text[:min(len(text), maxAuditNote)]
}

// decided notes what authorisation said.
func (a *audit) decided(err error) {
	if a == nil {
		return
	}
	if err != nil {
		a.note("authorization.k8s.io/decision", "forbid")
		return
	}
	a.note("authorization.k8s.io/decision", "allow")
}

// named says the name of what was made.
func (a *audit) named(name string) {
	if a != nil && a.event.Object != nil {
		a.event.Object.Name = name
	}
}

// begin writes a line before the end: a session may take for ever.
func (a *audit) begin() {
	if a != nil {
		a.write("RequestReceived", nil)
	}
}

// end writes the line of a request that was answered with code.
func (a *audit) end(code int) {
	if a != nil {
		a.write("ResponseComplete", &auditedStatus{Code: code})
	}
}

func (a *audit) write(stage string, status *auditedStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.event.Stage, a.event.At, a.event.Status = stage, stamp(time.Now()), status
	line, err := json.Marshal(a.event)
	if err != nil {
		line = []byte(fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","error":%q}`, err))
	}
	// What cannot be logged does not stop a board; the log says itself what it lost.
	_, _ = a.log.to.Write(append(line, '\n'))
}
