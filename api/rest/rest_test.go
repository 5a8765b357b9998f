package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clientrest "k8s.io/client-go/rest"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/httpd"
	"ledge/api/rest"
)

// scripted answers each request line with a canned response and remembers what came.
type scripted struct {
	mu    sync.Mutex
	came  []string
	reply func(w http.ResponseWriter, r *http.Request)
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	line := r.Method + " " + r.URL.RequestURI()
	if ct := r.Header.Get("Content-Type"); ct != "" {
		line += " " + ct
	}
	if len(body) > 0 {
		line += " " + string(body)
	}
	s.mu.Lock()
	s.came = append(s.came, line)
	s.mu.Unlock()
	s.reply(w, r)
}

func answer(code int, body string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Add(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

func script(t *testing.T, reply func(http.ResponseWriter, *http.Request)) (*rest.Client, *scripted) {
	t.Helper()
	s := &scripted{reply: reply}
	return piped(t, s, admin), s
}

// A redirect is an error: it would be followed with the client's rights.
func TestNoRedirects(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		c, s := script(t, answer(code, "", "Location", "/api/v1/secrets"))
		_, got := c.Get(t.Context(), api.Pods, "x", "p")
		_, made := c.Create(t.Context(), api.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "x"}},
			api.WriteOptions{})
		_, logs := c.Logs(t.Context(), "x", "p", api.LogOptions{})
		if got == nil || made == nil || logs == nil || len(s.came) != 3 {
			t.Errorf("%d: %v, %v, %v: %q", code, got, made, logs, s.came)
		}
	}
}

// What goes over the wire, call by call.
func TestRequests(t *testing.T) {
	ctx := context.Background()
	seconds, lines := int64(5), int64(10)
	uid, rev := types.UID("u"), "7"
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "x"}}
	sel := api.Selection{Namespace: "x", Labels: labels.SelectorFromSet(labels.Set{"a": "b"}),
		Fields: fields.OneTermEqualSelector("metadata.name", "m")}
	for _, tc := range []struct {
		name string
		call func(c *rest.Client) error
		want string
	}{
		{"get", func(c *rest.Client) error { _, err := c.Get(ctx, api.Pods, "x", "p"); return err },
			"GET /api/v1/namespaces/x/pods/p"},
		{"get of a group", func(c *rest.Client) error { _, err := c.Get(ctx, coordination.Leases, "x", "l"); return err },
			"GET /apis/coordination.k8s.io/v1/namespaces/x/leases/l"},
		{"get without namespace", func(c *rest.Client) error { _, err := c.Get(ctx, api.Nodes, "", "n"); return err },
			"GET /api/v1/nodes/n"},
		{"list all", func(c *rest.Client) error { _, err := c.List(ctx, api.Pods, api.ListOptions{}); return err },
			"GET /api/v1/pods"},
		{"list", func(c *rest.Client) error {
			_, err := c.List(ctx, api.Pods, api.ListOptions{Selection: sel, Limit: 2, Continue: "t", Revision: "7", Match: "Exact"})
			return err
		}, "GET /api/v1/namespaces/x/pods?continue=t&fieldSelector=metadata.name%3Dm&labelSelector=a%3Db&limit=2&resourceVersion=7&resourceVersionMatch=Exact"},
		{"create", func(c *rest.Client) error {
			_, err := c.Create(ctx, api.ConfigMaps, cm, api.WriteOptions{DryRun: true, Manager: "me"})
			return err
		}, `POST /api/v1/namespaces/x/configmaps?dryRun=All&fieldManager=me application/json {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m","namespace":"x"}}`},
		{"bind", func(c *rest.Client) error {
			_, err := c.Create(ctx, api.Pods, &corev1.Binding{ObjectMeta: cm.ObjectMeta, Target: corev1.ObjectReference{Name: "n"}},
				api.WriteOptions{Subresource: "binding"})
			return err
		}, `POST /api/v1/namespaces/x/pods/m/binding application/json {"kind":"Binding","apiVersion":"v1","metadata":{"name":"m","namespace":"x"},"target":{"name":"n"}}`},
		{"update status", func(c *rest.Client) error {
			_, err := c.Update(ctx, api.ConfigMaps, cm, api.WriteOptions{Subresource: "status"})
			return err
		}, `PUT /api/v1/namespaces/x/configmaps/m/status application/json {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m","namespace":"x"}}`},
		{"patch", func(c *rest.Client) error {
			_, err := c.Patch(ctx, api.Pods, "x", "p", api.Patch{Type: types.StrategicMergePatchType, Data: []byte(`{"a":1}`)}, api.WriteOptions{})
			return err
		}, `PATCH /api/v1/namespaces/x/pods/p application/strategic-merge-patch+json {"a":1}`},
		{"delete", func(c *rest.Client) error {
			_, err := c.Delete(ctx, api.Pods, "x", "p", api.DeleteOptions{Grace: &seconds, UID: &uid, Revision: &rev, DryRun: true})
			return err
		}, `DELETE /api/v1/namespaces/x/pods/p application/json {"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":5,"preconditions":{"uid":"u","resourceVersion":"7"},"dryRun":["All"]}`},
		{"watch", func(c *rest.Client) error {
			w, err := c.Watch(ctx, api.Pods, api.WatchOptions{Selection: sel, Revision: "7", InitialEvents: true, Bookmarks: true})
			if err == nil {
				w.Close()
			}
			return err
		}, "GET /api/v1/namespaces/x/pods?allowWatchBookmarks=true&fieldSelector=metadata.name%3Dm&labelSelector=a%3Db&resourceVersion=7&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true"},
		{"logs", func(c *rest.Client) error {
			r, err := c.Logs(ctx, "x", "p", api.LogOptions{Container: "c", Follow: true, Previous: true, Timestamps: true, TailLines: &lines,
				LimitBytes: &lines, Since: time.Date(2026, 11, 20, 13, 0, 0, 5e8, time.FixedZone("", 3600))})
			if err == nil {
				r.Close()
			}
			return err
		}, "GET /api/v1/namespaces/x/pods/p/log?container=c&follow=true&limitBytes=10&previous=true&sinceTime=2026-11-20T12%3A00%3A00.5Z&tailLines=10&timestamps=true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, s := script(t, answer(200, `{"kind":"X","metadata":{"name":"m"}}`))
			if err := tc.call(c); err != nil {
				t.Fatal(err)
			}
			if len(s.came) != 1 || s.came[0] != tc.want {
				t.Errorf("sent\n%s, want\n%s", strings.Join(s.came, "\n"), tc.want)
			}
		})
	}
	if cm.Kind != "" {
		t.Error("the caller's object was changed")
	}
}

