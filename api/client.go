package api

import (
	"context"
	"io"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Client reads and writes objects. It is implemented in process (api/local), over HTTP (api/rest) and by
// whatever stands between; callers never know which they hold. Every implementation passes api/apitest.
//
// Objects handed in are not kept or changed; objects handed out belong to the caller. Every error is, or
// wraps, a Kubernetes API status (k8s.io/apimachinery/pkg/api/errors), so apierrors.IsNotFound and its
// siblings work on all of them. Objects that come out carry kind and apiVersion.
type Client interface {
	Get(ctx context.Context, kind *Kind, namespace, name string) (Object, error)
	List(ctx context.Context, kind *Kind, opts ListOptions) (List, error)
	// Watch delivers changes until ctx ends or the watch breaks.
	Watch(ctx context.Context, kind *Kind, opts WatchOptions) (Watch, error)

	// Create makes an object; the namespace is the object's own. With Subresource "binding" obj is a
	// *corev1.Binding, with "eviction" a *policyv1.Eviction: these act on the pod of that name and may
	// answer a nil Object. With "token" it is a *authenticationv1.TokenRequest for the service account of that
	// name, and so is the answer.
	Create(ctx context.Context, kind *Kind, obj Object, opts WriteOptions) (Object, error)
	// Update replaces spec and metadata, or with Subresource "status" the status (and labels and annotations,
	// N-1.8), or with "resize" the resources of a pod's containers, or with "ephemeralcontainers" those. With "scale" obj
	// and the answer are a *autoscalingv1.Scale, and the number of pods is set; Patch does the same. A resourceVersion in
	// obj must match; an empty one is unconditional.
	Update(ctx context.Context, kind *Kind, obj Object, opts WriteOptions) (Object, error)
	// Patch applies a JSON, merge or strategic merge patch, or by types.ApplyYAMLPatchType a manager's configuration
	// (server-side apply, as JSON), which also makes an object that is not there.
	Patch(ctx context.Context, kind *Kind, namespace, name string, patch Patch, opts WriteOptions) (Object, error)
	// Delete removes an object, or for a pod with grace marks it (N-7.23). It answers the object as it is
	// after the call while it still exists, and its last state when it is gone.
	Delete(ctx context.Context, kind *Kind, namespace, name string, opts DeleteOptions) (Object, error)
}

// Sparse is a Client that can say whether a kind has objects at all: until then nobody need follow it.
type Sparse interface {
	// WhenAny calls do once, when there is an object of a kind, and says whether there is none yet. do must not block.
	WhenAny(kind *Kind, do func()) (none bool)
}

// Wire is a Client that keeps its objects as JSON and can hand them out as that, where nobody needs them decoded: what a server sends
// is what its store holds. Nobody may change what it hands out. Errors are those of Get, List and Watch.
type Wire interface {
	GetJSON(ctx context.Context, kind *Kind, namespace, name string) ([]byte, error)
	ListJSON(ctx context.Context, kind *Kind, opts ListOptions) (Page[[]byte], error)
	WatchJSON(ctx context.Context, kind *Kind, opts WatchOptions) (Watcher[[]byte], error)
}

// Watch is one running watch.
type Watch = Watcher[Object]

// Watcher is a running watch of objects, in one form or the other. Close may be called at any time, more than once.
type Watcher[T any] interface {
	// Next blocks for the next event. After an error (ctx ended, connection broken, 410 Gone when the reader
	// fell behind) the watch is over: list again. Not safe for concurrent use.
	Next() (EventOf[T], error)
	Close()
}

// EventType says what happened to an object, in Kubernetes' words.
type EventType string

// The event types a watch delivers. An ERROR on the wire becomes the error of Next.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is one change of an object.
type Event = EventOf[Object]

// EventOf is one change. A Bookmark's object carries only a resourceVersion (and, at the end of the initial
// events, the annotation metav1.InitialEventsAnnotationKey).
type EventOf[T any] struct {
	Type   EventType
	Object T
}

// Selection narrows a list or watch. Nil selectors select everything.
type Selection struct {
	Namespace string // "" means all
	Labels    labels.Selector
	Fields    fields.Selector
}

// ListOptions narrows and pages a list.
type ListOptions struct {
	Selection
	Limit    int64
	Continue string
	Revision string
	Match    metav1.ResourceVersionMatch
}

// WatchOptions says where a watch begins and what it delivers.
type WatchOptions struct {
	Selection
	// Revision to start after. "" and "0" deliver the present state as Added events first.
	Revision string
	// InitialEvents asks for the present state as Added events, then a Bookmark that says so
	// (sendInitialEvents of Kubernetes).
	InitialEvents bool
	Bookmarks     bool
}

// List is one page of objects.
type List = Page[Object]

// Page is one page of a list, in one form or the other.
type Page[T any] struct {
	Items     []T
	Revision  string
	Continue  string
	Remaining *int64
}

// WritersAtOnce is how many objects are changed at a time where there are many to change: writers that wait for each other share a commit.
const WritersAtOnce = 64

// WriteOptions modifies a write.
type WriteOptions struct {
	Subresource string // "", "status", "resize", "ephemeralcontainers", and for Create "binding", "eviction" or "token"
	DryRun      bool
	Manager     string
	Force       bool  // of an apply: take over fields that others manage
	Made        *bool // where not nil, Patch says there whether it made the object
	NoCreate    error // of an apply: what refuses it where there is no object yet; nil: it makes one
	// Strict refuses a patch that names fields the kind does not have (fieldValidation=Strict); otherwise
	// they are dropped with a Warn. Bodies of create and update are decoded by the caller.
	Strict bool
}

// Patch is a change in one of Kubernetes' patch formats.
type Patch struct {
	Type types.PatchType
	Data []byte
}

// DeleteOptions modifies a delete.
type DeleteOptions struct {
	Grace *int64 // seconds; nil: the object's own
	// Propagation is what becomes of objects that belong to this one: they go soon after (Background), before it
	// (Foreground), or stay (Orphan). Empty, the kind decides: soon after, as a rule.
	Propagation metav1.DeletionPropagation
	UID         *types.UID
	Revision    *string
	DryRun      bool
}

// Propagations are all there are.
var Propagations = []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
	metav1.DeletePropagationOrphan}

