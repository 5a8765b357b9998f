package httpd

import (
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// showsPeers: a node asks about pods that are not its own. It sees of them what network policies go by.
func (r *request) showsPeers() bool {
	node, ok := nodeName(r.user)
	return ok && r.kind == api.Pods && r.name == "" && !r.attributes().selects("spec.nodeName", node)
}

func peersOf(l api.List) api.List {
	out := make([]api.Object, len(l.Items))
	for i, o := range l.Items {
		out[i] = peerOf(o)
	}
	l.Items = out
	return l
}

func peerOf(o api.Object) api.Object {
	if p, ok := o.(*corev1.Pod); ok {
		return api.PeerOf(p)
	}
	return o
}
