package httpd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/internal/testrun"
)

// manyHeaders is as many different headers as fit.
func manyHeaders() string {
	var b strings.Builder
	for i := 0; b.Len() < 31<<10; i++ {
		fmt.Fprintf(&b, "X-%x:\r\n", i)
	}
	return b.String()
}

// wide is an answer to what a board measures that has as many elements as may be, each of which unfolds.
func wide(piece string) string {
	n := 8000 / (strings.Count(piece, ",") + strings.Count(piece, "{") + strings.Count(piece, "[") + 1)
	return ok200 + "Content-Type: application/json\r\n\r\n" + `{"nodes":[],"pods":[` + strings.Repeat(piece+",", n) + piece + "]}"
}

// TestBadBoardsCostLittleMemory has sixteen boards at once answer as widely as they can. The handler's heap grows by less than
// 32 MB, whatever they are asked for.
func TestBadBoardsCostLittleMemory(t *testing.T) {
	const boards, most = 16, 32 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // what is counted shall be what is held
	endless := forEver("X-A: "+strings.Repeat("b", 100)+"\r\n", 0)
	pods := forEver(strings.Repeat("{},", 1000), 0)
	for _, tc := range []struct {
		name, path string
		behind     int
		answer     badAnswer
	}{
		{"way to a pod, headers without end", podsPath + "/far%d:80/proxy/x", 0, badAnswer{text: ok200, more: endless}},
		{"way to a pod, 1xx without end", podsPath + "/far%d:80/proxy/x", 0,
			badAnswer{more: forEver("HTTP/1.1 103 Early\r\n"+steering+"\r\n", 0)}},
		{"way to a pod, an error without end", podsPath + "/far%d:80/proxy/x", 0, badAnswer{text: "HTTP/1.1 500 No\r\n\r\n", more: pods}},
		{"pod, headers without end", podsPath + "/far%d:80/proxy/x", 1, badAnswer{text: ok200, more: endless}},
		{"pod, many headers", podsPath + "/far%d:80/proxy/x", 1,
			badAnswer{text: ok200 + manyHeaders() + "\r\n", more: forEver("x", time.Millisecond)}},
		{"pod, a body without end", podsPath + "/far%d:80/proxy/x", 1, badAnswer{text: ok200 + "\r\n", more: pods}},
		{"log, headers without end", podsPath + "/far%d/log", 0, badAnswer{text: ok200, more: endless}},
		{"log, an error of empty objects", podsPath + "/far%d/log", 0,
			badAnswer{text: "HTTP/1.1 500 No\r\n\r\n" + `{"details":{"causes":[`, more: pods}},
		{"log, a body without end", podsPath + "/far%d/log", 0, badAnswer{text: ok200 + "\r\n", more: pods}},
		{"stats, a body without end", "/api/v1/nodes/b%d/proxy/stats/summary", 0, badAnswer{text: ok200 + "\r\n", more: pods}},
		{"top, empty pods without end", topPath, 0, badAnswer{text: ok200 + "\r\n" + `{"pods":[`, more: pods}},
		{"top, one text without end", topPath, 0,
			badAnswer{text: ok200 + "\r\n" + `{"pods":[{"metadata":{"name":"`, more: forEver(strings.Repeat("x", 4096), 0)}},
		{"top, empty pods", topPath, 0, badAnswer{text: wide("{}")}},
		{"top, pods with empty owners", topPath, 0, badAnswer{text: wide(`{"metadata":{"ownerReferences":[{},{},{}]}}`)}},
		{"top, pods with empty containers", topPath, 0, badAnswer{text: wide(`{"containers":[` + strings.Repeat("{},", 900) + `{}]}`)}},
		{"top, usage of everything", topPath, 0, badAnswer{text: wide(`{"containers":[{"usage":{"a":"1","b":"1","c":"1","d":"1","e":"1"}}]}`)}},
		{"top, headers without end", topPath, 0, badAnswer{text: ok200, more: endless}},
	} {
		begun := time.Now()
		grown := testrun.HeapGrowth(func() {
			synctest.Test(t, func(t *testing.T) { widely(t, boards, tc.behind, tc.answer).askAll(boards, tc.path) })
		})
		t.Logf("%-40s %5.1f MB %s", tc.name, float64(grown)/(1<<20), time.Since(begun))
		if grown > most {
			t.Errorf("%s: %d boards make the heap grow by %d bytes", tc.name, boards, grown)
		}
	}
}

