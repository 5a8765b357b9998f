package httpd

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRates: whenever somebody asks, never more get through in a time than the burst and what that time brings, and who waits
// for as long as was said gets through.
func TestRates(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := pace{burst: float64(1 + r.IntN(20)), second: 1 + 10*r.Float64()}
		var l rates
		now, got := time.Now(), []time.Time(nil)
		for i := range 500 {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(time.Second) / 15))
			wait := l.take("a", p, now)
			if wait == 0 {
				got = append(got, now)
			} else if r.IntN(4) == 0 {
				if now = now.Add(wait + time.Microsecond); l.take("a", p, now) != 0 {
					t.Fatalf("seed %d: refused after the wait it was told", seed)
				}
				got = append(got, now)
			}
			if l.take(fmt.Sprint("b", i), p, now) != 0 {
				t.Fatalf("seed %d: one pays for another", seed)
			}
		}
		for i, from := range got {
			for j := i; j < len(got); j++ {
				if n, most := float64(j-i+1), p.burst+p.second*got[j].Sub(from).Seconds()+1e-3; n > most {
					t.Fatalf("seed %d: %v in %v, at most %v", seed, n, got[j].Sub(from), most)
				}
			}
		}
	}
}

// TestRatesAreForgotten: the buckets of those who have not come for a while go, and nobody is given a new one early.
func TestRatesAreForgotten(t *testing.T) {
	var l rates
	now := time.Now()
	p := pace{burst: 2, second: 1}
	for range 2 {
		l.take("flood", p, now)
	}
	for i := range 100_000 {
		now = now.Add(time.Millisecond)
		l.take(fmt.Sprint(i), p, now)
		if i == 500 && l.take("flood", p, now) == 0 {
			t.Error("a full bucket after half a second")
		}
	}
	if n := len(l.buckets); n > 20_000 {
		t.Errorf("%d buckets", n)
	}
}
