package pressure

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var epoch = time.Unix(1000, 0)

// looks takes one look after the other, as the agent does.
type looks struct {
	Policy
	all   []Threshold
	state State
	at    time.Time
}

func newLooks(p Policy) *looks {
	p = p.WithDefaults()
	return &looks{Policy: p, all: p.All(OneDisk, true), at: epoch}
}

// look is one pass, d after the one before.
func (l *looks) look(d time.Duration, seen Readings) Verdict {
	l.at = l.at.Add(d)
	fresh := Readings{}
	for s, r := range seen {
		if r.At.IsZero() {
			r.At = l.at
		}
		fresh[s] = r
	}
	var v Verdict
	l.state, v = l.Step(l.state, l.all, fresh, l.at)
	return v
}

func mem(available int64) Readings {
	return Readings{MemoryAvailable: {Available: available, Capacity: 1 << 30}}
}

func due(v Verdict) (out []Signal) {
	for _, t := range v.Due {
		out = append(out, t.Signal)
	}
	return out
}

func TestHard(t *testing.T) { // N-6.8, N-6.11, N-6.18, N-6.19
	l := newLooks(Policy{})
	if v := l.look(0, mem(100<<20)); v.Conditions[corev1.NodeMemoryPressure] || len(v.Due) > 0 {
		t.Fatalf("equal to the threshold is not less: %v", v)
	}
	v := l.look(time.Second, mem(100<<20-1))
	if !v.Conditions[corev1.NodeMemoryPressure] || v.Conditions[corev1.NodeDiskPressure] || v.Conditions[corev1.NodePIDPressure] {
		t.Fatalf("%v", v)
	}
	if got := due(v); !slices.Equal(got, []Signal{MemoryAvailable}) {
		t.Fatalf("a hard threshold is answered at once, got %v", got)
	}
	if v = l.look(Transition-time.Second, mem(1<<29)); !v.Conditions[corev1.NodeMemoryPressure] || len(v.Due) > 0 {
		t.Fatalf("before the transition period was over: %v", v)
	}
	if v = l.look(time.Second, mem(1<<29)); v.Conditions[corev1.NodeMemoryPressure] {
		t.Fatal("still raised")
	}
}

