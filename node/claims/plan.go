package claims

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"ledge/api"
	"ledge/api/storage"
)

// World is what a board knows of its claims: what lies on its card, and what its control plane has, all of it.
type World struct {
	Dirs    []Dir
	Volumes []*corev1.PersistentVolume      // of this board
	Claims  []*corev1.PersistentVolumeClaim // for which it was selected
	Classes map[string]*storagev1.StorageClass
	Room    int64               // bytes of the whole disk
	Path    func(string) string // of a directory by its name
	Unsized string              // why the file system holds no directory to a size; empty: it does
	Disk    string              // whose directories these are, by the name in the configuration; empty: the card's
	Absent  string              // why nothing can be done there now; empty: it can
}

// Verb is what to do about one claim.
type Verb string

// The verbs. Each is safe to do again, and after each may come a power cut.
const (
	Make   Verb = "make"   // a directory, with its size
	Offer  Verb = "offer"  // the PersistentVolume of a directory
	Resize Verb = "resize" // a directory
	Grow   Verb = "grow"   // say it of the volume
	Tell   Verb = "tell"   // say it of the claim
	Mark   Verb = "mark"   // say in the claim's conditions whether anything holds it to its size
	Remove Verb = "remove" // a directory, with all that is in it
	Keep   Verb = "keep"   // a directory whose volume is let go although its data is to stay
	Free   Verb = "free"   // let the volume go
	Refuse Verb = "refuse" // say why there is none
	Lost   Verb = "lost"   // say that a volume's directory is not there
	Stray  Verb = "stray"  // say that a directory has no volume
	Await  Verb = "await"  // say that a volume's disk is not there
)

// Step is one thing to do.
type Step struct {
	Do     Verb
	Name   string // of directory and volume
	Bytes  int64
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
	Why    string
}

// most is how many volumes a board keeps: each costs a number of the file system's, a directory and a row of each look.
const most = 1000

// Plan is what there is to do now. Data goes when its volume says so (N-13.10): a directory without one, which a control plane has
// forgotten that was restored from a backup, stays, and only an empty one is a leftover of a power cut.
func Plan(w World) []Step {
	p := planner{World: w, dirs: map[string]Dir{}, volumes: map[string]*corev1.PersistentVolume{}, wanted: map[string]bool{}}
	for _, d := range w.Dirs {
		p.dirs[d.Name] = d
	}
	for _, v := range w.Volumes {
		p.volumes[v.Name] = v
	}
	for _, c := range w.Claims {
		p.claim(c)
	}
	for _, v := range w.Volumes {
		p.volume(v)
	}
	for _, d := range w.Dirs {
		switch {
		case d.Gone || d.Kept || p.volumes[d.Name] != nil || p.wanted[d.Name]:
		case d.Empty:
			if _, here := p.wanted[d.Name]; !here {
				p.add(Step{Do: Remove, Name: d.Name})
			}
		default:
			p.add(Step{Do: Stray, Name: d.Name})
		}
	}
	sort.SliceStable(p.steps, func(i, j int) bool { return p.steps[i].Name < p.steps[j].Name })
	return p.steps
}

type planner struct {
	World
	dirs    map[string]Dir
	volumes map[string]*corev1.PersistentVolume
	wanted  map[string]bool // directories whose claim is here: nothing of them goes; true: it waits for its volume
	made    int
	steps   []Step
}

func (p *planner) add(s Step) { p.steps = append(p.steps, s) }

// ready says whether a directory is there and meant to stay.
func (p *planner) ready(name string) bool {
	d, ok := p.dirs[name]
	return ok && !d.Gone
}

// claim looks at one that waits for its volume.
func (p *planner) claim(c *corev1.PersistentVolumeClaim) {
	name, class := api.VolumeFor(c), p.Classes[api.ClassOfClaim(c)]
	p.wanted[name] = c.Spec.VolumeName == "" // one that is bound: we may hear of that before we hear of the volume
	if c.DeletionTimestamp != nil || c.Spec.VolumeName != "" || class == nil || class.Provisioner != api.CardProvisioner ||
		storage.DiskOf(class) != p.Disk {
		return
	}
	if p.volumes[name] != nil {
		return // it is bound by the control plane
	}
	bytes := c.Spec.Resources.Requests.Storage().Value()
	d, there := p.dirs[name]
	refuse := func(format string, args ...any) {
		p.add(Step{Do: Refuse, Name: name, Claim: c, Why: fmt.Sprintf(format, args...)})
	}
	switch {
	case len(content.IsDNS1123Subdomain(name)) > 0:
		refuse("its uid %q makes no name for a directory", c.UID)
	case c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		refuse("volume mode Block is not what the card's own class has: it makes directories")
	case p.Absent != "":
		refuse("%s", p.Absent)
	case there && d.Gone:
		return // until that is away
	case !there && bytes > p.Room:
		refuse("it asks for %s, and the whole disk %s has %s", c.Spec.Resources.Requests.Storage(), p.whose(), amount(p.Room))
	case !there && len(p.dirs)+p.made >= most:
		refuse("this board has %d volumes, and keeps no more", most)
	default:
		if !there {
			p.made++
		}
		p.add(Step{Do: Make, Name: name, Bytes: bytes, Claim: c}) // again, where a cut left it without its size
		p.add(Step{Do: Offer, Name: name, Bytes: bytes, Claim: c, Why: p.Unsized})
	}
}

