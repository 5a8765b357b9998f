package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"ledge/images"
)

// accept is everything that images.Resolve knows, and nothing older. It is one line: some registries read no second.
var accept = strings.Join([]string{
	"application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
	"application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json",
}, ", ")

// Head implements images.Registry.
func (c *Client) Head(ctx context.Context, ref images.Reference, keys images.Keyring) (digest string, err error) {
	err = c.each(ref, nil, func(p place) error {
		ctx, cancel := c.soon(ctx)
		defer cancel()
		resp, err := c.do(ctx, p, ref, keys, http.MethodHead, "manifests/"+tagOrDigest(ref), 0)
		if err != nil {
			return err
		}
		if d := resp.Header.Get("Docker-Content-Digest"); images.ValidDigest(d) {
			digest = d
		}
		return resp.Body.Close()
	})
	return digest, err
}

// soon bounds a question with a short answer: one that never ends would hold up every other pull.
func (c *Client) soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.cfg.StallAfter, fmt.Errorf("%w: no answer within %v", images.ErrUnreachable, c.cfg.StallAfter))
}

func tagOrDigest(ref images.Reference) string {
	if ref.Digest != "" {
		return ref.Digest
	}
	return ref.Tag
}

// Manifest implements images.Registry.
func (c *Client) Manifest(ctx context.Context, ref images.Reference, keys images.Keyring) (doc images.Document, err error) {
	err = c.each(ref, nil, func(p place) error {
		ctx, cancel := c.soon(ctx)
		defer cancel()
		resp, err := c.do(ctx, p, ref, keys, http.MethodGet, "manifests/"+tagOrDigest(ref), 0)
		if err != nil {
			return err
		}
		doc, err = readManifest(resp, ref)
		return err
	})
	return doc, err
}

func readManifest(resp *http.Response, ref images.Reference) (images.Document, error) {
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, images.MaxDocument+1))
	if err != nil {
		return images.Document{}, fmt.Errorf("read manifest of %s: %w: %w", ref, images.ErrUnreachable, err)
	}
	if len(data) > images.MaxDocument {
		return images.Document{}, &permanent{fmt.Errorf("manifest of %s is longer than %d bytes", ref, images.MaxDocument)}
	}
	sum := sha256.Sum256(data)
	doc := images.Document{Digest: "sha256:" + hex.EncodeToString(sum[:]), Content: data}
	doc.MediaType, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	// A digest we asked for binds; for a tag what the registry says of its own answer has to be true at least.
	want := ref.Digest
	if want == "" {
		want = resp.Header.Get("Docker-Content-Digest")
	}
	if strings.HasPrefix(want, "sha256:") && want != doc.Digest {
		return doc, &permanent{fmt.Errorf("manifest of %s has the digest %s, not %s: %w", ref, doc.Digest, want, images.ErrDamaged)}
	}
	return doc, nil
}

// Blob implements images.Registry.
func (c *Client) Blob(ctx context.Context, req images.BlobRequest) (s images.BlobStream, err error) {
	err = c.each(req.Ref, req.Avoid, func(p place) error {
		// Ended by the stream's own watch when nothing comes any more.
		ctx, stop := context.WithCancelCause(ctx)
		resp, err := c.do(ctx, p, req.Ref, req.Keys, http.MethodGet, "blobs/"+req.Digest, req.Offset)
		if err != nil {
			stop(nil)
			return err
		}
		s = images.BlobStream{ReadCloser: c.watch(ctx, resp.Body, stop), Place: p.String()}
		if resp.StatusCode == http.StatusPartialContent {
			if s.From, err = rangeStart(resp.Header.Get("Content-Range")); err != nil {
				return errors.Join(err, s.Close())
			}
		}
		return nil
	})
	return s, err
}

// rangeStart reads "bytes 5-9/10".
func rangeStart(header string) (int64, error) {
	text, ok := strings.CutPrefix(header, "bytes ")
	first, _, dash := strings.Cut(text, "-")
	n, err := strconv.ParseInt(first, 10, 64)
	if !ok || !dash || err != nil || n < 0 {
		return 0, fmt.Errorf("registry sent a range we cannot read: %.80q", header)
	}
	return n, nil
}

// watched ends a transfer that has come to a stop: a dead uplink gives no error for a quarter of an hour.
type watched struct {
	io.ReadCloser
	ctx   context.Context
	timer *time.Timer
	after time.Duration
	stop  context.CancelCauseFunc
}

