package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/storage"
	"ledge/brain/played"
)

// The pods of the fleet's StatefulSet have claims, two each: of one the volume goes with it, of the other it stays. The user makes them
// larger, deletes them, and deletes volumes that were left, whatever happens meanwhile. In each directory lies a note of whose it is.

const (
	mib        = 1 << 20
	claimSize  = 64 * mib
	mostClaim  = 96 * mib
	keptClass  = "kept"
	dataClaim  = "data"
	keptClaim  = "kept"
	note       = "whose"
	keptMarker = ".kept-"
)

// holdings are what the user knows of claims and their volumes.
type holdings struct {
	off    bool // nothing can be mounted here: no claims
	turn   int
	had    map[string]types.UID            // claims, by name, that nobody has deleted
	bound  map[types.UID]string            // claims: the volume that each has, for ever
	noted  map[types.UID]bool              // claims in whose directory a note lies
	left   map[string]types.UID            // volumes of the class kept, by name, whose claim was deleted
	orphan map[string]map[string]types.UID // by board: directories that stay without a volume
	ends   map[types.UID]bool              // pods that the user has deleted with their claims
	lost   map[types.UID]bool              // claims whose board was replaced: there is nothing of them

	grown, deleted, released, removed int
}

func newHoldings() holdings {
	return holdings{off: os.Getuid() != 0, had: map[string]types.UID{}, bound: map[types.UID]string{}, noted: map[types.UID]bool{},
		left: map[string]types.UID{}, orphan: map[string]map[string]types.UID{}, lost: map[types.UID]bool{}, ends: map[types.UID]bool{}}
}

// claim gives a StatefulSet its claims.
func (f *fleet) claim(set *appsv1.StatefulSet) {
	f.Helper()
	if f.held.off {
		return
	}
	retain, wait, grows := corev1.PersistentVolumeReclaimRetain, storagev1.VolumeBindingWaitForFirstConsumer, true
	_, err := api.Create(f.user(), f.local, storage.StorageClasses, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: keptClass},
		Provisioner: api.CardProvisioner, ReclaimPolicy: &retain, VolumeBindingMode: &wait, AllowVolumeExpansion: &grows})
	f.must(err)
	kept := keptClass
	for name, class := range map[string]*string{dataClaim: nil, keptClaim: &kept} {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class,
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: sizeOf(claimSize)}}})
		c := &set.Spec.Template.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
}

func sizeOf(bytes int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)}
}

func (f *fleet) allClaims() map[string]*corev1.PersistentVolumeClaim {
	f.Helper()
	list, err := f.local.List(f.ctx, api.PersistentVolumeClaims, api.ListOptions{})
	f.must(err)
	out := map[string]*corev1.PersistentVolumeClaim{}
	for _, o := range list.Items {
		out[o.GetName()] = o.(*corev1.PersistentVolumeClaim)
	}
	return out
}

func (f *fleet) allVolumes() map[string]*corev1.PersistentVolume {
	f.Helper()
	list, err := f.local.List(f.ctx, api.PersistentVolumes, api.ListOptions{})
	f.must(err)
	out := map[string]*corev1.PersistentVolume{}
	for _, o := range list.Items {
		out[o.GetName()] = o.(*corev1.PersistentVolume)
	}
	return out
}

// boardOf is the board that a volume lies on.
func (f *fleet) boardOf(v *corev1.PersistentVolume) *member {
	f.Helper()
	i := slices.IndexFunc(f.boards, func(m *member) bool { return m.name == api.NodeOfVolume(v) })
	if i < 0 {
		f.Fatalf("volume %s lies on %q, which is no board", v.Name, api.NodeOfVolume(v))
	}
	return f.boards[i]
}

func (m *member) shelf() string { return filepath.Join(m.machine.disk, "claims") }

