//go:build race

package sim

// raced: the race detector makes a day five times longer; it gets a morning.
const raced = true
