package node

import (
	"strings"
	"testing"
)

// TestNameMetrics: /metrics has a line for each kind of question, if the board answers any.
func TestNameMetrics(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.cfg.Questions = func(each func(kind string, n uint64)) { each("cluster", 7); each("stale", 0) }
		r.begin()
		_, text, _, err := r.agent.Page(r.Context(), "/metrics")
		const want = "# TYPE ledge_dns_questions_total counter\n" +
			"ledge_dns_questions_total{kind=\"cluster\"} 7\nledge_dns_questions_total{kind=\"stale\"} 0\n"
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	})
}