// handle has the user do the next thing to a claim or a volume.
func (f *fleet) handle() {
	f.Helper()
	if f.held.off || f.plane.life == nil || time.Now().UnixNano() < f.plane.stall.Load() {
		return
	}
	f.held.turn++
	name := fmt.Sprintf("%s-ordered-%d", []string{dataClaim, keptClaim}[f.held.turn%2], f.held.turn/2%len(f.boards))
	c := f.allClaims()[name]
	if c == nil || c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimBound {
		return
	}
	if size := c.Spec.Resources.Requests.Storage().Value(); f.held.turn%5 != 0 && size < mostClaim {
		c.Spec.Resources.Requests = sizeOf(size + 8*mib)
		if _, err := api.Update(f.user(), f.local, api.PersistentVolumeClaims, c); err == nil {
			f.held.grown++
		} else if !apierrors.IsConflict(err) {
			f.must(err)
		}
		return
	}
	f.letGo(c)
	f.removeLeft()
}

// letGo has the user delete a claim, and its pod, without which it stays.
func (f *fleet) letGo(c *corev1.PersistentVolumeClaim) {
	f.Helper()
	f.held.deleted++
	delete(f.held.had, c.Name)
	if strings.HasPrefix(c.Name, keptClaim) && c.Spec.VolumeName != "" && !f.held.lost[c.UID] {
		f.held.left[c.Spec.VolumeName] = c.UID
		f.held.released++
	}
	_, err := f.local.Delete(f.user(), api.PersistentVolumeClaims, c.Namespace, c.Name, api.DeleteOptions{})
	f.must(err)
	_, pod, _ := strings.Cut(c.Name, "-")
	o, err := f.local.Delete(f.user(), api.Pods, c.Namespace, pod, api.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	f.must(err)
	f.held.ends[o.GetUID()] = true
}

// removeLeft has the user delete the first volume that was left, and, by hand, the directories of those before.
func (f *fleet) removeLeft() {
	f.Helper()
	for board, dirs := range f.held.orphan {
		i := slices.IndexFunc(f.boards, func(m *member) bool { return m.name == board })
		for name := range dirs {
			at := f.boards[i].shelf()
			if _, err := os.Stat(filepath.Join(at, keptMarker+name)); err != nil {
				continue // the board has not come to it yet
			}
			if _, err := f.local.Get(f.ctx, api.PersistentVolumes, "", name); !apierrors.IsNotFound(err) {
				continue
			}
			f.must(f.boards[i].unbind(name)) // setquota -P
			f.must(errors.Join(os.RemoveAll(filepath.Join(at, name)), os.Remove(filepath.Join(at, keptMarker+name))))
			delete(dirs, name)
			f.held.removed++
		}
	}
	volumes := f.allVolumes()
	for _, name := range slices.Sorted(maps.Keys(f.held.left)) {
		v := volumes[name]
		if v == nil || v.Status.Phase != corev1.VolumeReleased {
			continue
		}
		_, err := f.local.Delete(f.user(), api.PersistentVolumes, "", name, api.DeleteOptions{})
		f.must(err)
		on := f.boardOf(v).name
		if f.held.orphan[on] == nil {
			f.held.orphan[on] = map[string]types.UID{}
		}
		f.held.orphan[on][name] = f.held.left[name]
		delete(f.held.left, name)
		return
	}
}

func (m *member) unbind(name string) error {
	dir, err := os.Open(filepath.Join(m.shelf(), name))
	if err != nil {
		return err
	}
	sizes := m.sizes.Load()
	return errors.Join(sizes.Bound(dir, sizes.Number(dir), 0, 0), dir.Close())
}

// loseCard: the card of a board is gone, and the user lets go of what was on it, as somebody has to.
func (f *fleet) loseCard(m *member) {
	f.Helper()
	if f.held.off {
		return
	}
	m.sizes.Store(played.NewSizes())
	delete(f.held.orphan, m.name)
	claims := f.allClaims()
	for name, v := range f.allVolumes() {
		if api.NodeOfVolume(v) != m.name {
			continue
		}
		delete(f.held.left, name)
		f.held.lost[v.Spec.ClaimRef.UID] = true
		if c := claims[v.Spec.ClaimRef.Name]; c != nil && c.UID == v.Spec.ClaimRef.UID && c.DeletionTimestamp == nil {
			f.letGo(c)
		}
		if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			_, err := f.local.Delete(f.user(), api.PersistentVolumes, "", name, api.DeleteOptions{})
			f.must(err)
		}
	}
}