// A Lease goes out in protobuf, and comes back in that or in JSON, as the server likes.
func TestLeasesInProtobuf(t *testing.T) {
	at := metav1.NewMicroTime(time.Unix(1900000000, 123456000))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "x"}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
	binary, err := api.ToProtobuf(coordination.Leases, lease)
	if err != nil {
		t.Fatal(err)
	}
	for media, body := range map[string]string{api.MediaProtobuf: string(binary),
		"application/json": `{"metadata":{"name":"n","namespace":"x"},"spec":{"renewTime":"2030-03-17T17:46:40.123456Z"}}`} {
		accept := ""
		c, s := script(t, func(w http.ResponseWriter, r *http.Request) {
			accept = strings.Join(r.Header.Values("Accept"), ",")
			w.Header().Set("Content-Type", media)
			io.WriteString(w, body)
		})
		got, err := c.Update(t.Context(), coordination.Leases, lease, api.WriteOptions{})
		if err != nil || got.GetName() != "n" || !got.(*coordinationv1.Lease).Spec.RenewTime.Equal(&at) ||
			got.GetObjectKind().GroupVersionKind() != coordination.Leases.GVK() {
			t.Errorf("%s: %+v, %v", media, got, err)
		}
		want := "PUT /apis/coordination.k8s.io/v1/namespaces/x/leases/n " + api.MediaProtobuf + " " + string(binary)
		if len(s.came) != 1 || s.came[0] != want || accept != api.MediaProtobuf+",application/json;q=0.9" {
			t.Errorf("%s: sent %q, accepting %q", media, s.came, accept)
		}
	}
	c, _ := script(t, answer(200, string(binary[:20]), "Content-Type", api.MediaProtobuf))
	if _, err := c.Update(t.Context(), coordination.Leases, lease, api.WriteOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("an answer that is cut: %v", err)
	}
}

