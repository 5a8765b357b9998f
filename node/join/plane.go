package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// What a server may take of this board's time and memory, whoever it is.
const (
	answerTime  = 20 * time.Second
	answerBytes = 1 << 20
	saidBytes   = 300 // of a message of its own, in a log
)

// plane is a control plane that is asked a few things.
type plane struct {
	base   string
	bearer string
	http   *http.Client
}

func newPlane(server string, conf *tls.Config, bearer string) plane {
	return plane{server, bearer, &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true,
		MaxResponseHeaderBytes: 64 << 10}}}
}

// answer is a no.
type answer struct {
	server  string
	code    int
	message string
}

func (a *answer) Error() string { return fmt.Sprintf("%s says: %s", a.server, a.message) }

func denied(err error, codes ...int) bool {
	no, ok := errors.AsType[*answer](err)
	for _, c := range codes {
		if ok && no.code == c {
			return true
		}
	}
	return false
}

// ask sends in, unless it is nil, and reads the answer into out.
func (p plane) ask(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(p.base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "ledge")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if p.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+p.bearer)
	}
	client := *p.http
	// It would be followed with our rights.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes+1))
	if err == nil {
		err = ctx.Err() // a server that ends its answer at the moment at which it is left
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the answer of %s: %w", p.base, err)
	case len(data) > answerBytes:
		return fmt.Errorf("the answer of %s has more than %d bytes", p.base, answerBytes)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated:
		var said struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(data, &said) != nil || said.Message == "" {
			said.Message = resp.Status
		}
		return &answer{p.base, resp.StatusCode, clipped(said.Message)}
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the answer of %s is not what was asked for", p.base)
	}
	return nil
}

// clipped is what a stranger wrote, short enough for a log.
func clipped(text string) string {
	if len(text) > saidBytes {
		return strings.ToValidUTF8(text[:saidBytes], "") + "..."
	}
	return text
}
