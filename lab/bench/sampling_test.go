package main

import "testing"

func TestTimeOf(t *testing.T) {
	const out = `goos: linux
BenchmarkPass50-2   	      42	  27813961 ns/op	  26900000 cpu-ns/op	 1037712 B/op	   10056 allocs/op
BenchmarkGlance 	   15662	     65100 ns/op	       0 B/op	       0 allocs/op
PASS
`
	for _, c := range []struct {
		bench, what string
		ns          float64
		ok          bool
	}{{"BenchmarkPass50", "processor time", 26900000, true}, {"BenchmarkGlance", "by the clock", 65100, true},
		{"BenchmarkOther", "", 0, false}} {
		if ns, what, ok := timeOf(out, c.bench); ns != c.ns || what != c.what || ok != c.ok {
			t.Errorf("%s: %v %q %v", c.bench, ns, what, ok)
		}
	}
}