// A name that would be another path never leaves.
func TestNamesAreNotPaths(t *testing.T) {
	c, s := script(t, answer(200, `{}`))
	ctx := context.Background()
	for _, name := range []string{"", ".", "..", "a/b", "../nodes/n", "a%2fb"} {
		if _, err := c.Get(ctx, api.Pods, "x", name); !apierrors.IsBadRequest(err) {
			t.Errorf("name %q: %v", name, err)
		}
		if _, err := c.Delete(ctx, api.Pods, name, "p", api.DeleteOptions{}); !apierrors.IsBadRequest(err) {
			t.Errorf("namespace %q: %v", name, err)
		}
	}
	if len(s.came) > 0 {
		t.Errorf("sent %v", s.came)
	}
}

func TestErrors(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name  string
		reply func(http.ResponseWriter, *http.Request)
		is    func(error) bool
		says  string
	}{
		{"status", answer(404, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods \"p\" not found","reason":"NotFound","details":{"name":"p","kind":"pods"},"code":404}`),
			apierrors.IsNotFound, `pods "p" not found`},
		{"status of a conflict", answer(409, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"changed","reason":"Conflict","code":409}`), apierrors.IsConflict, "changed"},
		{"no status", answer(503, `<html>busy</html>`), apierrors.IsServiceUnavailable, ""},
		{"not JSON", answer(200, `<html>`), apierrors.IsInternalError, "cannot be read"},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"kind":`)
			panic(http.ErrAbortHandler)
		}, func(err error) bool { return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) }, ""},
		{"gone", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, apierrors.IsServiceUnavailable, "EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // client-go tries again, second by second
				c, _ := script(t, tc.reply)
				_, err := c.Get(context.Background(), api.Pods, "x", "p")
				if !tc.is(err) || !strings.Contains(fmt.Sprint(err), tc.says) {
					t.Errorf("%v", err)
				}
			})
		})
	}
	refused, err := rest.FromDialer(func(context.Context) (net.Conn, error) { return nil, errors.New("no route") })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := refused.Get(ctx, api.Pods, "x", "p"); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "no route") {
		t.Errorf("nobody there: %v", err)
	}
	c, _ := script(t, answer(200, `{}`))
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Get(over, api.Pods, "x", "p"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A server that stops answering does not hold a caller for ever, not even one without a deadline.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := script(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		start := time.Now()
		_, err := c.Get(context.Background(), api.Pods, "x", "p")
		if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || !apierrors.IsServiceUnavailable(err) || d != 30*time.Second {
			t.Errorf("after %s: %v", d, err)
		}
	})
}

// 429 and 503 with Retry-After are tried again.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n int
		c, s := script(t, func(w http.ResponseWriter, r *http.Request) {
			if n++; n < 3 {
				answer(429, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}`, "Retry-After", "2")(w, r)
				return
			}
			answer(200, `{"metadata":{"name":"p"}}`)(w, r)
		})
		start := time.Now()
		obj, err := c.Get(context.Background(), api.Pods, "x", "p")
		if err != nil || obj.GetName() != "p" || len(s.came) != 3 || time.Since(start) < 4*time.Second {
			t.Errorf("%v %v after %s and %d requests", obj, err, time.Since(start), len(s.came))
		}
	})
}

// A kube-apiserver answers most deletes with a Status: the name and uid it gives are handed on.
func TestDeleteAnsweredByStatus(t *testing.T) {
	c, _ := script(t, answer(200, `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"m","kind":"configmaps","uid":"u-1"}}`))
	obj, err := c.Delete(context.Background(), api.ConfigMaps, "x", "m", api.DeleteOptions{})
	if err != nil || obj.GetName() != "m" || obj.GetNamespace() != "x" || obj.GetUID() != "u-1" ||
		obj.GetObjectKind().GroupVersionKind() != api.ConfigMaps.GVK() {
		t.Errorf("%+v %v", obj, err)
	}
}

