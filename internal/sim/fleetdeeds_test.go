package sim

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"ledge/api"
	"ledge/internal/testrun"
	"ledge/runtime"
)

func (f *fleet) user() context.Context {
	return api.WithUser(f.ctx, api.User{Name: "user", Groups: []string{api.AdminGroup}})
}

// during has some boards in trouble for a time, and the others watched.
func (f *fleet) during(boards []*member, d time.Duration, begin, end func(*member)) {
	for _, m := range boards {
		m.touched = time.Time{}
		begin(m)
	}
	f.pass(d)
	for _, m := range boards {
		end(m)
		m.touched = time.Now()
	}
	synctest.Wait()
}

// unmoved has something done to boards for a time that they may not be seen to notice: they stay ready, and what runs there
// runs on, but for the pods that the user deletes.
func (f *fleet) unmoved(boards []*member, d time.Duration, begin, end func(*member)) {
	before := map[*member]map[string]runtime.Status{}
	for _, m := range boards {
		before[m] = f.containers(m)
	}
	for _, m := range boards {
		begin(m)
	}
	f.pass(d)
	for _, m := range boards {
		end(m)
	}
	f.pass(time.Minute)
	here := map[string]bool{}
	for _, p := range f.steady() {
		here[string(p.UID)] = p.DeletionTimestamp == nil
	}
	for m, was := range before {
		is := f.containers(m)
		for id, c := range was {
			if here[c.PodUID] && is[id].Pid != c.Pid {
				f.Errorf("container %s on %s did not survive: %+v", id, m.name, is[id])
			}
		}
	}
}

func (f *fleet) containers(m *member) map[string]runtime.Status {
	f.Helper()
	st, err := m.engine.List(f.ctx)
	f.must(err)
	out := map[string]runtime.Status{}
	for _, c := range st.Containers {
		if c.Phase == runtime.Running {
			out[c.ID] = c
		}
	}
	return out
}

// noneGivenUp: it was no reason to end any pod.
func (f *fleet) noneGivenUp(d deed) {
	f.Helper()
	for _, p := range f.steady() {
		if p.DeletionTimestamp != nil && !f.held.ends[p.UID] {
			f.Errorf("%s: pod %s on %s was given up", d, p.Name, p.Spec.NodeName)
		}
	}
}

// deleteOne has the user delete a pod of a board, which is made again when it has gone.
func (f *fleet) deleteOne(m *member) {
	f.Helper()
	for _, p := range f.steady() {
		if p.Spec.NodeName == m.name && p.DeletionTimestamp == nil {
			_, err := f.local.Delete(f.user(), api.Pods, p.Namespace, p.Name, api.DeleteOptions{})
			f.must(err)
			return
		}
	}
}

// cut takes the links of some boards away. Pods of boards that are given up are deleted; see mostGivenUp.
func (f *fleet) cut(boards []*member, d time.Duration) {
	on := map[string]bool{}
	for _, m := range boards {
		on[m.name] = true
	}
	f.during(boards, d, func(m *member) { m.up.set(true) }, func(m *member) {
		if m == boards[0] { // before the first comes back
			f.judgeCut(on, d)
		}
		m.up.set(false)
	})
}

// fewGivenUp is how many boards may be given up before it is seen that most of them are silent: they are not heard for the
// last time at one moment, and the first one's turn comes at once.
const fewGivenUp = 3

// mostGivenUp is how many of all boards may be given up when n of them are silent for d: none when that is shorter than the
// toleration (N-3.29) or when all are (N-3.41), and few when most are (N-3.37). Of more than fifty one goes every hundred seconds
// then, of fewer none does (N-3.38).
func mostGivenUp(n, all int, d time.Duration) int {
	const toleration, largeZone, slow = 5 * time.Minute, 50, 100 * time.Second
	switch {
	case n == all || d < toleration:
		return 0
	case n <= all/2:
		return n
	case all <= largeZone:
		return fewGivenUp
	}
	return fewGivenUp + int((d-toleration)/slow)
}

