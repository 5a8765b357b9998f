//go:build race

package images_test

// raceEnabled: the race detector takes memory and time of its own.
const raceEnabled = true
