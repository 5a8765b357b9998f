package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"

	"ledge/api"
)

// Version is what /version says. Git must be a version that kubectl can compare with its own (api.VersionOf).
type Version struct {
	Git       string // v1.37.2+ledge.0.1.0
	Commit    string
	TreeState string
	Built     string
}

func (v Version) encode() ([]byte, error) {
	if v.Git == "" {
		v.Git = api.Kubernetes + "+ledge"
	}
	parsed, err := version.ParseSemantic(v.Git)
	if err != nil {
		return nil, fmt.Errorf("version %q: %w", v.Git, err)
	}
	return json.MarshalIndent(apiversion.Info{
		Major: fmt.Sprint(parsed.Major()), Minor: fmt.Sprint(parsed.Minor()), GitVersion: v.Git, GitCommit: v.Commit,
		GitTreeState: v.TreeState, BuildDate: v.Built, GoVersion: goruntime.Version(), Compiler: goruntime.Compiler,
		Platform: goruntime.GOOS + "/" + goruntime.GOARCH,
	}, "", "  ")
}

// about answers what this server is: its version, its health, and the documents that say what the API has (documents.go).
type about struct {
	version []byte  // the body of /version
	checks  []Check // what /readyz and /healthz ask
	// docs are discovery and OpenAPI by path, made when one is first asked for: it takes longer than the rest of a start.
	docs   func() (map[string]*document, error)
	limits *limits
}

func (a *about) serveVersion(w *response, _ *request) error {
	w.body(http.StatusOK, mediaJSON, a.version)
	return nil
}

// live says that requests are answered, and no more: a supervisor that restarts what is not live must not be told
// of a full disk.
func (a *about) live(w *response, r *request) error { return a.health(w, r, nil) }

// ready asks every check.
func (a *about) ready(w *response, r *request) error { return a.health(w, r, a.checks) }

func (a *about) health(w *response, r *request, checks []Check) error {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	name := strings.Trim(r.URL.Path, "/")
	var report strings.Builder
	report.WriteString("[+]ping ok\n")
	code := http.StatusOK
	for _, c := range checks {
		if err := c.Run(ctx); err != nil {
			code = http.StatusInternalServerError
			if isAnonymous(r.user) {
				err = errors.New("reason withheld")
			}
			fmt.Fprintf(&report, "[-]%s failed: %v\n", c.Name, err)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	const media = "text/plain; charset=utf-8"
	switch {
	case code != http.StatusOK:
		w.body(code, media, []byte(report.String()+name+" check failed\n"))
	case r.query.Has("verbose"):
		w.body(code, media, []byte(report.String()+name+" check passed\n"))
	default:
		w.body(code, media, []byte("ok"))
	}
	return nil
}