func TestMostGivenUp(t *testing.T) {
	for _, c := range []struct {
		n, all int
		d      time.Duration
		want   int
	}{
		{10, 10, time.Hour, 0}, {100, 100, time.Hour, 0}, {3, 10, 4 * time.Minute, 0}, {3, 10, time.Hour, 3}, {50, 100, time.Hour, 50},
		{6, 10, 30 * time.Minute, 3}, {30, 50, 30 * time.Minute, 3}, {60, 100, 6 * time.Minute, 3}, {89, 100, 29 * time.Minute, 17},
	} {
		if got := mostGivenUp(c.n, c.all, c.d); got != c.want {
			t.Errorf("%d of %d for %s: %d, want %d", c.n, c.all, c.d, got, c.want)
		}
	}
}

func (f *fleet) judgeCut(on map[string]bool, d time.Duration) {
	f.Helper()
	n, most := len(on), len(on) > len(f.boards)/2
	ended := map[string]bool{}
	for _, p := range f.steady() {
		gone := p.DeletionTimestamp != nil
		if !on[p.Spec.NodeName] || f.held.ends[p.UID] {
			continue
		}
		if daemon(p) {
			if gone {
				f.Errorf("%d boards were cut off for %s, and pod %s on %s was given up", n, d, p.Name, p.Spec.NodeName)
			}
			continue
		}
		if ended[p.Spec.NodeName] = ended[p.Spec.NodeName] || gone; !most && d > 15*time.Minute && !gone {
			f.Errorf("%d boards were cut off for %s, and pod %s on %s stays", n, d, p.Name, p.Spec.NodeName)
		}
	}
	given := 0
	for _, gone := range ended {
		if gone {
			given++
		}
	}
	if may := mostGivenUp(n, len(f.boards), d); given > may {
		f.Errorf("%d of %d boards were cut off for %s, and %d were given up, at most %d may be", n, len(f.boards), d, given, may)
	}
}

// without has the control plane away for a time.
func (f *fleet) without(d time.Duration, end func()) {
	for _, m := range f.boards {
		m.touched = time.Time{}
	}
	end()
	time.Sleep(d)
	f.startPlane()
	for _, m := range f.boards {
		m.touched = time.Now()
	}
}

// do does what a line of the script says.
func (f *fleet) do(d deed) {
	f.Helper()
	var boards []*member
	for _, i := range d.boards {
		boards = append(boards, f.boards[i])
	}
	switch d.kind {
	case cutFew, cutLong, cutMost, cutAll:
		f.cut(boards, d.lasts)
	case slowLinks:
		f.unmoved(boards, d.lasts, func(m *member) { m.up.lag(d.much) }, func(m *member) { m.up.lag(0) })
	case boardClocks:
		f.unmoved(boards, d.lasts, func(m *member) { m.ahead.Store(int64(d.much)); f.deleteOne(m) }, func(m *member) { m.ahead.Store(0) })
	case planeClock:
		f.unmoved(f.boards, d.lasts, func(*member) { f.plane.ahead.Store(int64(d.much)) }, func(*member) { f.plane.ahead.Store(0) })
		f.noneGivenUp(d)
	case stallCards:
		until := time.Now().Add(d.lasts).UnixNano()
		f.unmoved(boards, d.lasts, func(m *member) { m.stall.Store(until); f.deleteOne(m) }, func(*member) {})
	case stallPlane:
		f.during(f.boards, d.lasts, func(*member) { f.plane.stall.Store(time.Now().Add(d.lasts).UnixNano()) }, func(*member) {})
		f.noneGivenUp(d)
	case loseKeepers:
		f.during(boards, d.lasts, func(m *member) { m.engine.SetAway(true) }, func(m *member) { m.engine.SetAway(false) })
	case cutPower:
		f.during(boards, d.lasts, f.kill, f.start)
	case restartPlane:
		f.without(d.lasts, f.stopPlane)
	case killPlane:
		f.without(d.lasts, f.killPlane)
	case replaceBoard: // taken out of service while it is off, and back, empty, under its name
		f.during(boards, 5*time.Minute, f.kill, func(m *member) {
			_, err := f.local.Delete(f.ctx, api.Nodes, "", m.name, api.DeleteOptions{})
			f.must(err)
			f.pass(d.lasts - 5*time.Minute)
			f.must(os.RemoveAll(m.machine.disk))
			f.loseCard(m)
			f.start(m)
		})
	}
}