// Streams carries bytes to and from containers, beside the object Client.
type Streams interface {
	// Logs reads a container's log. With Follow the reader goes on until the container has ended or ctx has.
	Logs(ctx context.Context, namespace, pod string, opts LogOptions) (io.ReadCloser, error)
}

// Execer runs commands in containers, and joins those that run.
type Execer interface {
	// Exec runs a command in a running container until it ends and tells its exit code. When ctx ends the command is
	// ended too.
	Exec(ctx context.Context, namespace, pod string, x Exec) (code int, err error)
	// Attach carries what a running container reads and writes from now on, until it ends, until Stdin does and the
	// container's stays open, or until ctx ends; the container goes on then.
	Attach(ctx context.Context, namespace, pod string, x Attach) error
}

// Exec is a command to run in a container.
type Exec struct {
	Container string // may be empty when the pod has one container
	Command   []string
	// Stdin is read until its end; nil: there is none. Stdout and Stderr take the output; nil throws it away. With TTY
	// everything comes from Stdout, and Resize tells the size of the terminal.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
	Resize         <-chan TerminalSize
}

// Attach is somebody who joins the streams of a container.
type Attach struct {
	Container string // may be empty when the pod has one container
	// Stdin is read until its end, and the container must have one; nil: nothing is written to it. Stdout and Stderr take
	// the output; nil throws it away. From a terminal everything comes from Stdout, and Resize tells its size.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan TerminalSize
}

// TerminalSize is that of a terminal, in characters.
type TerminalSize struct {
	Width, Height uint16
}

// Forwarder connects to ports inside pods.
type Forwarder interface {
	// Dial connects to a port of a pod as from inside of it.
	Dial(ctx context.Context, namespace, pod string, port uint16) (net.Conn, error)
}

// LogOptions says which part of which log.
type LogOptions struct {
	Container  string // may be empty when the pod has one container
	Follow     bool
	Previous   bool
	Timestamps bool
	TailLines  *int64
	Since      time.Time // zero: everything
	LimitBytes *int64
}

// User is who is asking.
type User struct {
	Name   string
	Groups []string
	UID    string
	Extra  map[string][]string
}

// AdminGroup may do everything, as on Kubernetes.
const AdminGroup = "system:masters"

// PageUser is the board's page on behalf of who has its password. It may look at what the page shows, and never at Secrets; as one of
// PageActs it may also do what the page has buttons for (api/httpd).
const (
	PageUser = "ledge:page"
	PageActs = "ledge:page:acts"
)

// Who the agents of boards are: users of this group, each named for its Node.
const (
	NodesGroup     = "system:nodes"
	NodeUserPrefix = "system:node:"
)

type userKey struct{}

// WithUser attaches the authenticated caller to a context.
func WithUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom is the caller of a request. ok is false for the process itself, which may do everything.
func UserFrom(ctx context.Context) (u User, ok bool) {
	u, ok = ctx.Value(userKey{}).(User)
	return u, ok
}

type warnKey struct{}

// WithWarnings attaches a receiver of warnings to a context: what a request was granted without, in words for
// the person who sent it. On HTTP they become Warning headers. It may hear the same twice: a transaction may be run again.
func WithWarnings(ctx context.Context, warn func(text string)) context.Context {
	return context.WithValue(ctx, warnKey{}, warn)
}

// Warn tells the receiver of a context, if there is one.
func Warn(ctx context.Context, text string) {
	if warn, ok := ctx.Value(warnKey{}).(func(string)); ok {
		warn(text)
	}
}

type noteKey struct{}

// WithNotes attaches a receiver of what is worth a note in the audit log, by Kubernetes' keys, to a context.
func WithNotes(ctx context.Context, note func(key, text string)) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// Note tells the receiver of a context, if there is one.
func Note(ctx context.Context, key, text string) {
	if note, ok := ctx.Value(noteKey{}).(func(string, string)); ok {
		note(key, text)
	}
}

// Get is Client.Get with the caller's type.
func Get[T Object](ctx context.Context, c Client, kind *Kind, namespace, name string) (T, error) {
	return as[T](c.Get(ctx, kind, namespace, name))
}

// Create is Client.Create with the caller's type.
func Create[T Object](ctx context.Context, c Client, kind *Kind, obj T) (T, error) {
	return as[T](c.Create(ctx, kind, obj, WriteOptions{}))
}

// Update is Client.Update with the caller's type.
func Update[T Object](ctx context.Context, c Client, kind *Kind, obj T) (T, error) {
	return as[T](c.Update(ctx, kind, obj, WriteOptions{}))
}

// UpdateStatus is Client.Update of the status, with the caller's type.
func UpdateStatus[T Object](ctx context.Context, c Client, kind *Kind, obj T) (T, error) {
	return as[T](c.Update(ctx, kind, obj, WriteOptions{Subresource: "status"}))
}

func as[T Object](obj Object, err error) (T, error) {
	var zero T
	if err != nil {
		return zero, err
	}
	t, ok := obj.(T)
	if !ok {
		return zero, NewInternal("got %T where %T was expected", obj, zero)
	}
	return t, nil
}
