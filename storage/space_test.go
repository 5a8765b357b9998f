package storage

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// TestHeld: whatever is written, held back, deleted, taken back, and in whatever company, what namespaces hold is what a count of the file
// says.
func TestHeld(t *testing.T) {
	for seed := range uint64(4) {
		s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true, Rehearse: seed%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		var writers sync.WaitGroup
		for w := range uint64(3) {
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(seed, w))
				for range 100 {
					kind, lazy, back := api.ConfigMaps, rng.IntN(3) == 0, rng.IntN(5) == 0
					obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", rng.IntN(3)), Name: fmt.Sprint("n", rng.IntN(5))},
						Data: map[string]string{"a": strings.Repeat("x", rng.IntN(3000))}}
					remove := rng.IntN(3) == 0
					_ = s.Update(func(tx *Tx) (err error) {
						switch {
						case remove:
							_, err = tx.Delete(kind, obj.Namespace, obj.Name)
						case lazy:
							err = tx.PutLazy(kind, obj.DeepCopy())
						default:
							err = errors.Join(tx.Put(kind, obj.DeepCopy()), tx.Put(kind, obj.DeepCopy()))
						}
						if back {
							return errors.New("taken back")
						}
						return err
					})
				}
			})
		}
		writers.Wait()
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		have := maps.Clone(s.held.by)
		o := &opener{Store: s}
		if err := o.weigh(); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(have, s.held.by) {
			t.Errorf("seed %d: counted %v, there is %v", seed, have, s.held.by)
		}
		space := Space{}
		if err := s.View(func(tx *Tx) error { space = tx.Space(); return nil }); err != nil || space.Free <= 0 || space.Free >= space.All {
			t.Errorf("space %+v, %v", space, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
