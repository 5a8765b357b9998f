package httpd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/httpd"
)

// logs are Streams that serve what a test says and remember what they were asked.
type logs struct {
	text func(ctx context.Context) (io.ReadCloser, error)

	mu    sync.Mutex
	asked string
}

func (l *logs) Logs(ctx context.Context, namespace, pod string, o api.LogOptions) (io.ReadCloser, error) {
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	l.mu.Lock()
	l.asked = fmt.Sprintf("%s/%s/%s follow=%v previous=%v timestamps=%v tail=%s limit=%s since=%s", namespace, pod, o.Container,
		o.Follow, o.Previous, o.Timestamps, number(o.TailLines), number(o.LimitBytes), o.Since.UTC().Format(time.RFC3339))
	l.mu.Unlock()
	return l.text(ctx)
}

func plain(s string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

// N-11.43: the options of a log reach the Streams.
func TestLogOptions(t *testing.T) {
	l := &logs{text: plain("one\ntwo\n")}
	f := serve(t, httpd.Config{Streams: l})
	const zero = "0001-01-01T00:00:00Z"
	for query, want := range map[string]string{
		"":                                    "default/p/ follow=false previous=false timestamps=false tail=- limit=- since=" + zero,
		"?container=c&follow=true&previous=1": "default/p/c follow=true previous=true timestamps=false tail=- limit=- since=" + zero,
		"?timestamps=true&tailLines=0&limitBytes=5":           "default/p/ follow=false previous=false timestamps=true tail=0 limit=5 since=" + zero,
		"?sinceTime=2026-11-20T12:00:00Z":                     "default/p/ follow=false previous=false timestamps=false tail=- limit=- since=2026-11-20T12:00:00Z",
		"?stream=All&insecureSkipTLSVerifyBackend=true&x=y":   "default/p/ follow=false previous=false timestamps=false tail=- limit=- since=" + zero,
		"?sinceTime=2026-11-20T13:00:00.5%2B01:00&tailLines=": "default/p/ follow=false previous=false timestamps=false tail=- limit=- since=2026-11-20T12:00:00Z",
	} {
		a := f.must(200, "GET", podsPath+"/p/log"+query, "")
		if a.body != "one\ntwo\n" || a.head.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: %q %v", query, a.body, a.head)
		}
		if l.asked != want {
			t.Errorf("%s: asked for %s, want %s", query, l.asked, want)
		}
	}
	for query, want := range map[string]int{
		"tailLines=-1": 422, "tailLines=x": 400, "limitBytes=0": 422, "sinceSeconds=0": 422, "sinceTime=yesterday": 400,
		"sinceSeconds=1&sinceTime=2026-11-20T12:00:00Z": 422, "follow=perhaps": 400, "stream=Stderr": 422,
	} {
		if a := f.do(admin, "GET", podsPath+"/p/log?"+query, ""); a.code != want {
			t.Errorf("%s: %d %s, want %d", query, a.code, a.body, want)
		}
	}
	f.must(200, "GET", podsPath+"/p/log?sinceSeconds=9223372036854775807", "")
}

func TestLogErrors(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(501, "GET", podsPath+"/p/log", "").status(t)

	l := &logs{}
	f = serve(t, httpd.Config{Streams: l})
	l.text = func(context.Context) (io.ReadCloser, error) {
		return nil, apierrors.NewBadRequest("container c is waiting")
	}
	if s := f.must(400, "GET", podsPath+"/p/log", "").status(t); s.Message != "container c is waiting" {
		t.Errorf("%+v", s)
	}
	// A log that breaks in the middle must not look complete.
	l.text = func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{})), nil
	}
	resp, err := f.send(admin, "GET", podsPath+"/p/log", "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a broken log was read as %q without an error", text)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk error") }

// A followed log arrives line by line, for as long as it takes, and ends with the client or the server.
func TestFollowLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan string, 2)
		l := &logs{text: func(ctx context.Context) (io.ReadCloser, error) {
			r, w := io.Pipe()
			go func() {
				for i := 0; ctx.Err() == nil; i++ {
					fmt.Fprintf(w, "line %d\n", i)
					select {
					case <-time.After(5 * time.Minute):
					case <-ctx.Done():
					}
				}
				w.Close()
				ended <- "followed to the end"
			}()
			return r, nil
		}}
		f := serve(t, httpd.Config{Streams: l})
		follow := func() (io.Closer, *bufio.Scanner) {
			resp, err := f.send(admin, "GET", podsPath+"/p/log?follow=true", "")
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(resp.Body)
			for i := range 3 {
				if !lines.Scan() || lines.Text() != fmt.Sprintf("line %d", i) {
					t.Fatalf("line %d: %q %v", i, lines.Text(), lines.Err())
				}
			}
			return resp.Body, lines
		}
		body, _ := follow()
		body.Close()
		<-ended // the client left
		body, lines := follow()
		go f.stop()
		if lines.Scan() {
			t.Errorf("%q after the server's stop", lines.Text())
		}
		<-ended
		body.Close()
		synctest.Wait()
	})
}
