package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"ledge/api"
	"ledge/api/node"
	"ledge/node/volume"
)

// handlers are what a RuntimeClass may name: there is one way to run a container here, and these are its names.
var handlers = []string{"ledge", "runc"}

// nodeHandlers are the handlers in the words of the Node, first that of pods without a class. Each says what containers may ask of it,
// which differs between boards that can map users and boards that cannot.
func nodeHandlers(users bool) []corev1.NodeRuntimeHandler {
	readOnly := volume.CanSetAttributes()
	var out []corev1.NodeRuntimeHandler
	for _, name := range append([]string{""}, handlers...) {
		out = append(out, corev1.NodeRuntimeHandler{Name: name,
			Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &readOnly, UserNamespaces: &users}})
	}
	return out
}

// canHandle says whether this board has the handler of a pod's class. A class that is made or mended later counts with
// the next try.
func (h *hands) canHandle(ctx context.Context, pod *corev1.Pod) error {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return nil
	}
	class, err := api.Get[*nodev1.RuntimeClass](ctx, h.a.cfg.Client, node.RuntimeClasses, "", *name)
	if err != nil {
		return &fault{"SandboxError", fmt.Errorf("look for the RuntimeClass %q: %w", *name, err)}
	}
	if !slices.Contains(handlers, class.Handler) {
		return &fault{"SandboxError", said(fmt.Sprintf("Failed to create pod sandbox: no runtime for %q is configured: the handlers of this board are %s",
			class.Handler, strings.Join(handlers, " and ")))}
	}
	return nil
}
