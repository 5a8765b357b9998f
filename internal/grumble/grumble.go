// Package grumble is for failures that come again and again: Once logs them once, and Keep tries again until it goes well.
package grumble

import "log/slog"

// Once logs a failure once, and again only when it is another one or after things went well in between: a dead
// uplink or a full disk fails every few seconds, for every pod.
type Once struct{ last string }

// About logs err unless it is what was logged last; nil says that things go well.
func (g *Once) About(message string, err error, args ...any) {
	switch {
	case err == nil:
		g.last = ""
	case err.Error() != g.last:
		g.last = err.Error()
		slog.Warn(message, append(args, "err", err)...)
	}
}
