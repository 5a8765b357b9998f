// Package kubeport says who may use the port of a board that has joined Kubernetes, and as whom the board shows itself there: what a
// kubelet does with authentication and authorization by webhook, and with the certificate that it serves.
//
//	client's certificate ──by the cluster's client CA──┐
//	token ───────────────TokenReview───────────────────┤ user ──SubjectAccessReview──> in, or 403
//	neither ──────────────────────────────> 401        ┘
//
// Nobody is let in by what is not known (N-13.16): without a client CA nobody with a certificate, without an answer of the API server
// nobody at all. What strangers can make the board remember is bounded in number and time.
package kubeport

import (
	"context"
	"strings"
	"time"
)

// Plane is the API server, asked for what is no object: reviews and requests for certificates. in is the body, nil for none; the answer
// is read into out. An error is an API status.
type Plane interface {
	Ask(ctx context.Context, verb, path string, in, out any) error
}

// The verbs of Ask.
const get, post = "GET", "POST"

// askTime is for one answer. A plane that hangs must not hold callers up for longer.
const askTime = 10 * time.Second

// saidBytes of what an API server wrote get into a condition, a log or an answer.
const saidBytes = 300

func clipped(err error) string {
	text := err.Error()
	if len(text) > saidBytes {
		return strings.ToValidUTF8(text[:saidBytes], "") + "..."
	}
	return text
}