// TestAtOnce: a condition that does not outlast its cause holds while that is seen, minimum reclaim included, and no longer.
func TestAtOnce(t *testing.T) { // N-6.14, N-6.19
	p, _, err := Parse(Settings{AtOnce: true, Hard: values{"nodefs.available": "100"}, MinReclaim: values{"nodefs.available": "50"},
		Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	l := newLooks(p)
	for i, c := range []struct {
		available int64
		want      bool
	}{{100, false}, {99, true}, {99, true}, {149, true}, {150, false}, {99, true}} {
		v := l.look(time.Duration(i%2), Readings{NodeFSAvailable: {Available: c.available, Capacity: 1000}}) // two looks may fall together
		if v.Conditions[corev1.NodeDiskPressure] != c.want {
			t.Errorf("look %d, %d available: %v", i, c.available, v.Conditions)
		}
	}
}

func TestSoft(t *testing.T) { // N-6.12, N-6.18, N-6.19
	l := newLooks(Policy{Thresholds: []Threshold{{Signal: MemoryAvailable, Below: Limit{Amount: 1 << 28}, Soft: true, Grace: time.Minute}}})
	if v := l.look(0, mem(0)); !v.Conditions[corev1.NodeMemoryPressure] || len(v.Due) > 0 {
		t.Fatalf("the condition is raised at once, nobody goes yet: %v", v)
	}
	if v := l.look(time.Minute-1, mem(0)); len(v.Due) > 0 {
		t.Fatalf("before the end of the grace: %v", v)
	}
	l.look(time.Millisecond, mem(1<<29)) // it was over for a moment: the grace begins again
	l.look(time.Millisecond, mem(0))
	if v := l.look(time.Minute-1, mem(0)); len(v.Due) > 0 {
		t.Fatalf("the grace did not begin again: %v", v)
	}
	if v := l.look(1, mem(0)); len(v.Due) != 1 {
		t.Fatalf("after the grace: %v", v)
	}
}

func TestMinimumReclaim(t *testing.T) { // N-6.13, N-6.18
	l := newLooks(Policy{Thresholds: []Threshold{{Signal: NodeFSAvailable, Below: Limit{Amount: 100}, Reclaim: Limit{Percent: 0.05}}}})
	disk := func(n int64) Readings { return Readings{NodeFSAvailable: {Available: n, Capacity: 1000}} }
	if v := l.look(0, disk(120)); len(v.Due) > 0 {
		t.Fatal("the reclaim counts only for a threshold that was met")
	}
	for _, c := range []struct{ available, due int64 }{{99, 1}, {100, 1}, {149, 1}, {150, 0}, {149, 0}} {
		if v := l.look(time.Second, disk(c.available)); int64(len(v.Due)) != c.due {
			t.Fatalf("%d available: due %v", c.available, due(v))
		}
		if Short(l.all, disk(c.available)) != (c.available < 150) {
			t.Fatalf("%d available: short or not", c.available)
		}
	}
}

// TestDire: half of a hard threshold, and of no soft one.
func TestDire(t *testing.T) { // beyond N-6.31
	all := []Threshold{{Signal: MemoryAvailable, Below: Limit{Amount: 100}}, {Signal: MemoryAvailable, Below: Limit{Amount: 1000}, Soft: true},
		{Signal: AllocatableMemory, Below: Limit{Percent: 0.1}}}
	for _, c := range []struct {
		board, pods int64
		dire        bool
	}{{50, 100, false}, {49, 100, true}, {-5, 100, true}, {100, 49, true}, {100, 50, false}} {
		seen := Readings{MemoryAvailable: {Available: c.board, Capacity: 1000}, AllocatableMemory: {Available: c.pods, Capacity: 1000}}
		if Dire(all, seen) != c.dire {
			t.Errorf("%d of the board's, %d of the pods': %t", c.board, c.pods, !c.dire)
		}
	}
	if Dire(all, Readings{}) || Dire(all, Readings{MemoryAvailable: {}}) {
		t.Error("what could not be read decides")
	}
}

func TestOnlyNewReadingsAreAnswered(t *testing.T) { // N-6.18, 7
	l := newLooks(Policy{})
	old := Readings{MemoryAvailable: {Available: 0, Capacity: 1 << 30, At: epoch.Add(-time.Second)}}
	if v := l.look(0, old); len(v.Due) != 1 {
		t.Fatalf("%v", v)
	}
	if v := l.look(time.Second, old); len(v.Due) != 0 || !v.Conditions[corev1.NodeMemoryPressure] {
		t.Fatalf("the same reading was answered twice: %v", v)
	}
}

func TestUnreadableSignalDecidesNothing(t *testing.T) { // N-6.7
	l := newLooks(Policy{Thresholds: []Threshold{{Signal: MemoryAvailable, Below: Limit{Amount: 100}, Soft: true, Grace: time.Minute}}})
	if v := l.look(0, nil); v.Conditions[corev1.NodeMemoryPressure] {
		t.Fatal("raised without a reading")
	}
	l.look(0, mem(1))
	if v := l.look(30*time.Second, nil); !v.Conditions[corev1.NodeMemoryPressure] || len(v.Due) > 0 {
		t.Fatalf("%v", v)
	}
	if v := l.look(30*time.Second, mem(1)); len(v.Due) != 1 {
		t.Fatal("a reading that failed began the grace again")
	}
}

func TestOrder(t *testing.T) { // N-6.18, 9
	l := newLooks(Policy{})
	seen := Readings{}
	for _, s := range Signals {
		seen[s] = Reading{Available: 0, Capacity: 1 << 40}
	}
	if got := due(l.look(0, seen)); !slices.Equal(got, Signals) {
		t.Fatalf("%v", got)
	}
}

func TestGlance(t *testing.T) { // N-6.22
	l := newLooks(Policy{Thresholds: []Threshold{{Signal: MemoryAvailable, Below: Limit{Amount: 100 << 20}}}})
	for _, c := range []struct {
		available   int64
		news        bool
		again, told time.Duration
	}{
		{2 << 30, false, GlanceMost, GlanceMostTold},
		{(200 + 256) << 20, false, GlanceMost, 2 * time.Second},
		{(200 + 64) << 20, false, time.Second / 2, time.Second / 2},
		{200 << 20, false, GlanceLeast, GlanceLeast},
		{100<<20 - 1, true, GlanceLeast, GlanceLeast},
	} {
		seen := mem(c.available)
		if news, again, told := News(l.all, l.state, seen), GlanceAgain(l.all, seen, GlanceMost),
			GlanceAgain(l.all, seen, GlanceMostTold); news != c.news || again != c.again || told != c.told {
			t.Errorf("%d available: %v %v %v", c.available, news, again, told)
		}
	}
	l.look(0, mem(0))
	if News(l.all, l.state, mem(0)) {
		t.Error("what is known is no news")
	}
	if News(l.all, State{}, nil) || GlanceAgain(l.all, nil, GlanceMost) != GlanceMost {
		t.Error("news out of nothing")
	}
}

// TestGlanceProperties: the less there is the sooner the next glance, and who uses up memory no faster than GlanceRate is
// glanced at before less than twice a threshold is there, or 250 ms after at the latest.
func TestGlanceProperties(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 22))
		ram := int64(1) << (27 + rnd.IntN(9))
		l := newLooks(Policy{})
		at := func(available int64) Readings {
			board := Reading{Available: available, Capacity: ram}
			return Readings{MemoryAvailable: board, AllocatableMemory: PodsAtLeast(board, ram-ram/16)}
		}
		most := []time.Duration{GlanceMost, GlanceMostTold}[rnd.IntN(2)]
		before := most
		rate := rnd.Int64N(GlanceRate) + 1
		twice := 2*l.all[0].Below.Of(ram) + ram/16 // for the pods together, who have a sixteenth less
		for available := ram; available > 0; {
			again := GlanceAgain(l.all, at(available), most)
			if again > before || again < GlanceLeast || again > most {
				t.Fatalf("seed %d: %d available of %d: %v after %v", seed, available, ram, again, before)
			}
			next := available - int64(float64(rate)*again.Seconds())
			if late := twice - next; available > twice && late > rate/4+1 {
				t.Fatalf("seed %d: at %d a second from %d to %d in %v, which is %d too far", seed, rate, available, next, again, late)
			}
			before, available = again, next
		}
	}
}