func (w World) whose() string { return cmp.Or(w.Disk, "of this board") }

func amount(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

// volume looks at one of this board's.
func (p *planner) volume(v *corev1.PersistentVolume) {
	if !p.ours(v) {
		return
	}
	if p.Absent != "" {
		p.add(Step{Do: Await, Name: v.Name, Volume: v, Why: p.Absent})
		return
	}
	capacity := v.Spec.Capacity.Storage().Value()
	if v.DeletionTimestamp != nil {
		p.ending(v)
		return
	}
	if !p.ready(v.Name) {
		p.add(Step{Do: Lost, Name: v.Name, Volume: v})
		return
	}
	c := p.claimOf(v)
	wants := capacity
	if c != nil && p.grows(v) {
		wants = max(capacity, c.Spec.Resources.Requests.Storage().Value())
	}
	switch {
	case wants > p.Room && wants > capacity:
		p.add(Step{Do: Refuse, Name: v.Name, Claim: c, Why: fmt.Sprintf("it asks for %s, and the whole disk %s has %s",
			c.Spec.Resources.Requests.Storage(), p.whose(), amount(p.Room))})
		wants = capacity
	case p.dirs[v.Name].Limit != wants && p.dirs[v.Name].Sized || wants > capacity:
		p.add(Step{Do: Resize, Name: v.Name, Bytes: wants, Volume: v})
	}
	if wants > capacity {
		p.add(Step{Do: Grow, Name: v.Name, Bytes: wants, Volume: v})
	}
	if c == nil || c.Status.Phase != corev1.ClaimBound {
		return
	}
	if c.Status.Capacity.Storage().Value() < wants {
		p.add(Step{Do: Tell, Name: v.Name, Bytes: wants, Volume: v, Claim: c})
	}
	why := ""
	if !p.dirs[v.Name].Sized {
		why = unsized(cmp.Or(p.Unsized, "its directory was made before its file system could"))
	}
	if conditionOf(c) != why {
		p.add(Step{Do: Mark, Name: v.Name, Claim: c, Volume: v, Why: why})
	}
}

// grows says whether the volumes of its class may.
func (p *planner) grows(v *corev1.PersistentVolume) bool {
	class := p.Classes[api.ClassOfVolume(v)]
	return class != nil && storage.Grows(class)
}

// ours: this board made it, and nobody has turned it into something else. What it says of a path is never followed.
func (p *planner) ours(v *corev1.PersistentVolume) bool {
	return v.Annotations[api.ProvisionedBy] == api.CardProvisioner && len(content.IsDNS1123Subdomain(v.Name)) == 0 &&
		v.Spec.Local != nil && v.Spec.Local.Path == p.Path(v.Name)
}

// claimOf is the claim that a volume is bound to.
func (p *planner) claimOf(v *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	i := slices.IndexFunc(p.Claims, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Spec.VolumeName == v.Name && v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == c.UID
	})
	if i < 0 {
		return nil
	}
	return p.Claims[i]
}

// ending is a volume that is being deleted. While something protects it, it is in use.
func (p *planner) ending(v *corev1.PersistentVolume) {
	d, there := p.dirs[v.Name]
	keep := v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete
	switch {
	case slices.Contains(v.Finalizers, api.VolumeProtection) || !slices.Contains(v.Finalizers, api.CardFinalizer):
	case there && d.Gone: // until that is away
	case there && !keep:
		p.add(Step{Do: Remove, Name: v.Name, Volume: v})
	default:
		if there && !d.Kept {
			p.add(Step{Do: Keep, Name: v.Name, Volume: v})
		}
		p.add(Step{Do: Free, Name: v.Name, Volume: v})
	}
}
