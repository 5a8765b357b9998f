package images

import (
	goruntime "runtime"
	"strings"
)

// Platform is what an image was built for.
type Platform struct {
	OS, Architecture, Variant string
}

// HostPlatform is the platform of this binary. 32-bit ARM counts as v7, which is what ledge is built for.
func HostPlatform() Platform {
	p := Platform{OS: "linux", Architecture: goruntime.GOARCH}
	if p.Architecture == "arm" {
		p.Variant = "v7"
	}
	return p
}

// String is the usual short form, "linux/arm/v7".
func (p Platform) String() string {
	return strings.TrimSuffix(p.OS+"/"+p.Architecture+"/"+p.Variant, "/")
}

// Rank says how well an image for c runs here: 0 is best, negative is not at all. An empty OS means linux.
func (p Platform) Rank(c Platform) int {
	if c.OS != "" && c.OS != p.OS || c.Architecture != p.Architecture {
		return -1
	}
	switch p.Architecture {
	case "arm":
		return armVersion(p.Variant) - armVersion(c.Variant)
	case "arm64":
		if c.Variant == "" || c.Variant == "v8" {
			return 0
		}
	case "amd64":
		// v2 and up name instruction sets that an old Atom board lacks.
		if c.Variant == "" || c.Variant == "v1" {
			return 0
		}
	default:
		if c.Variant == p.Variant || c.Variant == "" {
			return 0
		}
	}
	return -1
}

// armVersion: no variant means v7, as everywhere; an unknown one is newer than any board.
func armVersion(variant string) int {
	switch variant {
	case "", "v7":
		return 7
	case "v6":
		return 6
	case "v5":
		return 5
	}
	return 99
}
