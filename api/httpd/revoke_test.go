package httpd_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
)

// out is a list of boards that are not let in any more.
type out struct {
	mu    sync.Mutex
	names map[string]bool
}

func (o *out) put(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names[name] = true
}

func (o *out) has(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.names[name]
}

// deaf is a switchboard where boards wait and nobody calls.
type deaf struct{}

func (deaf) Wait(ctx context.Context, _ string, _ func(string) error) { <-ctx.Done() }
func (deaf) Claim(string, string) (func(net.Conn), bool)              { return nil, false }

// bearer shows a token.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// TestCloseBoard: when a board is turned out, its watches end at once, and so do its tunnel and the watches of the pods that ran there;
// none of them is answered again. The watches of others go on, also those of the same account on another board.
func TestCloseBoard(t *testing.T) {
	a, conf := authority(t)
	l, err := httpd.ListenTLS("127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	gone := &out{names: map[string]bool{}}
	store := serve(t, httpd.Config{}).store
	for _, name := range []string{"b1", "b2"} {
		if _, err := api.Create(t.Context(), store, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	h, err := httpd.New(httpd.Config{Client: store, Calls: deaf{},
		Known: func(peer []*x509.Certificate) error {
			if gone.has(strings.TrimPrefix(peer[0].Subject.CommonName, "system:node:")) {
				return errors.New("it was revoked")
			}
			return nil
		},
		Authenticate: func(token string, _ ...string) (api.User, error) { // a pod's, which names its board
			if gone.has(token) {
				return api.User{}, errors.New("its node is revoked")
			}
			return api.User{Name: "system:serviceaccount:default:default", Groups: []string{api.AdminGroup},
				Extra: map[string][]string{"authentication.kubernetes.io/node-name": {token}}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	l = l.WithTokens()
	run(t, &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}})
	url := "https://" + l.Addr().String()
	watch := func(c *http.Client, path string) io.Reader {
		t.Helper()
		resp, err := c.Get(url + path)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.Body
	}
	client := map[string]*http.Client{}
	open := map[string][]io.Reader{}
	for _, name := range []string{"b1", "b2"} {
		board, pod := withCert(t, a, "system:node:"+name, "system:nodes"), withCert(t, a, "")
		pod.Transport = bearer{name, pod.Transport}
		client[name], client["pod on "+name] = board, pod
		own := "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D" + name
		open[name] = []io.Reader{watch(board, own), watch(board, "/tunnel"), watch(pod, own)}
	}
	gone.put("b1")
	l.CloseBoard("b1")
	for i, r := range open["b1"] {
		if _, err := io.Copy(io.Discard, r); err == nil { // it must be cut, not end as if there were no more
			t.Errorf("%d ended well", i)
		}
	}
	for _, name := range []string{"b1", "pod on b1"} {
		if code, body, err := get(client[name], url+"/api/v1/nodes/b1"); code != 401 || err != nil {
			t.Errorf("%s: %d %s %v", name, code, body, err)
		}
	}
	for _, name := range []string{"b2", "pod on b2"} {
		if code, body, err := get(client[name], url+"/api/v1/nodes/b2"); code != 200 || err != nil {
			t.Errorf("%s: %d %s %v", name, code, body, err)
		}
	}
	for i := range 2 { // what watches b2 hears of it; the tunnel has nothing to say
		n, err := api.Get[*corev1.Node](t.Context(), store, api.Nodes, "", "b2")
		if err != nil {
			t.Fatal(err)
		}
		n.Labels = map[string]string{"round": string(rune('a' + i))}
		if _, err := store.Update(t.Context(), api.Nodes, n, api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, w := range []int{0, 2} {
			for told := ""; !strings.Contains(told, `"round":"`+n.Labels["round"]); {
				piece := make([]byte, 64<<10)
				k, err := open["b2"][w].Read(piece)
				if told += string(piece[:k]); err != nil {
					t.Fatalf("watch %d of b2 ended: %v", w, err)
				}
			}
		}
	}
}
