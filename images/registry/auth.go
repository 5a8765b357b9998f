package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ledge/images"
)

// asking is one question to one place, until it is answered.
type asking struct {
	c             *Client
	p             place
	repository    string
	credentials   []images.Credential
	req           request
	authorization string // that worked
}

type tokenKey struct {
	place, repository string
	credential        images.Credential
}

type token struct {
	header string
	until  time.Time
}

// authorised sends the request with each credential there is, or none, until the place does not say 401.
func (a *asking) authorised(ctx context.Context) (*http.Response, error) {
	list := a.credentials
	if len(list) == 0 {
		list = []images.Credential{{}} // nobody in particular
	}
	var last error
	for _, cred := range list {
		resp, err := a.as(ctx, cred)
		if err == nil {
			return resp, nil
		}
		last = err
		var se *StatusError
		if !errors.As(err, &se) || se.Code != http.StatusUnauthorized && se.Code != http.StatusForbidden {
			return nil, err
		}
	}
	return nil, last
}

// as sends the request as one somebody. The first answer of 401 says what it takes.
func (a *asking) as(ctx context.Context, cred images.Credential) (*http.Response, error) {
	key := tokenKey{a.p.String(), a.repository, cred}
	header := a.c.token(key)
	for try := 0; ; try++ {
		resp, err := a.req.send(ctx, a.p.call.own, a.c.cfg.UserAgent, header)
		if err != nil {
			return nil, err
		}
		switch {
		case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusUnauthorized && try > 0:
			return nil, statusError(resp, a.req.url.Host, images.Reference{Path: a.repository})
		case resp.StatusCode != http.StatusUnauthorized:
			a.authorization = header
			return resp, nil
		}
		challenge := resp.Header.Values("WWW-Authenticate")
		drain(resp)
		tok, err := a.answer(ctx, challenge, cred)
		if err != nil {
			return nil, err
		}
		a.c.keep(key, tok)
		header = tok.header
	}
}

func (c *Client) token(key tokenKey) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.tokens[key]; ok && time.Now().Before(t.until) {
		return t.header
	}
	return ""
}

func (c *Client) keep(key tokenKey, t token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, old := range c.tokens {
		if time.Now().After(old.until) {
			delete(c.tokens, k)
		}
	}
	c.tokens[key] = t
}

// answer makes of a challenge what it asks for.
func (a *asking) answer(ctx context.Context, challenges []string, cred images.Credential) (token, error) {
	var schemes []string
	for _, ch := range challenges {
		scheme, params, _ := strings.Cut(ch, " ")
		switch strings.ToLower(scheme) {
		case "bearer":
			return a.bearer(ctx, parseParams(params), cred)
		case "basic":
			if cred == (images.Credential{}) {
				return token{}, &StatusError{Code: http.StatusUnauthorized, Host: a.p.base.Host, Detail: "it wants a user name and a password, " +
					"and there is no credential for it"}
			}
			return token{header: basic(cred.Username, cred.Password), until: time.Now().Add(time.Hour)}, nil
		}
		schemes = append(schemes, scheme)
	}
	return token{}, &StatusError{Code: http.StatusUnauthorized, Host: a.p.base.Host,
		Detail: fmt.Sprintf("it wants an unknown way of authentication: %.100q", schemes)}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// parseParams reads the name="value" list of a challenge.
func parseParams(s string) map[string]string {
	out := map[string]string{}
	for s != "" {
		name, rest, ok := strings.Cut(strings.TrimLeft(s, " ,\t"), "=")
		if !ok {
			break
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			value, s, _ = strings.Cut(rest[1:], `"`)
		} else {
			value, s, _ = strings.Cut(rest, ",")
		}
		out[strings.ToLower(strings.TrimSpace(name))] = value
	}
	return out
}

// bearer asks the token server that the registry names.
func (a *asking) bearer(ctx context.Context, params map[string]string, cred images.Credential) (token, error) {
	realm, err := url.Parse(params["realm"])
	if err != nil || realm.Host == "" || realm.User != nil || realm.Scheme != "https" &&
		(realm.Scheme != "http" || a.p.base.Scheme != "http") {
		return token{}, &permanent{fmt.Errorf("%s names a token server that is not to be asked: %.100q", a.p.base.Host, params["realm"])}
	}
	hc := a.p.call.foreign
	if realm.Host == a.p.base.Host {
		hc = a.p.call.own
	}
	scope := params["scope"]
	if scope == "" {
		scope = "repository:" + a.repository + ":pull"
	}
	ctx, cancel := a.c.soon(ctx)
	defer cancel()
	q, err := tokenRequest(ctx, realm, params["service"], scope, cred)
	if err != nil {
		return token{}, &permanent{err}
	}
	q.Header.Set("User-Agent", a.c.cfg.UserAgent)
	resp, err := hc.Do(q)
	if err != nil {
		return token{}, unreachable(err)
	}
	defer drain(resp)
	if resp.StatusCode != http.StatusOK {
		// What it says is not shown: the registry chose whom we asked.
		return token{}, &StatusError{Code: resp.StatusCode, Host: realm.Host, Detail: "no token was given", after: resp.Header.Get("Retry-After")}
	}
	return readToken(resp.Body, realm.Host)
}

// tokenRequest: a name and password go in a header; an identity token is exchanged by OAuth.
func tokenRequest(ctx context.Context, realm *url.URL, service, scope string, cred images.Credential) (*http.Request, error) {
	if cred.Token != "" {
		form := url.Values{"grant_type": {"refresh_token"}, "service": {service}, "scope": {scope}, "client_id": {"ledge"},
			"refresh_token": {cred.Token}}
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, realm.String(), strings.NewReader(form.Encode()))
		if err == nil {
			q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return q, err
	}
	u := *realm
	v := u.Query()
	if service != "" {
		v.Set("service", service)
	}
	v.Set("scope", scope)
	if cred.Username != "" {
		v.Set("account", cred.Username)
	}
	u.RawQuery = v.Encode()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err == nil && cred.Username != "" {
		q.Header.Set("Authorization", basic(cred.Username, cred.Password))
	}
	return q, err
}

func readToken(r io.Reader, host string) (token, error) {
	var t struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	if err := json.NewDecoder(io.LimitReader(r, 256<<10)).Decode(&t); err != nil {
		return token{}, fmt.Errorf("%w: %s gave no readable token", images.ErrUnreachable, host)
	}
	if t.Token == "" {
		t.Token = t.AccessToken
	}
	if t.Token == "" || strings.ContainsAny(t.Token, "\r\n") {
		return token{}, &permanent{fmt.Errorf("%s gave no token", host)}
	}
	// A little earlier than it says, for its clock and the way there; the least is what the protocol promises.
	life := time.Duration(min(max(t.ExpiresIn, 60), 3600)) * time.Second
	return token{header: "Bearer " + t.Token, until: time.Now().Add(life - 10*time.Second)}, nil
}
