package httpd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/storage"
)

// thousand makes that many pods of some size.
func thousand(t testing.TB, client *local.Client) {
	for i := range 1000 {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%03d", i),
				Labels: map[string]string{"app": fmt.Sprint("app-", i%10), "one": fmt.Sprint(i)}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self"}, {Name: "d", Image: "ledge.local/self",
				Env: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d"}}}}},
		}
		if _, err := client.Create(context.Background(), api.Pods, pod, api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

var listsOfMany = map[string]string{
	"all":   "/api/v1/pods",
	"label": "/api/v1/pods?labelSelector=one%3D500",
	"field": "/api/v1/pods?fieldSelector=status.phase%3DFailed",
	"page":  "/api/v1/pods?limit=50",
}

// TestListsAreCopied: what a list costs does not grow with what is in its objects: nothing is decoded, and nothing encoded again.
func TestListsAreCopied(t *testing.T) {
	f := serve(t, httpd.Config{})
	thousand(t, f.store)
	for _, path := range listsOfMany {
		const most = 4500 // some four for each pod; one that is decoded takes 67, and each container makes them more
		if n := testing.AllocsPerRun(3, func() { f.must(http.StatusOK, "GET", path, "") }); n > most {
			t.Errorf("%s: %.0f allocations for 1000 pods, want at most %d", path, n, most)
		}
	}
	one := f.must(http.StatusOK, "GET", listsOfMany["label"], "")
	if n := strings.Count(one.body, `"uid":`); n != 1 || !strings.Contains(one.body, `"name":"pod-500"`) {
		t.Errorf("a selector of one picks %d", n)
	}
}

// TestEventsAreEncodedOnce: one more who watches costs no more copy of what is told.
func TestEventsAreEncodedOnce(t *testing.T) {
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	client, err := local.New(local.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	var watches []api.Watcher[[]byte]
	for range 3 {
		w, err := client.WatchJSON(t.Context(), api.ConfigMaps, api.WatchOptions{Selection: api.Selection{Namespace: "default"}})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		watches = append(watches, w)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}, Data: map[string]string{"k": "v"}}
	if _, err := client.Create(t.Context(), api.ConfigMaps, m, api.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(t.Context(), api.ConfigMaps, "default", "m", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []api.EventType{api.Added, api.Deleted} {
		var first *byte
		for _, w := range watches {
			e, err := w.Next()
			if err != nil || e.Type != want {
				t.Fatalf("%s %s, %v", e.Type, e.Object, err)
			}
			if first == nil {
				first = &e.Object[0]
			} else if first != &e.Object[0] {
				t.Errorf("%s was encoded again", want)
			}
		}
	}
}

// BenchmarkLists is what lists of a thousand pods take, and a watch that begins with them, with the way to a client in the same process.
func BenchmarkLists(b *testing.B) {
	db, err := storage.Open(b.Context(), storage.Config{Dir: b.TempDir(), NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	client, err := local.New(local.Config{Store: db})
	if err != nil {
		b.Fatal(err)
	}
	thousand(b, client)
	h, err := httpd.New(httpd.Config{Client: client})
	if err != nil {
		b.Fatal(err)
	}
	l, dial := httpd.Pipe(admin)
	srv := &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- srv.Run(ctx) }()
	defer func() { cancel(); <-done }()
	caller := &http.Client{Transport: &http.Transport{DialContext: dialer(dial), DisableCompression: true}, Timeout: time.Minute}
	defer caller.CloseIdleConnections()
	for what, path := range listsOfMany {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resp, err := caller.Get("http://ledge" + path)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					b.Fatal(resp.Status, err)
				}
				resp.Body.Close()
			}
		})
	}
	b.Run("watch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			resp, err := caller.Get("http://ledge" + listsOfMany["all"] + "?watch=1")
			if err != nil {
				b.Fatal(err)
			}
			in := bufio.NewReaderSize(resp.Body, 64<<10)
			for range 1000 {
				if _, err := in.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
			resp.Body.Close()
		}
	})
}