// TestRoomAgain: far from the lines a look is good for long; near one it is not.
func TestRoomAgain(t *testing.T) { // N-6.22
	l := newLooks(Policy{})
	const gi = 1 << 30
	disk := func(available int64) Readings {
		return Readings{NodeFSAvailable: {Available: available, Capacity: 32 * gi}}
	}
	line := l.Hard(NodeFSAvailable).Of(32 * gi)
	for name, c := range map[string]struct {
		seen Readings
		want time.Duration
	}{
		"nothing known":        {nil, RoomMost},
		"far":                  {disk(30 * gi), RoomMost},
		"three seconds":        {disk(line + 3*128<<20), 3 * time.Second},
		"at the line":          {disk(line), RoomLeast},
		"below, which is told": {disk(line - 1), RoomMost},
		"inodes":               {Readings{NodeFSInodesFree: {Available: 5_000 + 20_000, Capacity: 100_000}}, 2 * time.Second},
		"processes":            {Readings{PIDAvailable: {Available: 50 + 750, Capacity: 1000}}, 1500 * time.Millisecond},
		"memory is glanced at": {mem(100<<20 + 1), RoomMost},
	} {
		if got := RoomAgain(l.all, c.seen); got.Round(time.Millisecond) != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestRoomProperties: what is used up no faster than its rate is looked at within RoomLeast after its line, at the latest, and
// looks are never closer than that.
func TestRoomProperties(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 23))
		l := newLooks(Policy{})
		sig := []Signal{NodeFSAvailable, NodeFSInodesFree, ImageFSAvailable, ContainerFSInodesFree, PIDAvailable}[rnd.IntN(5)]
		capacity := int64(1) << (10 + rnd.IntN(30))
		most := roomRates[sig.Resource()]
		rate := most * (0.01 + 0.99*rnd.Float64())
		line := int64(0)
		for _, t := range l.all {
			if t.Signal == sig {
				line = max(line, t.Below.Of(capacity))
			}
		}
		for available, before := min(capacity, line+int64(20*most)), RoomMost; available >= line; {
			again := RoomAgain(l.all, Readings{sig: {Available: available, Capacity: capacity}})
			if again > before || again < RoomLeast {
				t.Fatalf("seed %d: %s: %d available of %d: %v after %v", seed, sig, available, capacity, again, before)
			}
			next := available - int64(rate*again.Seconds()) - 1
			if late := float64(line-next) / rate; late > RoomLeast.Seconds()+0.01+2/rate {
				t.Fatalf("seed %d: %s: from %d to %d, %v s below the line of %d", seed, sig, available, next, late, line)
			}
			available, before = next, again
		}
	}
}

