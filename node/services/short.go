package services

import (
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"ledge/network/service"
)

// leftOut are Services and slices for which the board has no room, some of them: there may be any number.
type leftOut struct {
	mu   sync.Mutex
	of   [2]map[types.NamespacedName]lacking
	more [2]map[string]bool // namespaces of some that are not noted
	due  [2]bool            // they are listed anew soon
	full bool               // the log says so
}

// lacking is the Service that has to know.
type lacking struct {
	of  types.NamespacedName
	uid types.UID // of a Service that the board does not keep
}

// mostLeftOut of each sort are noted. They are told later than those who are kept, if at all.
const mostLeftOut = 256

var noRoom = [2]string{
	service.OfServices: fmt.Sprintf("does not forward this Service, nor answer for its name: it keeps %d Services, and no namespace "+
		"more than it leaves to others", service.MostServices),
	service.OfSlices: fmt.Sprintf("does not lead to all endpoints of this Service: it keeps %d EndpointSlices, and no namespace "+
		"more than it leaves to others", service.MostSlices),
}

// keep forgets those that are gone.
func (o *leftOut) keep(what int, there map[types.NamespacedName]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.of[what], func(n types.NamespacedName, _ lacking) bool { return !there[n] })
	o.more[what], o.due[what] = nil, false // whoever has no room now is noted anew
}

// waits says, once for each time that all are listed, whether somebody waits for room who gets it now, as far as is known.
func (o *leftOut) waits(what int, room func(namespace string) bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.due[what] {
		return false
	}
	for n := range o.of[what] {
		o.due[what] = o.due[what] || room(n.Namespace)
	}
	for namespace := range o.more[what] {
		o.due[what] = o.due[what] || room(namespace)
	}
	return o.due[what]
}

// room takes note of whether there is room for a Service, or a slice.
func (o *leftOut) room(what int, n types.NamespacedName, who lacking, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ok {
		delete(o.of[what], n)
		return
	}
	if !o.full {
		o.full = true
		slog.Warn("there are more Services than a board keeps; some go without", "most", service.MostServices)
	}
	if o.of[what] == nil {
		o.of[what] = map[types.NamespacedName]lacking{}
	}
	if _, had := o.of[what][n]; had || len(o.of[what]) < mostLeftOut {
		o.of[what][n] = who
	} else if len(o.more[what]) < mostLeftOut {
		if o.more[what] == nil {
			o.more[what] = map[string]bool{}
		}
		o.more[what][n.Namespace] = true
	}
}

// join adds them to those who do not get all that they ask for, because of others or because it is too much, and says why.
func (o *leftOut) join(short, much map[string]string) map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.of[service.OfServices])+len(o.of[service.OfSlices])+len(much) == 0 {
		return short
	}
	why := map[string]string{}
	maps.Copy(why, much)
	maps.Copy(why, short)
	for _, what := range []int{service.OfSlices, service.OfServices} { // the worse one counts
		for _, who := range o.of[what] {
			why[who.of.String()] = noRoom[what]
		}
	}
	return why
}

// uidOf is that of a Service that the board does not keep; empty: it is not noted.
func (o *leftOut) uidOf(n types.NamespacedName) types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[service.OfServices][n].uid
}
