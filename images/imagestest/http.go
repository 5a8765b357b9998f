package imagestest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ledge/images"
)

// Handler serves a Registry by the distribution protocol, for reading. domain is the registry's name in references.
func (r *Registry) Handler(domain string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		path := strings.TrimPrefix(q.URL.Path, "/v2/")
		repo, what, isBlob := strings.Cut(path, "/blobs/")
		if !isBlob {
			repo, what, _ = strings.Cut(path, "/manifests/")
		}
		ref := images.Reference{Domain: domain, Path: repo}
		if images.ValidDigest(what) {
			ref.Digest = what
		} else {
			ref.Tag = what
		}
		op := "manifest"
		if isBlob {
			op = "blob"
		}
		digest, data, err := r.find(op, ref, "")
		if err != nil {
			code := http.StatusInternalServerError
			if errors.Is(err, ErrUnknown) {
				code = http.StatusNotFound
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"errors":[{"code":"UNKNOWN","message":"not here"}]}`)
			return
		}
		if isBlob {
			r.mu.Lock()
			r.served[digest]++
			r.mu.Unlock()
			w.Header().Set("Content-Type", "application/octet-stream")
		} else {
			w.Header().Set("Content-Type", r.types[digest])
		}
		w.Header().Set("Docker-Content-Digest", digest)
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
	})
}

// Throttle ends an answer after so many bytes, without an error the other side could see in its header: what a cut
// connection looks like. It must be called before anything is written.
func Throttle(w http.ResponseWriter, bytes int64) http.ResponseWriter {
	return &throttled{ResponseWriter: w, left: bytes}
}

type throttled struct {
	http.ResponseWriter
	left int64
}

func (t *throttled) Write(p []byte) (int, error) {
	if int64(len(p)) > t.left {
		_, _ = t.ResponseWriter.Write(p[:t.left])
		if f, ok := t.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	t.left -= int64(len(p))
	return t.ResponseWriter.Write(p)
}

// BearerRealm is the challenge of a registry that wants a token.
func BearerRealm(realm, service, scope string) string {
	return `Bearer realm=` + strconv.Quote(realm) + `,service=` + strconv.Quote(service) + `,scope=` + strconv.Quote(scope)
}
