package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/lab/bench/measure"
)

// How much the API has to do here: the sizes that a fleet of small boards reaches.
const (
	manyPods     = 1000
	manyWatchers = 100
	manyClients  = 32
)

// caller makes requests of one API server.
type caller struct {
	what, base string
	http       *http.Client
}

// calls measures the API without any container: pods of a scheduler that does not exist.
func (n *node) calls(ctx context.Context) error {
	c := &caller{"ledge", "http://ledge", &http.Client{Transport: &http.Transport{DialContext: n.dial, MaxIdleConnsPerHost: manyClients}}}
	if err := n.b.calls(ctx, c); err != nil {
		return err
	}
	return errors.Join(n.watchMemory(ctx, c), c.clear(ctx))
}

// calls are the rows that every API server gets.
func (b *bench) calls(ctx context.Context, c *caller) error {
	took, err := c.createPods(ctx)
	if err != nil {
		return err
	}
	b.add("pods created a second", c.what, manyPods/took.Seconds(), "/s", fmt.Sprintf("%d clients; on disk before each answer", manyClients))
	if took, err = c.labelPods(ctx); err != nil {
		return err
	}
	b.add("pods patched a second", c.what, manyPods/took.Seconds(), "/s", fmt.Sprintf("%d clients, a label each", manyClients))
	size := int64(0)
	ms, err := median(20, func(int) (took time.Duration, err error) {
		size, took, err = c.list(ctx)
		return took, err
	})
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("list %d pods", manyPods), c.what, ms, "ms", fmt.Sprintf("%.1f MB of JSON", float64(size)/1e6))
	begin := time.Now()
	if err := inParallel(ctx, manyClients, manyClients, func(int) error { _, _, err := c.list(ctx); return err }); err != nil {
		return err
	}
	b.add(fmt.Sprintf("list %d pods, %d clients at once", manyPods, manyClients), c.what, float64(time.Since(begin).Milliseconds()), "ms",
		"until the last has all")
	return b.watches(ctx, c)
}

// watches begins many watches of all pods and changes one pod.
func (b *bench) watches(ctx context.Context, c *caller) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var present, changed sync.WaitGroup
	failed := make(chan error, manyWatchers)
	present.Add(manyWatchers)
	changed.Add(manyWatchers)
	begin := time.Now()
	for range manyWatchers {
		go func() {
			defer changed.Done()
			if err := c.watch(ctx, "?watch=1", present.Done); err != nil {
				failed <- err
				present.Done()
			}
		}()
	}
	present.Wait()
	all := time.Since(begin)
	begin = time.Now()
	if err := c.label(ctx, 0, "seen"); err != nil {
		return err
	}
	changed.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	b.add(fmt.Sprintf("%d watches of %d pods begin", manyWatchers, manyPods), c.what, float64(all.Milliseconds()), "ms",
		"until the last has the present state")
	b.add(fmt.Sprintf("one change reaches %d watchers", manyWatchers), c.what, float64(time.Since(begin).Microseconds())/1000, "ms",
		"from the request to the last watcher")
	return nil
}

// watch reads the present state, says so, and waits for one change.
func (c *caller) watch(ctx context.Context, query string, present func()) error {
	resp, err := c.do(ctx, http.MethodGet, podsPath+query, "", "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for range manyPods {
		if _, err := in.ReadSlice('\n'); err != nil {
			return err
		}
	}
	present()
	line, err := in.ReadBytes('\n')
	if err == nil && !bytes.Contains(line, []byte(`"MODIFIED"`)) {
		err = fmt.Errorf("a watcher was told %.80s", line)
	}
	return err
}

// watchMemory measures the memory of watchers to which nothing is sent.
func (n *node) watchMemory(ctx context.Context, c *caller) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := n.anonymousAtRest(ctx)
	if err != nil {
		return err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	text, err := n.call(ctx, http.MethodGet, podsPath+"?limit=1", nil)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return err
	}
	for range manyWatchers {
		resp, err := c.do(ctx, http.MethodGet, podsPath+"?watch=1&resourceVersion="+list.Metadata.ResourceVersion, "", "")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
	}
	after, err := n.anonymousAtRest(ctx)
	if err == nil {
		n.b.add("memory for each watcher", "ledge", (after-before)*1024/manyWatchers, "KiB",
			fmt.Sprintf("anonymous, of %d that have nothing to read", manyWatchers))
	}
	return err
}

func (n *node) anonymousAtRest(ctx context.Context) (float64, error) {
	if err := measure.Rest(ctx); err != nil {
		return 0, err
	}
	_, anonymous, err := measure.PSS(n.own()...)
	return anonymous, err
}

func callPod(i int) string { return fmt.Sprintf("call-%04d", i) }

// callPodBody is a pod of ordinary size, as a controller would make it.
func callPodBody(i int) string {
	container := `{"name":"%s","image":"ledge.local/bench:v1","command":["/bin/server"],"args":["--listen=:8080","--log-level=info"],` +
		`"env":[{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"MODE","value":"production"}],` +
		`"ports":[{"name":"http","containerPort":8080}],"resources":{"requests":{"cpu":"10m","memory":"16Mi"},"limits":{"memory":"64Mi"}},` +
		`"livenessProbe":{"httpGet":{"path":"/healthz","port":8080}}}`
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"call","tier":"bench"}},"spec":{"schedulerName":"bench",`+
		`"automountServiceAccountToken":false,"containers":[%s,%s]}}`, callPod(i), fmt.Sprintf(container, "main"), fmt.Sprintf(container, "side"))
}

func (c *caller) createPods(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	err := inParallel(ctx, manyPods, manyClients, func(i int) error {
		return c.done(ctx, http.MethodPost, podsPath, "application/json", callPodBody(i))
	})
	return time.Since(begin), err
}

func (c *caller) labelPods(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	err := inParallel(ctx, manyPods, manyClients, func(i int) error { return c.label(ctx, i, "a") })
	return time.Since(begin), err
}

func (c *caller) label(ctx context.Context, i int, value string) error {
	return c.done(ctx, http.MethodPatch, podsPath+"/"+callPod(i), "application/merge-patch+json",
		fmt.Sprintf(`{"metadata":{"labels":{"state":%q}}}`, value))
}

// list reads all pods, in one piece.
func (c *caller) list(ctx context.Context) (size int64, took time.Duration, err error) {
	begin := time.Now()
	resp, err := c.do(ctx, http.MethodGet, podsPath, "", "")
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	size, err = io.Copy(io.Discard, resp.Body)
	return size, time.Since(begin), err
}

func (c *caller) clear(ctx context.Context) error {
	return c.done(ctx, http.MethodDelete, podsPath+"?gracePeriodSeconds=0&labelSelector=tier%3Dbench", "", "")
}

// done makes a request whose answer does not matter.
func (c *caller) done(ctx context.Context, method, path, media, body string) error {
	resp, err := c.do(ctx, method, path, media, body)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

func (c *caller) do(ctx context.Context, method, path, media, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == "" {
		req.Body, req.ContentLength = nil, 0
	} else {
		req.Header.Set("Content-Type", media)
	}
	resp, err := c.http.Do(req)
	if err == nil && resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // the status says enough
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp, err
}

// inParallel does n things, some at a time.
func inParallel(ctx context.Context, n, atOnce int, f func(i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f(i)
		})
	}
	return group.Wait()
}
