package httpd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/table"
)

// writeTime is how long a client may take to accept one piece of an answer: a whole object, or one event of a
// watch. Who is slower is cut off, so that it holds neither memory nor the place of others.
const writeTime = 30 * time.Second

// response remembers whether the answer has begun, because a Status can only be sent before.
type response struct {
	http.ResponseWriter
	begun bool
	code  int    // 0: none was written
	audit *audit // nil: no line in the log

	warned []string
	quiet  bool // about unknown fields: the client asked for that
	plain  bool // an error is a line of text: who asks puts it into a Status of its own

	party  party    // whose request is answered
	places *answers // where large answers wait; nil: nowhere
	place  *place   // that it has there; nil: none
	done   func()   // gives back what its request was granted to be decoded; nil: nothing

	mu       sync.Mutex
	writing  bool      // a piece of the answer has a deadline
	deadline time.Time // which is this
	until    time.Time // when all must be over, for somebody of a higher rank waits for its place
}

// status is what the answer came to.
func (w *response) status() int {
	switch {
	case w.code != 0:
		return w.code
	case w.begun: // the connection was taken over
		return http.StatusSwitchingProtocols
	}
	return http.StatusOK
}

// warn adds what the client was granted without to its answer, as kubectl prints it.
func (w *response) warn(text string) {
	const most = 16
	if w.begun || len(w.warned) >= most || slices.Contains(w.warned, text) || w.quiet && strings.HasPrefix(text, "unknown field ") {
		return
	}
	w.warned = append(w.warned, text)
	w.Header().Add("Warning", "299 - "+quoteWarning(text, maxWarning))
}

// hold keeps what a request was granted until its answer begins: what is made of a body costs more than the body.
func (w *response) hold(done func()) { w.done = done }

// release gives that back. An answer is written at its reader's pace, and must not hold up others meanwhile.
func (w *response) release() {
	if w.done != nil {
		w.done()
		w.done = nil
	}
}

// finish ends an answer, however it went.
func (w *response) finish() {
	w.release()
	w.idle()
	if w.places != nil {
		w.places.leave(w)
	}
}

// idle says that nothing is being written.
func (w *response) idle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
}

func (w *response) WriteHeader(code int) {
	w.begun = true
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *response) Write(p []byte) (int, error) {
	w.begun = true
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// flush sends what was written so far. Afterwards the client may be idle for as long as it likes: an HTTP/2 stream
// whose deadline passes is reset even if nothing is being written.
func (w *response) flush() error {
	c := http.NewResponseController(w.ResponseWriter)
	err := c.Flush()
	w.idle()
	c.SetWriteDeadline(time.Time{})
	return err
}

// fail answers with the Status of an error. When the answer has begun already nothing can be said any more: the
// connection is cut, so that the client sees a broken answer and not a short one.
func (w *response) fail(err error) {
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	var m *methodError
	if errors.As(err, &m) {
		w.Header().Set("Allow", m.allow)
	}
	s := statusOf(err)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	if w.plain {
		w.body(int(s.Code), "text/plain; charset=utf-8", []byte(s.Message+"\n"))
		return
	}
	w.json(int(s.Code), s, false)
}

// json writes one value.
func (w *response) json(code int, v any, pretty bool) error {
	data, err := encode(v, pretty)
	if err != nil {
		return err
	}
	w.body(code, mediaJSON, data)
	return nil
}

// body writes a finished answer. An error of the connection is nobody's to handle: the client is gone.
func (w *response) body(code int, media string, data []byte) {
	w.head(code, media, len(data))
	(&pacer{w}).Write(data)
}

// head begins an answer; a length below 0 is not known yet.
func (w *response) head(code int, media string, length int) {
	w.release()
	head := w.Header()
	head.Set("Content-Type", media)
	if length >= 0 {
		head.Set("Content-Length", strconv.Itoa(length))
	}
	if head.Get("Cache-Control") == "" {
		head.Set("Cache-Control", "no-cache, private")
	}
	w.extend()
	w.WriteHeader(code)
}

func encode(v any, pretty bool) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, api.NewInternal("encode %T: %v", v, err)
	}
	if pretty {
		var b bytes.Buffer
		if json.Indent(&b, data, "", "  ") == nil {
			data = b.Bytes()
		}
	}
	return append(data, '\n'), nil
}

// forms answers with objects in the form that was asked for: as they are, as rows of a table, or their metadata alone.
type forms struct {
	answers *answers
	stock   bool // print tables as Kubernetes does (Config.StockPrinter)
}

