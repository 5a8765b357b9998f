//go:build race

package layers

// raceEnabled: the race detector takes memory and time of its own.
const raceEnabled = true
