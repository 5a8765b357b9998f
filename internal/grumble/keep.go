package grumble

import (
	"context"
	"time"
)

const (
	// Look is how often Keep looks at everything, whatever it was told.
	Look = time.Minute
	// firstRetry and lastRetry after a step that failed.
	firstRetry, lastRetry = time.Second, time.Minute
)

// Keep has something outside, such as the kernel's rules, follow what is known here, until ctx ends: a step after each wake, and one that
// looks at everything each minute, since others may have changed it meanwhile. What wakes it within pause after a step comes together in
// the next. After a failure, which is logged as message once, everything is looked at again, ever more rarely.
func Keep(ctx context.Context, wake <-chan struct{}, pause time.Duration, message string,
	step func(ctx context.Context, everything bool) error) error {
	var failed Once
	timer := time.NewTimer(Look)
	defer timer.Stop()
	for wait := firstRetry; ; {
		everything := false
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-timer.C:
			everything = true
		}
		next := Look
		err := step(ctx, everything)
		if ctx.Err() != nil {
			return nil
		}
		failed.About(message, err)
		if err == nil {
			wait = firstRetry
		} else {
			next, wait = wait, min(2*wait, lastRetry)
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