func (c *Client) watch(ctx context.Context, body io.ReadCloser, stop context.CancelCauseFunc) *watched {
	w := &watched{ReadCloser: body, ctx: ctx, after: c.cfg.StallAfter, stop: stop}
	w.timer = time.AfterFunc(w.after, func() {
		stop(fmt.Errorf("%w: nothing came for %v", images.ErrUnreachable, w.after))
	})
	return w
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(w.ctx); cause != nil {
			err = cause
		}
		return n, err
	}
	w.timer.Reset(w.after)
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	w.stop(nil)
	return w.ReadCloser.Close()
}

const mostRedirects = 5

// do asks one place for something of a repository, with whatever credential it wants, and gives a good answer or an
// error.
func (c *Client) do(ctx context.Context, p place, ref images.Reference, keys images.Keyring, method, what string,
	offset int64) (*http.Response, error) {
	u := p.base
	repository := strings.TrimPrefix(p.base.Path+"/"+ref.Path, "/")
	u.Path = "/v2/" + repository + "/" + what
	if p.mirror {
		u.RawQuery = "ns=" + url.QueryEscape(ref.Domain) // which registry it stands for
	}
	a := &asking{c: c, p: p, repository: repository, req: request{method: method, url: &u, offset: offset}}
	var err error
	if a.credentials, err = c.credentials(p, ref.Domain, repository, keys); err != nil {
		return nil, err
	}
	resp, err := a.authorised(ctx)
	if err != nil {
		return nil, err
	}
	if resp, err = a.follow(ctx, resp); err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent && offset > 0 {
		return resp, nil
	}
	return nil, statusError(resp, a.req.url.Host, ref)
}

// credentials are what may be shown to a place: for a mirror those of its own host, not of the registry it mirrors.
func (c *Client) credentials(p place, domain, repository string, keys images.Keyring) ([]images.Credential, error) {
	host := domain
	if p.mirror {
		host = p.base.Host
	}
	list := keys.For(host, repository)
	if c.cfg.Keys == nil {
		return list, nil
	}
	own, err := c.cfg.Keys()
	if err != nil {
		return nil, fmt.Errorf("read the node's registry credentials: %w", err)
	}
	return append(list, own.For(host, repository)...), nil
}

// request is one HTTP request as it is sent again: with other credentials, or somewhere else.
type request struct {
	method string
	url    *url.URL
	offset int64
}

func (r request) send(ctx context.Context, hc *http.Client, agent, authorization string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), nil)
	if err != nil {
		return nil, &permanent{err}
	}
	q.Header.Set("Accept", accept)
	q.Header.Set("User-Agent", agent)
	if authorization != "" {
		q.Header.Set("Authorization", authorization)
	}
	if r.offset > 0 {
		q.Header.Set("Range", "bytes="+strconv.FormatInt(r.offset, 10)+"-")
	}
	resp, err := hc.Do(q)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, unreachable(err)
	}
	return resp, nil
}

// unreachable is a failed request without the long address in it, which may hold somebody's signature.
func unreachable(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
		if u, perr := url.Parse(ue.URL); perr == nil {
			return fmt.Errorf("%w: %s: %w", images.ErrUnreachable, u.Host, err)
		}
	}
	return fmt.Errorf("%w: %w", images.ErrUnreachable, err)
}

// follow goes where the registry sends us. Only the same host over the same scheme sees the credential again.
func (a *asking) follow(ctx context.Context, resp *http.Response) (*http.Response, error) {
	for range mostRedirects {
		if resp.StatusCode < 300 || resp.StatusCode >= 400 || resp.StatusCode == http.StatusNotModified {
			return resp, nil
		}
		next, err := a.req.url.Parse(resp.Header.Get("Location"))
		drain(resp)
		switch {
		case err != nil || next.Host == "" || next.Scheme != "http" && next.Scheme != "https":
			return nil, &permanent{fmt.Errorf("%s redirects to something that is not an address", a.req.url.Host)}
		case next.Scheme == "http" && a.p.base.Scheme == "https":
			return nil, &permanent{fmt.Errorf("%s redirects to %s without TLS", a.req.url.Host, next.Host)}
		}
		next.User = nil
		hc, authorization := a.p.call.foreign, ""
		if next.Host == a.p.base.Host && next.Scheme == a.p.base.Scheme {
			hc, authorization = a.p.call.own, a.authorization
		}
		a.req.url = next
		if resp, err = a.req.send(ctx, hc, a.c.cfg.UserAgent, authorization); err != nil {
			return nil, err
		}
	}
	drain(resp)
	return nil, &permanent{fmt.Errorf("%s redirects more than %d times", a.p, mostRedirects)}
}

// drain lets the connection be used again, if what is left is short.
func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 8<<10)
	_ = resp.Body.Close()
}
