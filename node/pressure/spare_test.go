package pressure

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestSpare: pages of programs that run count as used, as many as the threshold says.
func TestSpare(t *testing.T) { // beyond N-6.1
	small, p := int64(223)<<20, Default()
	line := p.Hard(MemoryAvailable).Of(small)
	for name, c := range map[string]struct {
		policy                 Policy
		available, mapped, ram int64
		want                   int64
	}{
		"nothing mapped":      {p, 50 << 20, 0, small, 50 << 20},
		"some mapped":         {p, 50 << 20, 10 << 20, small, 40 << 20},
		"as much as the line": {p, 50 << 20, line, small, 50<<20 - line},
		"a database":          {p, 150 << 20, 140 << 20, small, 150<<20 - 2*line},
		"on twice the memory": {p, 250 << 20, 140 << 20, 480 << 20, 202 << 20},
		"and more":            {p, 250 << 20, 140 << 20, 600 << 20, 190 << 20},
		"a larger board":      {p, 3 << 30, 2 << 30, 4 << 30, 3<<30 - 100<<20},
		"more than there is":  {p, 5 << 20, 10 << 20, small, -5 << 20},
		"a line of one's own": {Policy{Thresholds: []Threshold{{Signal: MemoryAvailable, Below: Limit{Amount: 2 << 20}}}}, 50 << 20, 10 << 20,
			small, 46 << 20},
		"soft ones do not help": {Policy{Thresholds: []Threshold{{Signal: MemoryAvailable, Below: Limit{Amount: 1 << 30}, Soft: true}}}, 50 << 20,
			10 << 20, small, 50 << 20},
		"no line": {Policy{Thresholds: []Threshold{}}, 50 << 20, 10 << 20, small, 50 << 20},
	} {
		if got := c.policy.Spare(c.available, c.mapped, c.ram); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	// What was measured on a board of 256 MB when the kernel killed, and when it began to stand still (docs/decisions/0066).
	for _, m := range [][2]int64{{35, 26}, {55, 33}} {
		stalled := Reading{Available: p.Spare(m[0]<<20, m[1]<<20, small), Capacity: small}
		if !Short(p.All(OneDisk, false), Readings{MemoryAvailable: stalled}) {
			t.Errorf("a board that stood still was not short: %+v", stalled)
		}
	}
}

// TestSpareProperties: less available or more mapped is never more to spare; page cache, mapped or not, makes nobody short who
// has three times the line; who has less than the line is short whatever is mapped; and programs that come and go while what is
// available stays do not have the condition come and go.
func TestSpareProperties(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 66))
		ram := int64(1) << (27 + rnd.IntN(9))
		l := newLooks(Policy{})
		line := l.Hard(MemoryAvailable).Of(ram)
		at := func(available, mapped int64) Readings {
			return Readings{MemoryAvailable: {Available: l.Spare(available, mapped, ram), Capacity: ram}}
		}
		for range 20 {
			available := rnd.Int64N(ram)
			mapped := rnd.Int64N(available + 1)
			spare := l.Spare(available, mapped, ram)
			if l.Spare(available-rnd.Int64N(available+1), mapped+rnd.Int64N(ram), ram) > spare {
				t.Fatalf("seed %d: less of %d, %d mapped, is more", seed, available, mapped)
			}
			if short := Short(l.all, at(available, mapped)); short && available >= 3*line || !short && available < line {
				t.Fatalf("seed %d: %d available, %d mapped, the line %d: %v", seed, available, mapped, line, short)
			}
		}
		available, turns, was := line+rnd.Int64N(2*line), 0, false
		for range 60 {
			v := l.look(10*time.Second, at(available, rnd.Int64N(3*line)))
			if now := v.Conditions[corev1.NodeMemoryPressure]; now != was {
				was = now
				turns++
			}
		}
		if most := 2 * int(10*time.Minute/Transition); turns > most {
			t.Fatalf("seed %d: with %d available of a line of %d the condition turned %d times in ten minutes", seed, available, line, turns)
		}
	}
}
