package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/node/podstate"
	"ledge/shutdown"
)

// powerNode is the board as a shutdown sees it.
type powerNode struct{ b *board }

var _ shutdown.Node = powerNode{}

func (n powerNode) Close(message string) { n.b.agent.Close(message) }

func (n powerNode) Pods() []*corev1.Pod { return n.b.agent.Pods() }

func (n powerNode) StopPod(ctx context.Context, uid types.UID, grace time.Duration) error {
	return n.b.agent.StopPod(ctx, uid, podstate.Stop{Reason: shutdown.StopReason, Message: shutdown.StopMessage,
		Disruption: shutdown.StopDisruption, Grace: &grace})
}

func (n powerNode) Flush(context.Context) error { return n.b.store.Flush() }
