package images

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// halfway is a finished layer of a pull that failed. The next pull that needs the layer uses it. It is not synced
// yet: opening the store deletes it, as everything unfinished, and the pull that succeeds syncs it with the rest.
type halfway struct {
	made
	since time.Time
}

// halfwayStays is how long such a layer waits. A pull is tried again after five minutes at most, and then takes its time.
const halfwayStays = time.Hour

// leftovers are what pulls made before they failed.
type leftovers struct {
	stock *stock

	mu      sync.Mutex
	byChain map[string]halfway
}

// takeUp moves into a batch what an earlier pull made of an image, and says how many layers that are.
func (o *leftovers) takeUp(b *batch, layers []layerRef) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range layers {
		if h, ok := o.byChain[l.Chain]; ok {
			delete(o.byChain, l.Chain)
			b.add(h.made)
			n++
		}
	}
	return n
}

// leave ends a pull's batch. After an error the layers that it made wait for another try, unless the card is the trouble.
func (o *leftovers) leave(b *batch, p *pull, cause error) error {
	full := errors.Is(cause, unix.ENOSPC) || errors.Is(cause, unix.EDQUOT)
	if cause == nil || full || o.stock.home.broken() != nil {
		return o.stock.drop(b, p)
	}
	var rest batch
	o.mu.Lock()
	for _, m := range b.made {
		if _, there := o.byChain[m.row.Chain]; m.swapped || there {
			rest.made = append(rest.made, m)
			continue
		}
		o.byChain[m.row.Chain] = halfway{m, time.Now()}
	}
	o.mu.Unlock()
	return o.stock.drop(&rest, p)
}

// drop deletes layers that nobody came back for: old ones, or all of them.
func (o *leftovers) drop(all bool) (bytes int64, err error) {
	var gone batch
	o.mu.Lock()
	for chain, h := range o.byChain {
		if all || time.Since(h.since) >= halfwayStays {
			delete(o.byChain, chain)
			gone.made = append(gone.made, h.made)
			bytes += h.row.Bytes
		}
	}
	o.mu.Unlock()
	return bytes, o.stock.drop(&gone, nil)
}