// noteOf is whose a directory is; empty: nobody has said.
func (f *fleet) noteOf(m *member, volume string) types.UID {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(m.shelf(), volume, note))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.must(err)
	}
	return types.UID(text)
}

// judgeClaims checks what is true at any moment: no claim is lost, none has another volume than before, no volume has two claims, and
// what was written to one is there.
func (f *fleet) judgeClaims() {
	f.Helper()
	if f.held.off || f.plane.life == nil {
		return
	}
	claims, volumes, of := f.allClaims(), f.allVolumes(), map[string]string{}
	for name, uid := range f.held.had {
		if c := claims[name]; c == nil || c.UID != uid || c.DeletionTimestamp != nil {
			f.Errorf("claim %s (%s) is lost: %+v", name, uid, c)
		}
	}
	for name, c := range claims {
		volume := c.Spec.VolumeName
		if c.DeletionTimestamp == nil {
			f.held.had[name] = c.UID
		}
		if volume == "" {
			continue
		}
		if of[volume] != "" {
			f.Errorf("volume %s has the claims %s and %s", volume, of[volume], name)
		}
		of[volume] = name
		if was := f.held.bound[c.UID]; was != "" && was != volume {
			f.Errorf("claim %s has volume %s, and had %s", name, volume, was)
		}
		f.held.bound[c.UID] = volume
		if c.Status.Phase == corev1.ClaimLost && !f.held.lost[c.UID] {
			f.Errorf("claim %s is Lost", name)
		}
		if v := volumes[volume]; c.Status.Phase == corev1.ClaimBound && v != nil && !f.held.lost[c.UID] {
			f.judgeNote(f.boardOf(v), v, c.UID)
		}
	}
	for name, uid := range f.held.left {
		if v := volumes[name]; v == nil || v.Spec.ClaimRef.UID != uid || v.DeletionTimestamp != nil {
			f.Errorf("volume %s was to stay: %+v", name, v)
		} else if f.held.noted[uid] {
			f.judgeNote(f.boardOf(v), v, uid)
		}
	}
}

// judgeNote looks at what a claim's owner wrote, and has it written where there is nothing yet.
func (f *fleet) judgeNote(m *member, v *corev1.PersistentVolume, uid types.UID) {
	f.Helper()
	is := f.noteOf(m, v.Name)
	switch {
	case is == "" && !f.held.noted[uid]:
		f.must(os.WriteFile(filepath.Join(m.shelf(), v.Name, note), []byte(uid), 0o600))
		f.held.noted[uid] = true
	case is != uid:
		f.Errorf("in the directory of %s on %s lies %q, and %q was written", v.Name, m.name, is, uid)
	}
}

