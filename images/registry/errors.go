package registry

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"ledge/images"
)

// StatusError is a registry's answer that was not what we asked for.
type StatusError struct {
	Code   int
	Host   string
	Detail string // in the registry's own words, shortened
	after  string // Retry-After
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("%s answered %d %s", e.Host, e.Code, http.StatusText(e.Code))
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Permanent says that the same request will be answered the same again.
func (e *StatusError) Permanent() bool {
	return e.Code != http.StatusTooManyRequests && e.Code != http.StatusRequestTimeout && e.Code < 500
}

// RetryAfter is how long the registry asks us to wait.
func (e *StatusError) RetryAfter() time.Duration {
	if n, err := strconv.Atoi(e.after); err == nil && n > 0 {
		return time.Duration(min(n, 3600)) * time.Second
	}
	return 0
}

// Unwrap: a server out of order is as good as none.
func (e *StatusError) Unwrap() error {
	if e.Code >= 500 {
		return images.ErrUnreachable
	}
	return nil
}

// permanent is an error that comes again however often it is asked for.
type permanent struct{ error }

func (permanent) Permanent() bool { return true }
func (p permanent) Unwrap() error { return p.error }

// statusError reads what a registry says in its errors document.
func statusError(resp *http.Response, host string, ref images.Reference) error {
	defer drain(resp)
	e := &StatusError{Code: resp.StatusCode, Host: host, after: resp.Header.Get("Retry-After")}
	var doc struct {
		Errors []struct{ Code, Message string }
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && json.Unmarshal(data, &doc) == nil && len(doc.Errors) > 0 {
		e.Detail = printable(doc.Errors[0].Code + ": " + doc.Errors[0].Message)
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Detail = strings.TrimSuffix("the repository "+ref.Path+" may not exist or may require authorization; "+e.Detail, "; ")
	case http.StatusNotFound:
		if e.Detail == "" {
			e.Detail = ref.String() + " is not there"
		}
	}
	return e
}

// printable is a stranger's text as it can stand in a message.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "..."
	}
	return s
}
