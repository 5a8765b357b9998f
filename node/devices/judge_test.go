package devices

import "testing"

// TestJudge: what a plugin may hand out is what a class could give, named if the board lives by it.
func TestJudge(t *testing.T) {
	var none *Board
	for _, c := range []struct {
		major, minor uint32
		ok           bool
	}{{1, 3, true}, {1, 1, false}, {majorTTY, 1, false}, {majorTTY, 64, true}, {majorConsole, 1, false}, {188, 0, true}, {10, 229, true}} {
		if err := none.Judge(c.major, c.minor); (err == nil) != c.ok {
			t.Errorf("%d:%d: %v", c.major, c.minor, err)
		}
	}
}
