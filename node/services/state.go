package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
)

// state is why the kernel does not forward Services as it should. It is safe for concurrent use.
type state struct {
	trouble atomic.Pointer[error]
	hidden  atomic.Bool
}

// hide takes note of whether Services have endpoints that cannot be reached from here.
func (s *state) hide(some bool) {
	if some && !s.hidden.Swap(some) {
		slog.Warn(sharedNetwork)
	}
	s.hidden.Store(some)
}

const sharedNetwork = "pods of another board have addresses of this board's own pods, so Services do not lead there from here; " +
	"give every board a network: ledge serve --allocate-node-cidrs --cluster-cidr 10.44.0.0/16"

// set takes note of how a try went. One that was broken off says nothing.
func (s *state) set(err error) {
	switch {
	case err == nil:
		s.trouble.Store(nil)
	case !errors.Is(err, context.Canceled):
		s.trouble.Store(&err)
	}
}

// Forwarded is the condition ServiceTrouble of the Node; without trouble there is none.
func (l *Loop) Forwarded() corev1.NodeCondition {
	c := corev1.NodeCondition{Type: "ServiceTrouble"}
	if err := l.state.trouble.Load(); err != nil {
		c.Status, c.Reason = corev1.ConditionTrue, "NotInTheKernel"
		c.Message = fmt.Sprintf("Services may not lead to their pods from this board: %v; 'ledge doctor' tries what the kernel needs for them",
			*err)
	} else if l.state.hidden.Load() {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "NetworkShared", sharedNetwork
	}
	return c
}