// live has the fleet live through its script for a time. It says what it has come to.
func (f *fleet) live(s *script, long time.Duration) (done []string) {
	f.settle(5 * time.Minute)
	end, weighed := time.Now().Add(long), time.Time{}
	for time.Now().Before(end) && !f.Failed() {
		d := s.next()
		f.Logf("%s: %s", f.now(), d)
		f.scaled.next()
		f.handle()
		f.do(d)
		f.settle(8 * time.Minute)
		f.pass(d.rest)
		f.settle(time.Minute)
		if d.rest > followTime {
			f.judgeScale()
		}
		done = append(done, d.String())
		if time.Since(weighed) >= weighEvery {
			f.weigh()
			weighed = time.Now()
		}
	}
	if f.Logf("%d jobs", len(f.tallies)); long >= time.Hour && len(f.tallies) == 0 {
		f.Errorf("no job was ever begun")
	}
	if ups, downs := f.scaled.total(); long >= 2*time.Hour && (ups == 0 || downs == 0) {
		f.Errorf("scaled up %d times and down %d times", ups, downs)
	}
	f.judgeHoldings(long)
	f.judgeGrowth()
	return done
}

const weighEvery = 2 * time.Hour

// playFleet has a fleet of some boards live through what a seed says.
func playFleet(t *testing.T, seed uint64, boards int, long time.Duration) (done []string) {
	began, simulated := time.Now(), time.Duration(0)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		done = newFleet(t, boards).live(newScript(seed, boards), long)
		simulated = time.Since(start)
	})
	warnings := journal.take(t)
	t.Logf("%d boards, %s simulated in %s, warnings %v", boards, simulated.Round(time.Second), time.Since(began).Round(time.Millisecond),
		warnings)
	return done
}

// TestFleetDay: ten boards for a day of what may happen to them, with one writer for each field at every write
// (architecture: One writer per field). LEDGE_HOURS=n makes it shorter or longer; the race detector gets minutes.
func TestFleetDay(t *testing.T) { // N-13.10
	long(t)
	day := hours(t, 24)
	if testrun.Raced {
		day = 10 * time.Minute
	}
	playFleet(t, seed(t), 10, day)
}

// TestFleetWeek: a hundred boards for a week; set LEDGE_LONG. LEDGE_HOURS=n makes it shorter.
func TestFleetWeek(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" || testrun.Raced {
		t.Skip("takes more than an hour: set LEDGE_LONG, without the race detector")
	}
	playFleet(t, seed(t), 100, hours(t, 7*24))
}

// TestFleetAgain: a seed does the same twice, and it comes to the same: the boards all ready, each pod wanted there once. (Which
// board a pod is on may differ: that hangs on the order of goroutines.)
func TestFleetAgain(t *testing.T) {
	long, s := time.Hour, seed(t)
	if testrun.Raced {
		long = 5 * time.Minute
	}
	if one, two := playFleet(t, s, 3, long),
		playFleet(t, s, 3, long); !slices.Equal(one[:min(len(one), len(two))], two[:min(len(one), len(two))]) || len(one) == 0 {
		t.Errorf("one seed:\n%q\n%q", one, two)
	}
}

// hours a test takes by LEDGE_HOURS.
func hours(t *testing.T, n float64) time.Duration {
	t.Helper()
	if text := os.Getenv("LEDGE_HOURS"); text != "" {
		var err error
		if n, err = strconv.ParseFloat(text, 64); err != nil || n <= 0 {
			t.Fatalf("LEDGE_HOURS=%q is no number of hours", text)
		}
	}
	return time.Duration(n * float64(time.Hour))
}
