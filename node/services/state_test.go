package services

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/network/fake"
)

// TestNodeTellsOfTrouble: where the kernel takes no rules of Services, the Node says so and names the remedy, until it takes them.
func TestNodeTellsOfTrouble(t *testing.T) {
	p := newPlane()
	rig(t, p, func(l *Loop, _ *fake.Kernel, c *counted) {
		set := func(err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.broken = err
		}
		is := func(what string, status corev1.ConditionStatus, words ...string) {
			t.Helper()
			time.Sleep(2 * look)
			synctest.Wait()
			got := l.Forwarded()
			if got.Type != "ServiceTrouble" || got.Status != status {
				t.Errorf("%s: %+v", what, got)
			}
			for _, w := range words {
				if !strings.Contains(got.Message, w) {
					t.Errorf("%s: %q does not say %q", what, got.Message, w)
				}
			}
		}
		is("no Service", "")
		set(fmt.Errorf("this kernel lacks something: %w", unix.EOPNOTSUPP))
		p.put(api.Services, svc("web", "10.96.0.1"))
		is("the kernel lacks something", corev1.ConditionTrue, "this kernel lacks something", "ledge doctor")
		set(nil)
		is("it has a new kernel module", "")
	})
}
