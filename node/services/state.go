package services

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
)

// state is why the kernel does not forward Services as it should. It is safe for concurrent use.
type state struct{ trouble atomic.Pointer[error] }

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
	}
	return c
}