// TestBadBoardsWriteWidely has sixteen boards at once write what they may, as large as it may be and larger. What is alive in handler and
// store grows by less than 32 MB.
func TestBadBoardsWriteWidely(t *testing.T) {
	const boards, most = 16, 32 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	users := []api.User{admin}
	for i := range boards {
		users = append(users, api.User{Name: fmt.Sprint("system:node:b", i), Groups: []string{"system:nodes"}})
	}
	f := serveTo(t, httpd.Config{}, users...)
	for i := range boards {
		f.node = fmt.Sprint("b", i)
		f.withRunningPod(fmt.Sprint("far", i))
		if _, err := api.Create(t.Context(), f.store, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.node}}); err != nil {
			t.Fatal(err)
		}
	}
	text := func(n int) string { return strings.Repeat("x", n) }
	status := func(n int) string { return `{"status":{"message":"` + text(n) + `"}}` }
	event := func(n int) string {
		return `{"metadata":{"generateName":"e"},"involvedObject":{"kind":"Node","name":"b%d"},"source":{"host":"b%d"},"message":"` +
			text(n) + `"}`
	}
	for _, tc := range []struct {
		name, method, path, body string
		codes                    []int // one of them answers somebody at least; on a slow machine not everybody has a turn
	}{
		{"statuses", "PATCH", podsPath + "/far%d/status", status(240_000), []int{200}},
		{"statuses that are too large", "PATCH", podsPath + "/far%d/status", status(1_400_000), []int{403, 413, 429}},
		{"statuses of empty conditions", "PATCH", podsPath + "/far%d/status",
			`{"status":{"conditions":[` + strings.Repeat("{},", 400_000) + `{}]}}`, []int{403, 413, 422, 429}},
		{"Nodes", "PATCH", "/api/v1/nodes/b%d/status", `{"status":{"nodeInfo":{"kernelVersion":"` + text(240_000) + `"}}}`, []int{200}},
		{"events", "POST", "/api/v1/namespaces/default/events", event(900), []int{201}},
		{"events that are too large", "POST", "/api/v1/namespaces/default/events", event(1_000_000), []int{403, 413, 422}},
	} {
		var paths, bodies [boards]string // made before, for they are the boards'
		for i := range boards {
			paths[i], bodies[i] = strings.ReplaceAll(tc.path, "%d", fmt.Sprint(i)), strings.ReplaceAll(tc.body, "%d", fmt.Sprint(i))
		}
		var answered atomic.Int32
		grown := testrun.LiveGrowth(func() {
			var all sync.WaitGroup
			for i := range boards {
				all.Go(func() {
					if slices.Contains(tc.codes, f.write(i, tc.method, paths[i], bodies[i])) {
						answered.Add(1)
					}
				})
			}
			all.Wait()
		})
		t.Logf("%-40s %5.1f MB", tc.name, float64(grown)/(1<<20))
		if grown > most {
			t.Errorf("%s: %d boards make the heap grow by %d bytes", tc.name, boards, grown)
		}
		if answered.Load() == 0 {
			t.Errorf("%s: nobody was answered by %v", tc.name, tc.codes)
		}
	}
}

// write is a write of a board, and the code that answers it; 0: none does.
func (f *fixture) write(board int, method, path, body string) int {
	req, err := http.NewRequestWithContext(f.t.Context(), method, "http://ledge"+path, strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return 0
	}
	if req.Header.Set("Content-Type", "application/json"); method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	resp, err := f.as[fmt.Sprint("system:node:b", board)].Do(req)
	if err != nil {
		return 0 // the server has waited long enough for it
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// widely is a control plane of boards that are all ready and answer the same.
func widely(t *testing.T, boards, behind int, answer badAnswer) *fixture {
	t.Helper()
	f := serve(t, httpd.Config{Node: "a", Streams: none{}, Exec: none{}, Forward: ports{}, Metrics: measuredBoard{}, MaxSessions: 2 * boards,
		DialBoard: func(context.Context, string) (net.Conn, error) { return badBoard(answer, behind, nil), nil }})
	for i := range boards {
		f.node = fmt.Sprintf("b%d", i)
		f.reachable(fmt.Sprintf("far%d", i), "10.1.0.7")
		n, err := api.Create(t.Context(), f.store, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.node}})
		if err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if _, err := api.UpdateStatus(t.Context(), f.store, api.Nodes, n); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

const topPath = "/apis/metrics.k8s.io/v1beta1/nodes"

// askAll asks every board for something at once, reads a megabyte and leaves.
func (f *fixture) askAll(boards int, path string) {
	if path == topPath {
		boards = 1 // it asks all of them
	}
	var all sync.WaitGroup
	for i := range boards {
		all.Go(func() {
			url := "http://ledge" + path
			if strings.Contains(path, "%d") {
				url = fmt.Sprintf(url, i)
			}
			resp, err := f.as[admin.Name].Get(url)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			most := int64(1 << 20)
			if resp.Header.Get("X-1") != "" {
				most = 10 // it comes slowly
			}
			io.Copy(io.Discard, io.LimitReader(resp.Body, most))
		})
	}
	all.Wait()
}
