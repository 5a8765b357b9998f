package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"ledge/lab/bench/measure"
)

const (
	podsPath   = "/api/v1/namespaces/default/pods"
	callers    = 32
	mergePatch = "application/merge-patch+json"
)

// caller asks one API server over TLS in JSON, as so many clients with a connection (HTTP/2) each, in turn.
type caller struct {
	server, token string
	http          [callers]http.Client
	turn          atomic.Uint32
}

// newCaller comes in as a kubeconfig says.
func newCaller(file string) (*caller, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var c struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Token string `json:"token"`
				Cert  []byte `json:"client-certificate-data"`
				Key   []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	if len(c.Clusters) == 0 || len(c.Users) == 0 {
		return nil, fmt.Errorf("%s names no cluster or no user", file)
	}
	at, user := c.Clusters[0].Cluster, c.Users[0].User
	conf := &tls.Config{RootCAs: x509.NewCertPool()}
	conf.RootCAs.AppendCertsFromPEM(at.CA)
	if len(user.Cert) > 0 {
		pair, err := tls.X509KeyPair(user.Cert, user.Key)
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	out := &caller{server: at.Server, token: user.Token}
	for i := range out.http {
		out.http[i].Transport = &http.Transport{TLSClientConfig: conf.Clone(), DisableCompression: true, ForceAttemptHTTP2: true}
	}
	return out, nil
}

// errMany is the answer to a watch beyond those that a caller may have.
var errMany = errors.New("the server has as many watches for one caller as it takes")

// open makes a request and answers its body. Who is told to come again does, which counts as part of its time; a watch does not.
func (c *caller) open(ctx context.Context, method, path, kind, body string) (io.ReadCloser, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json")
		if body != "" {
			req.Header.Set("Content-Type", kind)
		}
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		res, err := c.http[c.turn.Add(1)%callers].Do(req)
		if err != nil {
			return nil, err
		}
		if res.StatusCode < 300 {
			return res.Body, nil
		}
		text, err := io.ReadAll(io.LimitReader(res.Body, 1000))
		res.Body.Close()
		if res.StatusCode != http.StatusTooManyRequests {
			return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text), err)
		}
		if strings.Contains(path, "watch=1&resourceVersion=") && !strings.HasSuffix(path, "=0") {
			return nil, errMany
		}
		if err := measure.Sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// do reads all of an answer, and tells how long it is.
func (c *caller) do(ctx context.Context, method, path, kind, body string) (int64, error) {
	r, err := c.open(ctx, method, path, kind, body)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return io.Copy(io.Discard, r)
}

// each calls for all numbers below n, so many at a time as there are callers.
func (c *caller) each(ctx context.Context, n int, call func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(callers)
	for i := range n {
		g.Go(func() error { return call(ctx, i) })
	}
	return g.Wait()
}

func (c *caller) make(ctx context.Context, i int) error {
	_, err := c.do(ctx, "POST", podsPath, "application/json", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-%d",`+
		`"labels":{"app":"app-%d","one":"n%d"}},"spec":{"schedulingGates":[{"name":"example.com/bench"}],"automountServiceAccountToken":false,`+
		`"containers":[{"name":"c","image":"example.com/a"},{"name":"d","image":"example.com/b","env":[{"name":"A","value":"b"},`+
		`{"name":"C","value":"d"}]}]}}`, i, i%10, i))
	return err
}

func (c *caller) patch(ctx context.Context, i, to int) error {
	_, err := c.do(ctx, "PATCH", fmt.Sprintf("%s/pod-%d", podsPath, i), mergePatch, fmt.Sprintf(`{"metadata":{"labels":{"turn":"t%d"}}}`, to))
	return err
}

// count is how many pods there are, and the revision of that.
func (c *caller) count(ctx context.Context) (int, string, error) {
	r, err := c.open(ctx, "GET", podsPath, "", "")
	if err != nil {
		return 0, "", err
	}
	defer r.Close()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []struct{} `json:"items"`
	}
	err = json.NewDecoder(r).Decode(&list)
	return len(list.Items), list.Metadata.ResourceVersion, err
}

// states opens so many watches and reads from each the pods that there are.
func (c *caller) states(ctx context.Context, watchers, pods int) error {
	g, ctx := errgroup.WithContext(ctx)
	for range watchers {
		g.Go(func() error {
			r, err := c.open(ctx, "GET", podsPath+"?watch=1&resourceVersion=0", "", "")
			if err != nil {
				return err
			}
			defer r.Close()
			lines := bufio.NewReaderSize(r, 64<<10)
			for range pods {
				if err := skipLine(lines); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// skipLine reads an event, of any length.
func skipLine(r *bufio.Reader) error {
	for {
		_, err := r.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// change is how long one change takes to reach so many who watch, in several turns.
func (c *caller) change(ctx context.Context, watchers, turns int) (took []time.Duration, err error) {
	_, revision, err := c.count(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	defer func() {
		stop()
		_ = g.Wait() // they end because of stop
	}()
	heard := make(chan error, watchers)
	opened := make(chan error, watchers)
	for range watchers {
		g.Go(func() error {
			r, err := c.open(ctx, "GET", podsPath+"?watch=1&resourceVersion="+revision, "", "")
			opened <- err
			if err != nil {
				return nil
			}
			defer r.Close()
			for lines := bufio.NewReaderSize(r, 16<<10); err == nil; {
				err = skipLine(lines)
				heard <- err
			}
			return nil
		})
	}
	all := func(from chan error) error {
		for range watchers {
			if err := <-from; err != nil {
				return err
			}
		}
		return nil
	}
	if err := all(opened); err != nil {
		return nil, err
	}
	for turn := range turns {
		start := time.Now()
		if err := c.patch(ctx, 0, 1000+turn); err != nil {
			return nil, err
		}
		if err := all(heard); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}
