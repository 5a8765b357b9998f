package claims

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/storage"
	"ledge/host/quota"
)

// place is where directories of volumes are made: the card, or a disk of the configuration.
type place struct {
	disk   string // its name; empty: the card
	shelf  *Shelf // nil: the configuration does not know the disk
	absent string // why nothing can be done there
}

func (p place) has(v *corev1.PersistentVolume) bool {
	return p.shelf != nil && v.Spec.Local != nil && v.Spec.Local.Path == p.shelf.Path(v.Name)
}

// places are the card, the disks, and what the classes of this pass name beside these. The disks are held.
func (l *Loop) places() []place {
	out := []place{{shelf: l.cfg.Shelf}}
	known := map[string]bool{"": true}
	if l.cfg.Disks != nil {
		for _, o := range l.cfg.Disks.States() {
			p := place{disk: o.Name, shelf: o.Shelf}
			if o.Err != nil {
				p.absent = absent(o.Disk, o.Err).Error()
			}
			out = append(out, p)
			known[o.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.classes)) {
		class := l.classes[name]
		if disk := storage.DiskOf(class); class.Provisioner == api.CardProvisioner && !known[disk] {
			known[disk] = true
			out = append(out, place{disk: disk, absent: fmt.Sprintf("this board's configuration has no disk %q (key disks)", disk)})
		}
	}
	return out
}

// Disks are how the disks of the configuration are.
func (l *Loop) Disks() []DiskState { return l.cfg.Disks.States() }

// shelfOf is where a volume lies; nil: on no disk that is there.
func (l *Loop) shelfOf(v *corev1.PersistentVolume) *Shelf {
	for _, p := range l.places() {
		if p.has(v) && p.absent == "" {
			return p.shelf
		}
	}
	return nil
}

// Use is what is in a volume, and what may be. false: its disk is not there, or does not count it.
func (l *Loop) Use(v *corev1.PersistentVolume) (quota.Use, bool) {
	defer l.cfg.Disks.hold()()
	if s := l.shelfOf(v); s != nil {
		return s.Use(v.Name)
	}
	return quota.Use{}, false
}

func (l *Loop) sweepAll() error {
	defer l.cfg.Disks.hold()()
	errs := []error{l.cfg.Shelf.Sweep(gonePrefix)}
	for _, o := range l.cfg.Disks.States() {
		if o.Err == nil {
			errs = append(errs, o.Shelf.Sweep(gonePrefix))
		}
	}
	return errors.Join(errs...)
}

// await tells a volume, and the claim that has it, that its disk is not there.
func (l *Loop) await(s Step) {
	if l.said[s.Name] == s.Why {
		return
	}
	l.say(s.Name, s.Volume, "DiskAbsent", s.Why)
	if r := s.Volume.Spec.ClaimRef; r != nil {
		l.cfg.Events.EventOn(*r, corev1.EventTypeWarning, "DiskAbsent", s.Why)
	}
}
