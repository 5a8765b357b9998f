package images

import (
	"errors"
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

// takeUp moves into a batch what an earlier pull made of an image, and says how many layers that are.
func (d *Disk) takeUp(b *batch, layers []layerRef) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range layers {
		if h, ok := d.halfway[l.Chain]; ok {
			delete(d.halfway, l.Chain)
			b.add(h.made)
			n++
		}
	}
	return n
}

// leave ends a pull's batch. After an error the layers that it made wait for another try, unless the card is the trouble.
func (d *Disk) leave(b *batch, p *pull, cause error) error {
	full := errors.Is(cause, unix.ENOSPC) || errors.Is(cause, unix.EDQUOT)
	if cause == nil || full || d.broken() != nil {
		return d.drop(b, p)
	}
	var rest batch
	d.mu.Lock()
	for _, m := range b.made {
		if _, there := d.halfway[m.row.Chain]; m.swapped || there {
			rest.made = append(rest.made, m)
			continue
		}
		d.halfway[m.row.Chain] = halfway{m, time.Now()}
	}
	d.mu.Unlock()
	return d.drop(&rest, p)
}

// dropHalfway deletes layers that nobody came back for: old ones, or all of them.
func (d *Disk) dropHalfway(all bool) (bytes int64, err error) {
	var gone batch
	d.mu.Lock()
	for chain, h := range d.halfway {
		if all || time.Since(h.since) >= halfwayStays {
			delete(d.halfway, chain)
			gone.made = append(gone.made, h.made)
			bytes += h.row.Bytes
		}
	}
	d.mu.Unlock()
	return bytes, d.drop(&gone, nil)
}
