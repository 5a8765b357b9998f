package cli

import (
	"io"
	"log/slog"
	"os"
)

// LogTo sends the log to standard error; under systemd the journal adds the time itself.
func LogTo(to io.Writer, verbose bool) {
	opts := &slog.HandlerOptions{}
	if verbose {
		opts.Level = slog.LevelDebug
	}
	if os.Getenv("JOURNAL_STREAM") != "" {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		}
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(to, opts)))
}