// object answers with one object, in the form the client asked for.
func (f *forms) object(w *response, r *request, code int, obj api.Object) error {
	if r.binary() {
		data, err := api.ToProtobuf(r.kind, obj)
		if err == nil {
			w.body(code, mediaProtobuf, data)
		}
		return err
	}
	form, err := r.form()
	if err != nil {
		return err
	}
	r.kind.Stamp(obj)
	large := sizeOf(obj) >= largeAnswer
	if large {
		// What its body was granted keeps the number of those who wait here down. Who wrote something is told so in any case.
		_ = f.answers.enter(r.Context(), w)
	}
	w.release()
	v, err := f.shape(form, r.kind, obj, true)
	if err != nil {
		return err
	}
	pretty, err := queryBool(r.query, "pretty")
	if err != nil {
		return err
	}
	if large && !pretty {
		w.head(code, form.contentType(), -1)
		return json.NewEncoder(&pacer{w}).Encode(v)
	}
	data, err := encode(v, pretty)
	if err != nil {
		return err
	}
	w.body(code, form.contentType(), data)
	return nil
}

// shape turns an object into what goes out for it: itself, a Table of one row or its metadata.
func (f *forms) shape(form form, k *api.Kind, obj api.Object, header bool) (any, error) {
	switch form.as {
	case asTable:
		meta := metav1.ListMeta{ResourceVersion: obj.GetResourceVersion()}
		return tableOf(k, form, []api.Object{obj}, meta, header, f.look())
	case asMetadata:
		return partial(obj, form.version), nil
	}
	return obj, nil
}

func (f *forms) look() table.Look { return table.Look{Now: time.Now(), Stock: f.stock} }

// objects answers with a list. It is written item by item: a thousand pods in one buffer are megabytes.
func (f *forms) objects(w *response, r *request, list api.List) error {
	w.release()
	form, err := r.form()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", form.contentType())
	w.Header().Set("Cache-Control", "no-cache, private")
	head := headOf(r.kind, list)
	switch form.as {
	case asTable:
		t, err := tableOf(r.kind, form, list.Items, head.Metadata, true, f.look())
		if err != nil {
			return err
		}
		rows := t.Rows
		t.Rows = nil
		return writeList(w, t, "rows", len(rows), encoding(func(i int) any { return rows[i] }))
	case asMetadata:
		head.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: form.apiVersion()}
		return writeList(w, head, "items", len(list.Items), encoding(func(i int) any {
			return partial(list.Items[i], form.version)
		}))
	}
	return writeList(w, head, "items", len(list.Items), encoding(func(i int) any {
		r.kind.Stamp(list.Items[i])
		return list.Items[i]
	}))
}

// headOf is the list of a kind without its items.
func headOf[T any](k *api.Kind, list api.Page[T]) listHead {
	return listHead{metav1.TypeMeta{Kind: k.Name + "List", APIVersion: k.APIVersion()},
		metav1.ListMeta{ResourceVersion: list.Revision, Continue: list.Continue, RemainingItemCount: list.Remaining}}
}

// encoding writes items as JSON. Unlike Marshal, an Encoder makes no second copy of a large one.
func encoding(item func(i int) any) func(*bufio.Writer, int) error {
	return func(out *bufio.Writer, i int) error { return json.NewEncoder(out).Encode(item(i)) }
}

// listHead is a list without its items.
type listHead struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
}

// writeList writes head, which must be a JSON object, with a list of n values added to it under key.
func writeList(w *response, head any, key string, n int, item func(out *bufio.Writer, i int) error) error {
	start, err := json.Marshal(head)
	if err != nil {
		return api.NewInternal("encode %T: %v", head, err)
	}
	// The table's own null rows would be a second key of that name.
	start = bytes.TrimSuffix(bytes.Replace(start, []byte(`,"rows":null`), nil, 1), []byte("}"))
	out := newPiece(w)
	out.Write(start)
	out.WriteString(`,"` + key + `":[`)
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := item(out, i); err != nil {
			return api.NewInternal("encode item of a list: %v", err)
		}
	}
	out.WriteString("]}\n")
	return endPiece(out)
}

var pieces = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, pieceSize) }}

// newPiece gathers what is written of a long answer. A full piece goes by itself.
func newPiece(w *response) *bufio.Writer {
	out := pieces.Get().(*bufio.Writer)
	out.Reset(&pacer{w})
	return out
}

// endPiece hands on what was gathered, and gives the memory back.
func endPiece(out *bufio.Writer) error {
	err := out.Flush()
	out.Reset(nil)
	pieces.Put(out)
	return err
}

// pacer gives each piece of a long answer its own time.
type pacer struct{ w *response }

const pieceSize = 32 << 10

func (p *pacer) Write(data []byte) (n int, err error) {
	for first := true; first || n < len(data) && err == nil; first = false {
		var m int
		p.w.extend()
		m, err = p.w.Write(data[n:min(n+pieceSize, len(data))])
		n += m
	}
	return n, err
}

var _ io.Writer = (*pacer)(nil)

// partial is the metadata of an object alone.
func partial(obj api.Object, version string) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/" + version}}
	if m, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if om, ok := m.GetObjectMeta().(*metav1.ObjectMeta); ok {
			out.ObjectMeta = *om
		}
	}
	return out
}

// success is the Status of a call that has nothing else to say.
func success(code int) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: int32(code)}
}

var _ apierrors.APIStatus = (*methodError)(nil)
