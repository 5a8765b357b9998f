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
// looks at everything a minute after the last that did, since others may have changed it meanwhile. What wakes it within pause after a step
// comes together in the next. After a failure, which is logged as message once, steps look at everything until one goes well, and without
// wakes are tried ever more rarely.
func Keep(ctx context.Context, wake <-chan struct{}, pause time.Duration, message string,
	step func(ctx context.Context, everything bool) error) error {
	var failed Once
	due, wait, wrong := time.Now().Add(Look), firstRetry, false
	timer := time.NewTimer(Look)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-timer.C:
		}
		everything := wrong || !time.Now().Before(due)
		err := step(ctx, everything)
		if ctx.Err() != nil {
			return nil
		}
		failed.About(message, err)
		if wrong = err != nil; wrong {
			timer.Reset(wait)
			wait = min(2*wait, lastRetry)
		} else {
			if everything {
				due = time.Now().Add(Look)
			}
			wait = firstRetry
			timer.Reset(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