// TestPodsAtLeast: what the board tells of the pods is never more than what they have left.
func TestPodsAtLeast(t *testing.T) { // N-6.15
	board := Reading{Available: 600, Capacity: 1000, At: epoch}
	for _, c := range []struct{ limit, want int64 }{{1000, 600}, {700, 300}, {300, -100}} {
		if got := PodsAtLeast(board, c.limit); got != (Reading{Available: c.want, Capacity: c.limit, At: epoch}) {
			t.Errorf("limit %d: %+v", c.limit, got)
		}
	}
}

func TestConditionOfEachSignal(t *testing.T) { // N-6.1
	for sig, cond := range Conditions {
		v := newLooks(Policy{}).look(0, Readings{sig: {Available: 0, Capacity: 1 << 40}})
		for c, on := range v.Conditions {
			if on != (c == cond) {
				t.Errorf("%s: %s is %v", sig, c, on)
			}
		}
	}
}

func TestDerivedThresholds(t *testing.T) { // N-6.15, N-6.16, N-6.17
	p := Policy{Thresholds: []Threshold{
		{Signal: MemoryAvailable, Below: Limit{Amount: 7}, Reclaim: Limit{Amount: 3}},
		{Signal: MemoryAvailable, Below: Limit{Amount: 9}, Soft: true, Grace: time.Second},
		{Signal: NodeFSAvailable, Below: Limit{Amount: 1}},
		{Signal: ImageFSAvailable, Below: Limit{Amount: 2}},
		{Signal: ImageFSInodesFree, Below: Limit{Amount: 3}},
	}}
	find := func(all []Threshold, s Signal) (out []Threshold) {
		for _, t := range all {
			if t.Signal == s {
				out = append(out, t)
			}
		}
		return out
	}
	got := find(p.All(OneDisk, true), AllocatableMemory)
	if len(got) != 1 || got[0].Below.Amount != 7 || got[0].Reclaim.Amount != 3 || got[0].Soft {
		t.Errorf("all pods together: %v", got)
	}
	if got := find(p.All(OneDisk, false), AllocatableMemory); len(got) != 0 {
		t.Errorf("pods are not bounded together, and yet %v", got)
	}
	for layout, want := range map[Layout]map[Signal]int64{OneDisk: {ContainerFSAvailable: 1},
		ImageDisk: {ContainerFSAvailable: 2, ContainerFSInodesFree: 3}} {
		for _, s := range []Signal{ContainerFSAvailable, ContainerFSInodesFree} {
			got := find(p.All(layout, true), s)
			if len(got) != min(1, int(want[s])) || len(got) == 1 && got[0].Below.Amount != want[s] {
				t.Errorf("layout %d: %s is %v", layout, s, got)
			}
		}
	}
}

