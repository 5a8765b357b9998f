package brain

import "testing"

// TestLostCA: another authority than the store's is noticed, and none is where nothing is lost.
func TestLostCA(t *testing.T) {
	for name, c := range map[string]struct {
		known, pin string
		made       bool
		boards     int
		lost       bool
	}{
		"first start":                          {"", "a", true, 0, false},
		"the same":                             {"a", "a", false, 3, false},
		"emptied":                              {"a", "b", true, 3, true},
		"emptied, no boards: kubeconfigs":      {"a", "b", true, 0, true},
		"not accepted yet":                     {"a", "b", false, 3, true},
		"of another board":                     {"a", "b", false, 0, true},
		"put back":                             {"a", "a", false, 3, false},
		"from an earlier version":              {"", "a", false, 3, false},
		"from an earlier version, and emptied": {"", "b", true, 3, true},
	} {
		if got := caLost(c.known, c.pin, c.made, c.boards); got != c.lost {
			t.Errorf("%s: %v", name, got)
		}
	}
}
