// Package names is what the files are called that belong to the image of a board: who makes one and who writes it agree here.
package names

import "strings"

// Packed is the name of an image, by what all of its files begin with.
func Packed(base string) string { return base + ".img.xz" }

// Checksum is the name of the file with the checksum of an image, packed or not.
func Checksum(image string) string {
	return strings.TrimSuffix(strings.TrimSuffix(image, ".xz"), ".img") + ".sha256"
}
