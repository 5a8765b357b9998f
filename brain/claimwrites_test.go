package brain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"ledge/host"
)

// TestClaimWrites: what pods write is counted once for each claim that they have, whoever is restarted, and stays when they have ended.
func TestClaimWrites(t *testing.T) { // N-13.19
	r := func(pod, of string, bytes int64, volumes ...string) claimReading {
		return claimReading{pod: pod, group: "kubepods/" + pod, volumes: volumes, counter: host.Counter{Of: of, Bytes: bytes}}
	}
	k, standing := book{BootID: "1"}, map[string]bool{}
	for i, step := range []struct {
		boot string
		list []claimReading
		want string // of a and b
	}{
		{"1", []claimReading{r("x", "x1", 100, "a")}, "100 0"},
		{"1", []claimReading{r("x", "x1", 150, "a"), r("y", "y1", 7, "a", "b")}, "157 7"},
		{"1", nil, "157 7"}, // a brain that has just begun knows no pods yet
		{"1", []claimReading{r("x", "x1", 150, "a"), r("y", "y1", 9, "a", "b")}, "159 9"},
		{"1", []claimReading{r("x", "x1", 140, "a")}, "159 9"}, // what was removed before it came to the disk
		{"1", []claimReading{r("x", "x2", 5, "a")}, "164 9"},   // its cgroup was made again
		{"1", []claimReading{r("z", "z1", 1, "b")}, "164 10"},
		{"2", []claimReading{r("z", "z2", 3, "b")}, "0 3"}, // another boot
	} {
		clear(standing)
		for _, e := range step.list {
			standing[e.group] = true
		}
		k.noteClaims(step.boot, []string{"a", "b"}, step.list, func(g string) bool { return len(step.list) == 0 || standing[g] })
		k.BootID = step.boot
		if got := fmt.Sprint(k.Claims["a"].SinceBoot, k.Claims["b"].SinceBoot); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
		for name, a := range k.Claims {
			for pod, c := range a.Pods {
				if len(step.list) > 0 && !standing[c.Group] {
					t.Errorf("step %d: %s keeps the counter of pod %s, which has ended", i, name, pod)
				}
			}
		}
		data, err := json.Marshal(k) // a brain that is restarted
		k = book{}
		if err != nil || json.Unmarshal(data, &k) != nil {
			t.Fatal(err)
		}
	}
}

// TestClaimWritesAreBounded: volumes come and go all boot long.
func TestClaimWritesAreBounded(t *testing.T) { // N-13.19
	k := book{BootID: "1"}
	kept := []string{"kept"}
	for i := range 3 * mostAccounts {
		name := fmt.Sprint("pvc-", i)
		k.noteClaims("1", append(kept, name), []claimReading{{pod: fmt.Sprint(i), group: name, volumes: []string{"kept", name},
			counter: host.Counter{Of: name, Bytes: 1}}}, func(g string) bool { return g == name })
	}
	if n := len(k.Claims); n > mostAccounts+1 || k.Claims["kept"].SinceBoot != 3*mostAccounts || len(k.Claims["kept"].Pods) != 1 {
		t.Errorf("%d accounts, %+v", n, k.Claims["kept"])
	}
}

// TestClaimWritesAddUp: at random, the sum is what was written.
func TestClaimWritesAddUp(t *testing.T) {
	k, now, sum := book{BootID: "1"}, map[string]int64{}, int64(0)
	for range 2000 {
		pod := fmt.Sprint(rand.IntN(5))
		n := rand.Int64N(1 << 20)
		now[pod], sum = now[pod]+n, sum+n
		var list []claimReading
		for p, bytes := range now {
			if p == pod || rand.IntN(2) == 0 {
				list = append(list, claimReading{pod: p, group: p, volumes: []string{"a"}, counter: host.Counter{Of: p, Bytes: bytes}})
			}
		}
		k.noteClaims("1", []string{"a"}, list, func(string) bool { return true })
	}
	if got := k.Claims["a"].SinceBoot; got != sum {
		t.Errorf("%d, want %d", got, sum)
	}
}
