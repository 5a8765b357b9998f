//go:build race

package testrun

// Raced: the race detector watches, and makes what computes five to fifty times longer.
const Raced = true
