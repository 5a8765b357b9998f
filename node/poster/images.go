package poster

import (
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
)

// How many images a Node reports, and how many names of each (N-1.65).
const maxImages, maxImageNames = 50, 5

// imageList is the list for the Node's status: largest first, digests before tags.
func imageList(list []images.Image) []corev1.ContainerImage {
	list = slices.Clone(list)
	sort.SliceStable(list, func(i, j int) bool {
		if a, b := list[i], list[j]; a.Size != b.Size {
			return a.Size > b.Size
		}
		return list[i].ID < list[j].ID
	})
	var out []corev1.ContainerImage
	for _, img := range list[:min(len(list), maxImages)] {
		names := slices.Concat(img.Digests, img.Names)
		out = append(out, corev1.ContainerImage{Names: names[:min(len(names), maxImageNames)], SizeBytes: img.Size})
	}
	return out
}
