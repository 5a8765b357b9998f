package httpd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// measuring is what the boards said when they were asked last. Many ask for tops of a fleet at once, and what a board measures
// changes every 15 seconds.
type measuring struct {
	mu   sync.Mutex
	at   time.Time
	page measuredPage
}

const (
	measuredFor = 5 * time.Second // what was heard counts
	measureTime = 3 * time.Second // for a board to answer
	measureMost = 16              // boards asked at once

	maxMeasured      = 256 << 10 // bytes of an answer
	measuredElements = 8192      // of its JSON
)

// measuredElsewhere asks the boards that are ready what they use. One that does not answer is left out.
func (m *measures) measuredElsewhere(ctx context.Context) (measuredPage, error) {
	last := &m.measuring
	last.mu.Lock()
	defer last.mu.Unlock()
	if m.boards.dialBoard == nil || time.Since(last.at) < measuredFor && !last.at.IsZero() {
		return last.page, nil
	}
	nodes, err := m.client.List(ctx, api.Nodes, api.ListOptions{})
	if err != nil {
		return measuredPage{}, err
	}
	pods, err := m.client.List(ctx, api.Pods, api.ListOptions{})
	if err != nil {
		return measuredPage{}, err
	}
	on := map[string]map[string]*corev1.Pod{} // by node
	for _, o := range pods.Items {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			if on[p.Spec.NodeName] == nil {
				on[p.Spec.NodeName] = map[string]*corev1.Pod{}
			}
			on[p.Spec.NodeName][p.Namespace+"/"+p.Name] = p
		}
	}
	// It is everybody's answer: it neither ends with who asked first nor counts for him.
	ctx, cancel := context.WithTimeout(withParty(context.WithoutCancel(ctx), party{root, rootUser}), measureTime)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	var out measuredPage
	places := make(chan struct{}, measureMost)
	for _, o := range nodes.Items {
		node, ok := o.(*corev1.Node)
		if !ok || node.Name == m.boards.node || !api.NodeReady(node) {
			continue
		}
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			page, err := m.measuredOn(ctx, node, on[node.Name])
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out.Nodes, out.Pods = append(out.Nodes, page.Nodes...), append(out.Pods, page.Pods...)
		})
	}
	all.Wait()
	last.at, last.page = time.Now(), out
	return out, nil
}

// measuredOn asks one board.
func (m *measures) measuredOn(ctx context.Context, node *corev1.Node, pods map[string]*corev1.Pod) (measuredPage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://board"+measuredPath, nil)
	if err != nil {
		return measuredPage{}, err
	}
	resp, err := foreign{Transport: m.boards.boardTransport(node.Name), judge: fromBoard}.RoundTrip(req)
	if err != nil {
		return measuredPage{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxMeasured+1))
	switch {
	case err != nil:
		return measuredPage{}, err
	case len(data) > maxMeasured:
		return measuredPage{}, fmt.Errorf("it answered with more than %d bytes", maxMeasured)
	}
	return readMeasured(data, node, pods)
}

// readMeasured takes what a board says of itself and of its own pods, and nothing else. Three bytes of JSON can be a
// whole PodMetrics, so they are counted, decoded one after the other, and kept only for pods that the board has.
func readMeasured(data []byte, node *corev1.Node, pods map[string]*corev1.Pod) (out measuredPage, err error) {
	if err := prescan(data, measuredElements); err != nil {
		return out, err
	}
	var said struct{ Nodes, Pods []json.RawMessage }
	if err := json.Unmarshal(data, &said); err != nil {
		return out, err
	}
	for _, raw := range said.Nodes {
		var m *api.NodeMetrics
		if err := api.CheckAmounts(raw, m); err != nil {
			return out, err
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return out, err
		}
		if m != nil && m.Name == node.Name && len(out.Nodes) == 0 {
			out.Nodes = append(out.Nodes, &api.NodeMetrics{ObjectMeta: metaOf(m.ObjectMeta, node.Labels),
				Timestamp: m.Timestamp, Window: m.Window, Usage: usageOf(m.Usage)})
		}
	}
	left := maps.Clone(pods)
	for _, raw := range said.Pods {
		if len(left) == 0 {
			break
		}
		var m *api.PodMetrics
		if err := api.CheckAmounts(raw, m); err != nil {
			return out, err
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return out, err
		}
		if m == nil || left[m.Namespace+"/"+m.Name] == nil {
			continue
		}
		pod := left[m.Namespace+"/"+m.Name]
		delete(left, m.Namespace+"/"+m.Name)
		out.Pods = append(out.Pods, &api.PodMetrics{ObjectMeta: metaOf(m.ObjectMeta, pod.Labels),
			Timestamp: m.Timestamp, Window: m.Window, Containers: containersOf(m, pod)})
	}
	return out, nil
}

// metaOf is what is kept of the metadata that a board gives. Labels are the API's.
func metaOf(said metav1.ObjectMeta, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: said.Namespace, Name: said.Name, CreationTimestamp: said.CreationTimestamp, Labels: maps.Clone(labels)}
}

// containersOf is what a board says of the containers that a pod has, of each once.
func containersOf(m *api.PodMetrics, pod *corev1.Pod) []api.ContainerMetrics {
	var out []api.ContainerMetrics
	for _, c := range m.Containers {
		has := func(o api.ContainerMetrics) bool { return o.Name == c.Name }
		if _, err := containerIn(pod, c.Name); c.Name != "" && err == nil && !slices.ContainsFunc(out, has) {
			out = append(out, api.ContainerMetrics{Name: c.Name, Usage: usageOf(c.Usage)})
		}
	}
	return out
}

// usageOf is what is kept of what a board measured.
func usageOf(said corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := said[name]; ok {
			out[name] = q
		}
	}
	return out
}
