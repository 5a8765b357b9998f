package services

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/network/service"
)

// mostTold bounds how many Services hear something in one look: the others' events need room too. The rest hears it later.
const mostTold = 32

// teller tells Services what is not well with them on this board, once.
type teller struct {
	tell func(name, why string) // nil: nobody hears it
	told map[string]string      // by Service: why, as it was told
}

// say tells those that were not told so yet. All that is not well now is in why.
func (t *teller) say(why map[string]string) {
	told, left := map[string]string{}, mostTold
	for _, name := range slices.Sorted(maps.Keys(why)) {
		if t.told[name] != why[name] {
			if t.tell == nil || left == 0 {
				continue
			}
			t.tell(name, why[name])
			left--
		}
		told[name] = why[name]
	}
	t.told = told
}

// warn writes a warning about a Service, with what this board says of it.
func (l *Loop) warn(reason string) func(name, why string) {
	return func(name, why string) {
		if l.cfg.Events == nil {
			return
		}
		key := service.Key(name)
		ref := corev1.ObjectReference{APIVersion: api.Services.APIVersion(), Kind: api.Services.Name, Namespace: key.Namespace, Name: key.Name}
		ref.UID = l.out.uidOf(key)
		l.heard.RLock()
		if s := l.heard.Service(key); s != nil {
			ref.UID = s.UID
		}
		l.heard.RUnlock()
		l.cfg.Events.EventOn(ref, corev1.EventTypeWarning, reason, "Board "+l.cfg.Node+" "+why)
	}
}
