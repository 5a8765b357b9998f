package node

import "log/slog"

// grumble logs a failure once, and again only when it is another one or after things went well in between: a dead
// uplink or a full disk fails every few seconds, for every pod.
type grumble struct{ last string }

func (g *grumble) about(message string, err error, args ...any) {
	switch {
	case err == nil:
		g.last = ""
	case err.Error() != g.last:
		g.last = err.Error()
		slog.Warn(message, append(args, "err", err)...)
	}
}
