package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/plugins"
	"ledge/node/podspec"
	"ledge/runtime"
)

// servePlugins joins the device plugins of a board with its agent.
func servePlugins(a *Agent) {
	pokes := make(chan struct{}, 1) // one at a time, at most every mostPokes
	a.cfg.Plugins.Serve(plugins.Rim{Changed: func() {
		select {
		case pokes <- struct{}{}:
			a.poster.Poke()
			time.AfterFunc(mostPokes, func() { <-pokes })
		default: // the next look at the Node tells
		}
		a.roster.tryDevices()
	}, Lives: func(pod string) bool { return livesHere(a, pod) }, Boot: func() string { return a.outlook.last().sample.BootID }})
}

// livesHere says whether a pod may still have what it was given.
func livesHere(a *Agent, pod string) bool {
	w := a.roster.of(types.UID(pod))
	return !isClosed(a.handed) || w != nil && !w.isEnded()
}

// pluginCounts is how many devices a container may ask plugins for, by resource: who has no plugin is passed over by them.
func pluginCounts(c *corev1.Container) map[string]int {
	out := map[string]int{}
	for name, q := range c.Resources.Limits {
		if api.IsExtended(name) && !ofBoard(name) && q.Value() > 0 {
			out[string(name)] = int(min(q.Value(), 1<<20))
		}
	}
	return out
}

// Plugged implements podspec.Needs.
func (n specNeeds) Plugged(ctx context.Context) (out podspec.Plugged, err error) {
	p, want := n.a.cfg.Plugins, pluginCounts(n.c)
	if p == nil || len(want) == 0 {
		return out, nil
	}
	gifts, err := p.Give(ctx, plugins.Ask{Pod: string(n.pod.UID), Container: n.c.Name, Init: plainInit(n.pod, n.c.Name)}, want)
	if err != nil {
		return out, err
	}
	given, err := p.Look(gifts)
	if err != nil {
		return out, err
	}
	out.Env = given.Env
	for _, m := range given.Mounts {
		out.Mounts = append(out.Mounts, runtime.Mount{Source: m.Host, Target: m.At, ReadOnly: m.ReadOnly, Recursive: true})
	}
	for _, d := range given.Devices {
		out.Devices = append(out.Devices, runtime.Device{Path: d.At, Major: d.Major, Minor: d.Minor, ReadOnly: d.ReadOnly})
	}
	return out, nil
}
