//go:build !amd64

package rough

// calls32: only amd64 has the calls of another architecture by one instruction.
func calls32() { say("done") }
