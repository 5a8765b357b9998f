package httpd_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/api/httpd"
)

// crowd is a client whose deletions wait until there are so many, and counts how many there were at most.
type crowd struct {
	api.Client
	want  int64
	in    atomic.Int64
	most  atomic.Int64
	there chan struct{}
	once  sync.Once
}

func (c *crowd) Delete(ctx context.Context, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (api.Object, error) {
	n := c.in.Add(1)
	defer c.in.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	if n >= c.want {
		c.once.Do(func() { close(c.there) })
	}
	select {
	case <-c.there:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if name == "m15" {
		panic("boom")
	}
	if name == "m13" {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, name, errors.New("it is dear to somebody"))
	}
	return c.Client.Delete(ctx, kind, namespace, name, opts)
}

// TestDeleteCollectionSharesCommits: writers that wait for each other share a commit, so the objects of a collection go many at a time,
// but not all. One that may not go ends it, and is named. A panic is the request's, as all are.
func TestDeleteCollectionSharesCommits(t *testing.T) {
	store := serve(t, httpd.Config{}).store
	c := &crowd{Client: store, want: 64, there: make(chan struct{})}
	f := serve(t, httpd.Config{Client: c})
	for i := range 200 {
		f.must(201, "POST", mapsPath, configMap("n"+strconv.Itoa(i), ""))
	}
	var list corev1.ConfigMapList
	f.must(200, "DELETE", mapsPath, "").into(t, &list)
	if most := c.most.Load(); most != c.want || len(list.Items) != 200 {
		t.Errorf("%d at a time, want %d; %d answered", most, c.want, len(list.Items))
	}
	f.must(200, "GET", mapsPath, "").into(t, &list)
	if len(list.Items) != 0 {
		t.Errorf("left %d", len(list.Items))
	}
	f.must(201, "POST", mapsPath, configMap("m13", ""))
	f.must(201, "POST", mapsPath, configMap("m14", ""))
	if s := f.must(403, "DELETE", mapsPath, "").status(t); !strings.Contains(s.Message, `"m13" is forbidden: it is dear to somebody`) {
		t.Error(s.Message)
	}
	f.must(201, "POST", mapsPath, configMap("m15", ""))
	if s := f.must(500, "DELETE", mapsPath+"?fieldSelector=metadata.name%3Dm15", "").status(t); !strings.Contains(s.Message, "panicked: boom") {
		t.Error(s.Message)
	}
	f.must(200, "GET", mapsPath+"/m15", "")
}
