package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
)

// How many images a Node reports, and how many names of each (N-1.65).
const maxImages, maxImageNames = 50, 5

// nodeImages is the list for the Node's status: largest first, digests before tags.
func nodeImages(list []images.Image) []corev1.ContainerImage {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b images.Image) int {
		switch {
		case a.Size != b.Size:
			return int(min(max(b.Size-a.Size, -1), 1))
		case a.ID < b.ID:
			return -1
		}
		return 1
	})
	var out []corev1.ContainerImage
	for _, img := range list[:min(len(list), maxImages)] {
		names := slices.Concat(img.Digests, img.Names)
		out = append(out, corev1.ContainerImage{Names: names[:min(len(names), maxImageNames)], SizeBytes: img.Size})
	}
	return out
}
