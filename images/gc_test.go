package images_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ledge/images"
)

func ids(plan []images.GCRemoval) string {
	var out []string
	for _, r := range plan {
		out = append(out, fmt.Sprintf("%s:%d", r.ID, r.Bytes))
	}
	return strings.Join(out, " ")
}

// TestPlanGC of N-6.24 and pains 11 and 12.
func TestPlanGC(t *testing.T) {
	layers := map[string]int64{"base": 100, "a": 10, "b": 20, "c": 30}
	img := func(id string, used uint64, edit ...func(*images.GCImage)) images.GCImage {
		g := images.GCImage{ID: id, Layers: []string{"base", id}, Age: time.Hour, LastUsed: used}
		for _, f := range edit {
			f(&g)
		}
		return g
	}
	needed := func(g *images.GCImage) { g.Needed = true }
	idle := func(g *images.GCImage) { g.Idle = 48 * time.Hour }
	young := func(g *images.GCImage) { g.Age = time.Minute }
	for name, c := range map[string]struct {
		in    images.GCInput
		p     images.GCPolicy
		want  string
		short int64
	}{
		"room enough":      {in: images.GCInput{Images: []images.GCImage{img("a", 1)}, Capacity: 1000, Available: 151}},
		"at the threshold": {in: images.GCInput{Images: []images.GCImage{img("a", 1)}, Capacity: 1000, Available: 150}, want: "a:110"},
		"least used first": {in: images.GCInput{Images: []images.GCImage{img("a", 9), img("b", 1), img("c", 5)}, Capacity: 1000,
			Available: 150}, want: "b:20 c:30"},
		"never used first": {in: images.GCInput{Images: []images.GCImage{img("a", 1), img("b", 0)}, Capacity: 10000, Available: 1500},
			want: "b:20 a:110", short: 370},
		"needed": {in: images.GCInput{Images: []images.GCImage{img("a", 1, needed), img("b", 2)}, Capacity: 1000, Available: 100},
			want: "b:20", short: 80},
		"young": {in: images.GCInput{Images: []images.GCImage{img("a", 1, young)}, Capacity: 1000, Available: 100}, short: 100},
		"young by policy": {in: images.GCInput{Images: []images.GCImage{img("a", 1, young)}, Capacity: 1000, Available: 100},
			p: images.GCPolicy{MinAge: time.Second}, want: "a:110"},
		"other thresholds": {in: images.GCInput{Images: []images.GCImage{img("a", 1)}, Capacity: 1000, Available: 400},
			p: images.GCPolicy{High: 60, Low: 50}, want: "a:110"},
		"all": {in: images.GCInput{Images: []images.GCImage{img("a", 1), img("b", 2, needed), img("c", 3)}, Capacity: 1000,
			Available: 900, All: true}, want: "a:10 c:30"},
		"idle": {in: images.GCInput{Images: []images.GCImage{img("a", 5, idle), img("b", 1)}, Capacity: 1000, Available: 900},
			p: images.GCPolicy{MaxIdle: 24 * time.Hour}, want: "a:10"},
		"idle without limit": {in: images.GCInput{Images: []images.GCImage{img("a", 5, idle)}, Capacity: 1000, Available: 900}},
		"blobs count": {in: images.GCInput{Images: []images.GCImage{img("a", 1, func(g *images.GCImage) { g.Blobs = 7 })}, Capacity: 1000,
			Available: 150}, want: "a:117"},
		"a layer twice": {in: images.GCInput{Images: []images.GCImage{{ID: "a", Layers: []string{"a", "a"}, Age: time.Hour}}, Capacity: 1000,
			Available: 150},
			want: "a:10", short: 40},
		"no disk": {in: images.GCInput{Images: []images.GCImage{img("a", 1)}}},
	} {
		c.in.Layers = layers
		plan, short := images.PlanGC(c.in, c.p)
		if got := ids(plan); got != c.want || short != c.short {
			t.Errorf("%s: %q short %d, want %q short %d", name, got, short, c.want, c.short)
		}
	}
}

// Whatever there is: nothing that is needed or young goes, what is said to be freed is what is freed, and no more goes
// than has to.
func TestPlanGCProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		in := images.GCInput{Layers: map[string]int64{}, Capacity: 100 * int64(1+rnd.IntN(200)), All: rnd.IntN(8) == 0}
		in.Available = rnd.Int64N(in.Capacity)
		for i := range 12 {
			in.Layers[fmt.Sprint(i)] = int64(rnd.IntN(500))
		}
		for i := range rnd.IntN(10) {
			g := images.GCImage{ID: fmt.Sprint("i", i), Needed: rnd.IntN(3) == 0, Age: time.Duration(rnd.IntN(300)) * time.Second,
				Idle: time.Duration(rnd.IntN(100)) * time.Hour, LastUsed: uint64(rnd.IntN(5))}
			for range rnd.IntN(5) {
				g.Layers = append(g.Layers, fmt.Sprint(rnd.IntN(12)))
			}
			in.Images = append(in.Images, g)
		}
		p := images.GCPolicy{High: 50 + rnd.IntN(50), Low: 1 + rnd.IntN(50)}
		plan, short := images.PlanGC(in, p)
		need := int64(0)
		if in.Capacity-in.Available >= in.Capacity/100*int64(p.High) {
			need = max(in.Capacity/100*int64(100-p.Low)-in.Available, 0)
		}
		var freed int64
		gone := map[string]bool{}
		for _, r := range plan {
			i := slices.IndexFunc(in.Images, func(g images.GCImage) bool { return g.ID == r.ID })
			if in.Images[i].Needed || in.Images[i].Age < 2*time.Minute || gone[r.ID] {
				t.Fatalf("seed %d: %+v goes", seed, in.Images[i])
			}
			gone[r.ID] = true
			freed += r.Bytes
		}
		if got := before(in, nil) - before(in, gone); got != freed {
			t.Fatalf("seed %d: %d freed, %d said", seed, got, freed)
		}
		if short != max(need-freed, 0) {
			t.Fatalf("seed %d: short %d of %d, freed %d", seed, short, need, freed)
		}
		if n := len(plan); !in.All && n > 0 && freed-plan[n-1].Bytes >= need {
			t.Fatalf("seed %d: %q frees %d where %d would do", seed, ids(plan), freed, need)
		}
		// The same question has the same answer, and nothing that was asked is changed.
		if again, _ := images.PlanGC(in, p); !slices.Equal(again, plan) {
			t.Fatalf("seed %d: %v, then %v", seed, plan, again)
		}
	}
}

// before is what the layers of all images but those gone take.
func before(in images.GCInput, gone map[string]bool) (sum int64) {
	kept := map[string]bool{}
	for _, g := range in.Images {
		for _, l := range g.Layers {
			if !gone[g.ID] {
				kept[l] = true
			}
		}
	}
	for l := range kept {
		sum += in.Layers[l]
	}
	return sum
}