// Items of a kube-apiserver's list carry no kind; ours must.
func TestListStampsItems(t *testing.T) {
	c, _ := script(t, answer(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"t","remainingItemCount":3},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`))
	list, err := c.List(context.Background(), api.Pods, api.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.Revision != "9" || list.Continue != "t" || *list.Remaining != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	for _, o := range list.Items {
		if o.GetObjectKind().GroupVersionKind() != api.Pods.GVK() {
			t.Errorf("%s: %s", o.GetName(), o.GetObjectKind().GroupVersionKind())
		}
	}
}

func TestWatchLines(t *testing.T) {
	event := func(kind, name string) string {
		return `{"type":"` + kind + `","object":{"metadata":{"name":"` + name + `"}}}` + "\n"
	}
	const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}}` + "\n"
	for _, tc := range []struct {
		name, body string
		events     []string
		is         func(error) bool
	}{
		{"expired", event("ADDED", "a") + event("BOOKMARK", "") + expired, []string{"ADDED a", "BOOKMARK "}, apierrors.IsResourceExpired},
		{"ended", event("ADDED", "a"), []string{"ADDED a"}, apierrors.IsServiceUnavailable},
		{"cut", event("DELETED", "a") + `{"type":"ADDED","obj`, []string{"DELETED a"}, apierrors.IsServiceUnavailable},
		{"nonsense", event("SHRUGGED", "a"), nil, apierrors.IsInternalError},
		{"no event", "<html>", nil, apierrors.IsServiceUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := script(t, answer(200, tc.body))
			w, err := c.Watch(context.Background(), api.Pods, api.WatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for {
				var e api.Event
				if e, err = w.Next(); err != nil {
					break
				}
				got = append(got, string(e.Type)+" "+e.Object.GetName())
			}
			if !slices.Equal(got, tc.events) || !tc.is(err) {
				t.Errorf("%q, then %v", got, err)
			}
			if _, again := w.Next(); again != err {
				t.Errorf("Next after the end: %v", again)
			}
			w.Close()
			w.Close()
		})
	}
}

// Closing a watch, or its context, ends a Next that waits, and lets go of the connection.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, backend(t, nil), admin)
		for _, end := range []string{"close", "context"} {
			ctx, cancel := context.WithCancel(context.Background())
			w, err := c.Watch(ctx, api.ConfigMaps, api.WatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			failed := make(chan error)
			go func() {
				for {
					if _, err := w.Next(); err != nil {
						failed <- err
						return
					}
				}
			}()
			synctest.Wait()
			if end == "close" {
				w.Close()
			} else {
				cancel()
			}
			if err := <-failed; !errors.Is(err, context.Canceled) || !apierrors.IsServiceUnavailable(err) {
				t.Errorf("%s: %v", end, err)
			}
			w.Close()
			cancel()
		}
	})
}

// Logs go through byte by byte, and errors stay errors.
func TestLogs(t *testing.T) {
	text := bytes.Repeat([]byte("all \x00 bytes \xff\n"), 10000)
	c := piped(t, backend(t, logs{text: text}), admin)
	r, err := c.Logs(context.Background(), "x", "p", api.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	if _, err := c.Logs(context.Background(), "x", "missing", api.LogOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	none := piped(t, backend(t, nil), admin)
	var s apierrors.APIStatus
	if _, err := none.Logs(context.Background(), "x", "p", api.LogOptions{}); !errors.As(err, &s) || s.Status().Code != 501 {
		t.Errorf("no streams: %v", err)
	}
}

type logs struct{ text []byte }

func (l logs) Logs(_ context.Context, _, pod string, _ api.LogOptions) (io.ReadCloser, error) {
	if pod == "missing" {
		return nil, apierrors.NewNotFound(api.Pods.GR(), pod)
	}
	return io.NopCloser(bytes.NewReader(l.text)), nil
}

func TestWarnings(t *testing.T) {
	var got []string
	l, dial := httpd.Pipe(admin)
	serve(t, &scripted{reply: answer(200, `{}`, "Warning", `299 - "unknown field \"a\""`)}, l)
	c, err := rest.New(rest.Config{Dial: dial, Warn: func(text string) { got = append(got, text) }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Get(context.Background(), api.Pods, "x", "p"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{`unknown field "a"`}) {
		t.Errorf("%q", got)
	}
}

func TestNewRefuses(t *testing.T) {
	_, dial := httpd.Pipe(admin)
	for name, c := range map[string]rest.Config{"nothing": {}, "both": {Server: &clientrest.Config{Host: "x"}, Dial: dial},
		"nonsense": {Server: &clientrest.Config{Host: "http://%zz"}}} {
		if _, err := rest.New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := rest.FromKubeconfig("/does/not/exist"); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("a kubeconfig that is not there: %v", err)
	}
}