func TestLimit(t *testing.T) {
	if got := (Limit{Percent: 0.10}).Of(34359738368); got != 3435973888 { // N-1.59
		t.Fatalf("%d, want 3435973888", got)
	}
	line := Default().Hard(MemoryAvailable)
	for ram, want := range map[int64]int64{232 << 20: 23, 480 << 20: 48, 1000 << 20: 100, 1900 << 20: 100, 8 << 30: 100} {
		if got := line.Of(ram) >> 20; got != want && got != want-1 { // a tenth is no exact float
			t.Errorf("%d MB of RAM: the line is %d MB, want %d", ram>>20, got, want)
		}
	}
	if Short([]Threshold{{Signal: MemoryAvailable, Below: Limit{Amount: 1<<63 - 1}, Reclaim: Limit{Amount: 1<<63 - 1}}}, mem(5)) != true {
		t.Error("the sum of threshold and reclaim ran over")
	}
}

// TestStepProperties: for whatever sequence of readings, the more is short the more is answered, no condition ends before
// the transition period is over, and a state that was given is left alone.
func TestStepProperties(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		p := Policy{Thresholds: []Threshold{}, Transition: time.Duration(rnd.IntN(400)+1) * time.Second}
		for _, s := range []Signal{MemoryAvailable, NodeFSAvailable, NodeFSInodesFree, PIDAvailable} {
			if rnd.IntN(4) > 0 {
				p.Thresholds = append(p.Thresholds, Threshold{Signal: s, Below: Limit{Amount: rnd.Int64N(100)}, Reclaim: Limit{Amount: rnd.Int64N(50)}})
			}
			if rnd.IntN(2) > 0 {
				p.Thresholds = append(p.Thresholds, Threshold{Signal: s, Below: Limit{Percent: rnd.Float32()}, Soft: true,
					Grace: time.Duration(rnd.IntN(60)) * time.Second})
			}
		}
		rich, poor := newLooks(p), newLooks(p)
		lastShort := map[corev1.NodeConditionType]time.Time{}
		var before Verdict
		for range 60 {
			d := time.Duration(rnd.IntN(90)) * time.Second
			seen, less := Readings{}, Readings{}
			for _, s := range []Signal{MemoryAvailable, AllocatableMemory, NodeFSAvailable, NodeFSInodesFree, ContainerFSAvailable, PIDAvailable} {
				if rnd.IntN(8) == 0 {
					continue
				}
				r := Reading{Available: rnd.Int64N(150), Capacity: 150}
				seen[s] = r
				r.Available -= rnd.Int64N(50)
				less[s] = r
			}
			old := clone(rich.state)
			given := rich.state
			v := rich.look(d, seen)
			if !same(old, given) {
				t.Fatalf("seed %d: Step changed the state it was given", seed)
			}
			w := poor.look(d, less)
			for _, x := range v.Due {
				if !slices.ContainsFunc(w.Due, func(y Threshold) bool { return y.key() == x.key() }) {
					t.Fatalf("seed %d: %v is due, with less available it is not", seed, x)
				}
			}
			for _, x := range rich.all {
				if r, ok := seen[x.Signal]; ok && (x.Met(r) || given.Due[x.key()] && x.Unresolved(r)) {
					lastShort[Conditions[x.Signal]] = rich.at
				}
			}
			for c, on := range v.Conditions {
				last, was := lastShort[c]
				if want := was && rich.at.Sub(last) < p.Transition; on != want {
					t.Fatalf("seed %d: %s is %v, last seen %v ago, the transition takes %v", seed, c, on, rich.at.Sub(last), p.Transition)
				}
				if on && !w.Conditions[c] {
					t.Fatalf("seed %d: %s holds, with less available it does not", seed, c)
				}
				if on && before.Conditions[c] && !rich.state.Since[c].Equal(given.Since[c]) {
					t.Fatalf("seed %d: %s began anew", seed, c)
				}
			}
			before = v
		}
	}
}

func clone(s State) State {
	return State{maps.Clone(s.First), maps.Clone(s.Due), maps.Clone(s.Last), maps.Clone(s.Since), maps.Clone(s.Read)}
}

func same(a, b State) bool {
	return maps.Equal(a.First, b.First) && maps.Equal(a.Due, b.Due) && maps.Equal(a.Last, b.Last) && maps.Equal(a.Since, b.Since) &&
		maps.Equal(a.Read, b.Read)
}
