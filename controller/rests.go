package controller

import (
	"hash/maphash"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// rests remembers which objects needed nothing when they were looked at. As long as what was seen then stays as it is, the next look
// may pass over them: most are at rest at any time, and every change of a pod makes the loops look.
type rests map[types.UID]rest

type rest struct {
	saw   sight
	until time.Time // when to look again whatever there is to be seen
}

// sight tells some objects, in no order, from other versions of them. Their newest revision would not: views do not show what was
// written in the order of writing.
type sight uint64

var sights = maphash.MakeSeed()

func see[T api.Object](objs ...T) (s sight) {
	for _, obj := range objs {
		s += sight(maphash.Comparable(sights, version{obj.GetUID(), obj.GetResourceVersion()}))
	}
	return s
}

type version struct {
	uid      types.UID
	revision string
}

// left is how long an object may still be passed over, if at all.
func (r rests) left(uid types.UID, saw sight, now time.Time) (d time.Duration, ok bool) {
	was, ok := r[uid]
	if !ok || was.saw != saw || !was.until.After(now) {
		delete(r, uid)
		return 0, false
	}
	return was.until.Sub(now), true
}
