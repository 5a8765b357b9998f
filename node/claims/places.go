package claims

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"ledge/api"
	"ledge/api/storage"
	"ledge/host/quota"
)

// place is where directories of volumes are made: the card, or a disk of the configuration.
type place struct {
	disk   string // its name; empty: the card
	on     *disk  // nil: the card, or a disk that the configuration does not know
	shelf  *Shelf // nil: the configuration does not know the disk
	absent string // why nothing can be done there
}

func (p place) has(v *corev1.PersistentVolume) bool {
	return p.shelf != nil && v.Spec.Local != nil && v.Spec.Local.Path == p.shelf.Path(v.Name)
}

// enter keeps a place as it is until release. The error is why nothing can be done there.
func (p place) enter() (release func(), err error) {
	if p.on == nil {
		return func() {}, nil
	}
	return p.on.enter()
}

// places are the card first, then the disks.
func (l *Loop) places() []place {
	out := []place{{shelf: l.cfg.Shelf}}
	if l.cfg.Disks != nil {
		for _, o := range l.cfg.Disks.list {
			out = append(out, place{disk: o.Name, on: o, shelf: o.shelf})
		}
	}
	return out
}

// unknown are the disks that classes name, and the configuration does not.
func unknown(classes map[string]*storagev1.StorageClass, places []place) (out []place) {
	known := map[string]bool{}
	for _, p := range places {
		known[p.disk] = true
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		class := classes[name]
		if disk := storage.DiskOf(class); class.Provisioner == api.CardProvisioner && !known[disk] {
			known[disk] = true
			out = append(out, place{disk: disk, absent: fmt.Sprintf("this board's configuration has no disk %q (key disks)", disk)})
		}
	}
	return out
}

// Disks are how the disks of the configuration are. One that does not answer is not waited for.
func (l *Loop) Disks() []DiskState {
	out := l.cfg.Disks.States()
	for i, s := range out {
		if s.Err != nil {
			continue
		}
		why, ok := within(l.cfg.Disks.list[i].asks, askIn, func() error { return s.Shelf.CanSize() })
		if out[i].Unsized = why; !ok {
			out[i].Err = errMute
		}
	}
	return out
}

// DeviceOf is the disk that a volume lies on; empty: the card. false: it is not there, or is none of this board's.
func (l *Loop) DeviceOf(v *corev1.PersistentVolume) (device string, here bool) {
	for i, p := range l.places() {
		switch {
		case !p.has(v):
		case p.on == nil:
			return "", true
		default:
			s := l.cfg.Disks.States()[i-1] // the card is the first of the places
			return s.Device, s.Err == nil && s.Device != ""
		}
	}
	return "", false
}

// Use is what is in a volume, and what may be. false: its disk is not there, does not answer, or does not count it.
func (l *Loop) Use(v *corev1.PersistentVolume) (quota.Use, bool) {
	for _, p := range l.places() {
		if !p.has(v) {
			continue
		}
		if p.on == nil {
			return p.shelf.Use(v.Name)
		}
		u, ok := within(p.on.asks, askIn, func() *quota.Use {
			release, err := p.enter()
			if err != nil {
				return nil
			}
			defer release()
			if u, ok := p.shelf.Use(v.Name); ok {
				return &u
			}
			return nil
		})
		if !ok || u == nil {
			return quota.Use{}, false
		}
		return *u, true
	}
	return quota.Use{}, false
}

// sweep deletes what was removed at a place. Where its disk is not there now, that is done when it comes.
func (p place) sweep() error {
	release, err := p.enter()
	if err != nil {
		return nil //nolint:nilerr // it is told of elsewhere
	}
	defer release()
	return p.shelf.Sweep(gonePrefix)
}

// await tells a volume, and the claim that has it, that its disk is not there.
func (l *Loop) await(s Step) {
	if !l.say(s.Name, s.Volume, "DiskAbsent", s.Why) {
		return
	}
	if r := s.Volume.Spec.ClaimRef; r != nil {
		l.cfg.Events.EventOn(*r, corev1.EventTypeWarning, "DiskAbsent", s.Why)
	}
}
