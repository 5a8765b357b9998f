//go:build !race

package testrun

// Raced: the race detector watches. It does not here.
const Raced = false
