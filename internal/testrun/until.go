package testrun

import (
	"errors"
	"testing"
	"time"
)

// Until waits for something to become so, and fails the test if that takes longer than within (Patience lengthens it).
func Until(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	Succeeds(t, within, what, func() error {
		if !is() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("it is not so")

// Succeeds tries until there is no error, and fails the test with the last one if that takes longer than within. The tries
// are a millisecond apart at first, so that what is quick costs little, and a twentieth of a second at last.
func Succeeds(t testing.TB, within time.Duration, what string, try func() error) {
	t.Helper()
	within = Patience(within)
	end := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(pause*5/4, 50*time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
			return // a made-up t goes on
		}
		time.Sleep(pause)
	}
}
