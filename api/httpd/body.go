package httpd

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

// bodyTime is how long a body may take to arrive.
const bodyTime = 10 * time.Second

// The media types a body may have, patches aside.
const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = api.MediaProtobuf
)

// awaitBody starts the time that a body has to arrive, also one that nobody will read: net/http drains it before it
// answers, and would wait for the rest of it for ever. readBody ends it when all is there; after a failure it
// stays, so that nothing waits again. Its error means that the connection has no deadlines, as in a test.
func awaitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// intake takes in the bodies of requests, as many at once as there is room for.
type intake struct{ limits *limits }

// readToDecode takes in a body within its bound and waits until it may be decoded. done gives back both grants.
func (in *intake) readToDecode(w http.ResponseWriter, r *request, b bound, media string) (data []byte, done func(), err error) {
	data, free, err := in.readBody(w, r, b.bytes)
	if err != nil {
		return nil, nil, err
	}
	decoded, err := in.limits.decoding(r.Request, weightOf(data, media, b))
	if err != nil {
		free()
		return nil, nil, err
	}
	return data, func() { decoded(); free() }, nil
}

// readBody takes in a body of at most limit bytes. done gives back the memory it was granted; call it when the
// bytes are no longer needed.
func (in *intake) readBody(w http.ResponseWriter, r *request, limit int64) (data []byte, done func(), err error) {
	tooLarge := apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body may have %d bytes", limit))
	if r.ContentLength > limit {
		return nil, nil, tooLarge
	}
	done = func() {}
	reserve := r.ContentLength
	if reserve < 0 {
		reserve = limit
	}
	on := arrival{w: w, until: time.Now().Add(bodyTime)}
	if reserve > smallBody {
		if done, err = acquire(r.Context(), in.limits.bodies, reserve, on.press); err != nil {
			return nil, nil, err
		}
	}
	var buf bytes.Buffer
	buf.Grow(int(max(0, r.ContentLength)) + bytes.MinRead) // growing step by step leaves twice as much behind
	_, err = buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	on.end(err == nil)
	if err == nil {
		return buf.Bytes(), done, nil
	}
	done()
	var max *http.MaxBytesError
	switch {
	case errors.As(err, &max):
		return nil, nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, nil, status(http.StatusRequestTimeout, "Timeout",
			fmt.Sprintf("the body did not arrive within %s, of which %s are left when others wait for its place", bodyTime, hurryTime))
	}
	return nil, nil, badRequest("read the body: %v", err)
}

// arrival is a body on its way.
type arrival struct {
	w http.ResponseWriter

	mu    sync.Mutex
	until time.Time // when it must be there; zero: it is, or is given up
}

// press shortens its time when somebody waits for what it holds.
func (a *arrival) press(left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if soon := time.Now().Add(left); left > 0 && soon.Before(a.until) {
		a.until = soon
		http.NewResponseController(a.w).SetReadDeadline(soon)
	}
}

// end ends its time when it is there. After a failure the time goes on, so that nothing waits for the rest.
func (a *arrival) end(there bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until = (time.Time{}); there {
		http.NewResponseController(a.w).SetReadDeadline(time.Time{})
	}
}

// mediaType is the type of the body; without one it is taken for JSON, as on Kubernetes.
func mediaType(head http.Header) (string, error) {
	value := head.Get("Content-Type")
	if value == "" {
		return mediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(value)
	if err != nil {
		return "", errMediaType("the Content-Type %q cannot be parsed", value)
	}
	return media, nil
}
