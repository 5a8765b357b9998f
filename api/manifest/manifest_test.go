package manifest

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/storage"
)

// busyClient has somebody write the object's status before each patch.
type busyClient struct {
	api.Client
	t *testing.T
}

func (b busyClient) Patch(ctx context.Context, kind *api.Kind, namespace, name string, patch api.Patch, opts api.WriteOptions) (api.Object,
	error) {
	if live, err := b.Get(ctx, kind, namespace, name); err == nil {
		pod := live.(*corev1.Pod)
		pod.Status.Message += "x"
		_, err := b.Update(ctx, kind, pod, api.WriteOptions{Subresource: "status"})
		must(b.t, err)
	}
	return b.Client.Patch(ctx, kind, namespace, name, patch, opts)
}

// TestApplyUnchanged: what changed nothing says so, although a status was written meanwhile.
func TestApplyUnchanged(t *testing.T) {
	s, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	must(t, err)
	defer s.Close()
	client, err := local.New(local.Config{Store: s})
	must(t, err)
	m, err := Parse(Documents([]byte(podFile))[0], "default")
	must(t, err)
	for i, want := range []string{"created", "unchanged", "configured", "unchanged"} {
		if i == 2 {
			must(t, m.label("a", "b"))
		}
		if got, err := Apply(t.Context(), busyClient{client, t}, *m); err != nil || got != want {
			t.Errorf("%d: %s %v, want %s", i, got, err, want)
		}
	}
}

const podFile = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: a, image: ledge.local/self}\n"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