// wrongClaims says what of claims is not settled: each has its volume, of the size that it asked for, in a directory that is held to it
// and lies in its pod; and there is no directory, no number and no volume beside those and what was to stay.
func (f *fleet) wrongClaims() error {
	f.Helper()
	if f.held.off {
		return nil
	}
	claims, volumes := f.allClaims(), f.allVolumes()
	want := map[string]map[string]int64{} // by board: directories and their sizes
	for _, m := range f.boards {
		want[m.name] = map[string]int64{}
		for name := range f.held.orphan[m.name] {
			want[m.name][name] = 0 // whatever it is
			want[m.name][keptMarker+name] = 0
		}
	}
	if len(claims) != 2*len(f.boards) {
		return fmt.Errorf("%d claims, %d are wanted", len(claims), 2*len(f.boards))
	}
	if len(volumes) != len(claims)+len(f.held.left) {
		return fmt.Errorf("%d volumes, %d are wanted: %v", len(volumes), len(claims)+len(f.held.left), slices.Sorted(maps.Keys(volumes)))
	}
	for name, c := range claims {
		asked, v := c.Spec.Resources.Requests.Storage().Value(), volumes[c.Spec.VolumeName]
		switch {
		case c.Status.Phase != corev1.ClaimBound || c.DeletionTimestamp != nil || v == nil || v.Status.Phase != corev1.VolumeBound ||
			v.Spec.ClaimRef.UID != c.UID:
			return fmt.Errorf("claim %s: %+v, volume %+v", name, c, v)
		case c.Status.Capacity.Storage().Value() != asked || v.Spec.Capacity.Storage().Value() != asked || len(c.Status.Conditions) > 0:
			return fmt.Errorf("claim %s asks for %d: %+v, volume %+v", name, asked, c.Status, v.Spec)
		}
		want[api.NodeOfVolume(v)][v.Name] = asked
		if err := f.inPod(c, v); err != nil {
			return err
		}
	}
	for name := range f.held.left {
		v := volumes[name]
		if v == nil || v.Status.Phase != corev1.VolumeReleased {
			return fmt.Errorf("volume %s was left: %+v", name, v)
		}
		want[api.NodeOfVolume(v)][name] = v.Spec.Capacity.Storage().Value()
	}
	for _, m := range f.boards {
		if err := m.wrongShelf(want[m.name]); err != nil {
			return err
		}
	}
	return nil
}

// inPod says whether a claim's pod has it.
func (f *fleet) inPod(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	m := f.boardOf(v)
	volume, pod, _ := strings.Cut(c.Name, "-")
	p, ok := f.all.Get(c.Namespace, pod)
	if !ok || p.Spec.NodeName != m.name {
		return fmt.Errorf("%s lies on %s, and its pod on: %+v", c.Name, m.name, p)
	}
	text, err := os.ReadFile(filepath.Join(m.dir, "run", "lasting", string(p.UID), volume, note))
	if f.held.noted[c.UID] && (err != nil || types.UID(text) != c.UID) {
		return fmt.Errorf("in the volume %s of pod %s there is %q, %w", volume, pod, text, err)
	}
	return nil
}

// wrongShelf says what of a board's directories is not as wanted. A size of 0 is any.
func (m *member) wrongShelf(want map[string]int64) error {
	entries, err := os.ReadDir(m.shelf())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	have, bears, sizes := map[string]bool{}, map[uint32]string{}, m.sizes.Load()
	bounds := sizes.Bounds()
	for _, e := range entries {
		name := e.Name()
		have[name] = true
		size, ok := want[name]
		if !ok {
			return fmt.Errorf("%s on %s is nobody's", name, m.name)
		}
		if !e.IsDir() {
			continue
		}
		dir, err := os.Open(filepath.Join(m.shelf(), name))
		if err != nil {
			return err
		}
		number := sizes.Number(dir)
		if err := dir.Close(); err != nil {
			return err
		}
		if bears[number] != "" || number == 0 || size > 0 && bounds[number] != size {
			return fmt.Errorf("%s on %s is held to %d by the number %d, %d is wanted; also of this number: %q", name, m.name, bounds[number],
				number, size, bears[number])
		}
		bears[number] = name
	}
	for name := range want {
		if !have[name] {
			return fmt.Errorf("%s on %s is not there", name, m.name)
		}
	}
	for number := range bounds {
		if bears[number] == "" {
			return fmt.Errorf("the number %d on %s is bound, and nothing bears it", number, m.name)
		}
	}
	return nil
}

// judgeHoldings: what may happen to claims has.
func (f *fleet) judgeHoldings(long time.Duration) {
	f.Helper()
	h := &f.held
	f.Logf("claims were made larger %d times and deleted %d times; %d volumes were left, %d directories of such removed by hand", h.grown,
		h.deleted, h.released, h.removed)
	if !h.off && long >= 12*time.Hour && (h.grown == 0 || h.deleted == 0 || h.released == 0 || h.removed == 0) {
		f.Errorf("not all has happened to claims that may")
	}
}
