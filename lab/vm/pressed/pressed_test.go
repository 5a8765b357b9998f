package pressed

import (
	"strings"
	"testing"
)

// TestJudge: Judge reports each broken promise, and nothing else.
func TestJudge(t *testing.T) {
	good := Result{Hog: "leak5", Condition: 10, Evicted: 20, Eased: 30, Recovered: 40, End: "Failed Evicted", Answers: 5}
	quiet := Result{Hog: "cache", Condition: -1, Evicted: -1, Eased: -1, Recovered: -1, Answers: 5}
	full := quiet
	full.Hog, full.AtTheLimit = "full95", 3
	fast := good
	fast.Hog, fast.Rate, fast.Kills, fast.End = "leak40", 40<<20, 2, "Failed"
	filler := good
	filler.Hog, filler.NoRoom = "bytes", 3
	for name, c := range map[string]struct {
		from Result
		edit func(*Result)
		want string
	}{
		"as promised":         {good, func(*Result) {}, ""},
		"left alone":          {quiet, func(*Result) {}, ""},
		"at 95 %":             {full, func(*Result) {}, ""},
		"lost":                {good, func(p *Result) { p.Lost = 2 }, "2 acknowledged objects are lost"},
		"hurt":                {quiet, func(p *Result) { p.Hurt = 1 }, "1 innocents were hurt"},
		"no answer":           {full, func(p *Result) { p.Refused = 4 }, "did not answer 4 times"},
		"no room, and told":   {filler, func(*Result) {}, ""},
		"no room for nothing": {good, func(p *Result) { p.NoRoom = 3 }, "no room for 3 writes"},
		"nobody asked":        {good, func(p *Result) { p.Answers = 0 }, "nothing was asked"},
		"killed":              {good, func(p *Result) { p.Kills = 1 }, "the kernel has killed 1"},
		"killed, too fast":    {fast, func(*Result) {}, ""},
		"killed, slow":        {fast, func(p *Result) { p.Rate = 9 << 20 }, "the kernel has killed 2"},
		"killed others":       {fast, func(p *Result) { p.Victims = []string{"ledge"} }, "the kernel has killed [\"ledge\"]"},
		"fast, and let live":  {fast, func(p *Result) { p.Kills, p.End = 0, "Failed" }, "not evicted"},
		"not evicted":         {good, func(p *Result) { p.End = "Failed" }, `not evicted but "Failed"`},
		"late":                {good, func(p *Result) { p.Noticed = 1001 }, "saw it after 1001 ms only"},
		"no condition":        {good, func(p *Result) { p.Condition = -1 }, "no condition"},
		"a condition stays":   {good, func(p *Result) { p.Recovered = -1 }, "no condition"},
		"evicted for nothing": {quiet, func(p *Result) { p.End = "Failed Evicted" }, "to be left alone: Failed Evicted"},
		"short for nothing":   {full, func(p *Result) { p.Condition = 7 }, "condition after 7 ms"},
		"never at 95 %":       {full, func(p *Result) { p.AtTheLimit = 0 }, "never so little"},
	} {
		p := c.from
		c.edit(&p)
		p.Judge()
		if got := strings.Join(p.Wrong, "; "); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
