package poster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestTellTroubles: why a node is not ready is logged once, until it changes or is over.
func TestTellTroubles(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	p := &Poster{}
	for _, why := range []string{"", "no network", "no network", "no keeper", "", ""} {
		p.tellTroubles(why)
	}
	if got := log.String(); strings.Count(got, "\n") != 3 || strings.Count(got, "WARN") != 2 || !strings.Contains(got, `why="no network"`) ||
		!strings.Contains(got, "level=INFO msg=\"what kept") {
		t.Error(got)
	}
}
