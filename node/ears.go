package node

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// engineEars has the agent act on what happens to the engine.
type engineEars struct{ a *Agent }

// came implements engineNews.
func (e engineEars) came() {
	e.a.roster.poke()
	e.a.poster.Poke()
	e.a.pokeGroups()
	e.a.evictor.Again()
}

// changed implements engineNews.
func (e engineEars) changed(uid types.UID) {
	if w := e.a.roster.of(uid); w != nil {
		w.poke()
	}
}

// named implements engineNews.
func (e engineEars) named(uid types.UID) *corev1.Pod {
	if w := e.a.roster.of(uid); w != nil {
		return w.current()
	}
	return nil
}

// hangs implements engineNews.
func (e engineEars) hangs(pod *corev1.Pod, container, what string) {
	slog.Warn("an operation hangs and will be ended", "pod", api.Key(pod), "what", what)
	e.a.containerEvent(pod, container, corev1.EventTypeWarning, "ContainerHangs", what)
	e.a.poster.Poke()
}
