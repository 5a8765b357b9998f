//go:build !race

package images_test

const raceEnabled = false
