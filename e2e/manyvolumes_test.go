package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyVolumes is Kubernetes' test of wrapped volumes without the ReplicationController that it makes its pods with: five
// pods at once, each with the same fifty volumes made of ConfigMaps. Each volume of each pod has what is its own.
func TestManyVolumes(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.serve()
	const pods, volumes = 5, 50
	var objects, mounts, sources strings.Builder
	for i := range volumes {
		fmt.Fprintf(&objects, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {text: own-%d}\n---\n", i, i)
		fmt.Fprintf(&mounts, "    - {name: v%d, mountPath: /v/%d}\n", i, i)
		fmt.Fprintf(&sources, "  - {name: v%d, configMap: {name: c%d, items: [{key: text, path: text}]}}\n", i, i)
	}
	names := []string{"delete", "pod"}
	for i := range pods {
		fmt.Fprintf(&objects, "apiVersion: v1\nkind: Pod\nmetadata: {name: many%d}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n"+
			"  - name: c\n    image: ledge.local/self\n    args: [pause]\n    volumeMounts:\n%s  volumes:\n%s---\n", i, mounts.String(),
			sources.String())
		names = append(names, fmt.Sprint("many", i))
	}
	for range 2 {
		b.apply(objects.String())
		for _, name := range names[2:] {
			pid := b.running(name)
			for i := range volumes {
				if got, want := inside(pid, fmt.Sprintf("/v/%d/text", i)), fmt.Sprint("own-", i); got != want {
					t.Fatalf("%s has %q in volume %d, want %q", name, got, i, want)
				}
			}
		}
		b.must(names...)
		b.eventually("all pods have gone", func() error { return contains(b.ledge("get", "pods"), "No resources found") })
		b.noVolumes()
	}
}
