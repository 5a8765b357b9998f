package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// oneAnswer is a control plane that answers one list, and then nothing.
type oneAnswer struct {
	api.Client
	items []api.Object
	late  time.Duration
}

func (c oneAnswer) List(context.Context, *api.Kind, api.ListOptions) (api.List, error) {
	time.Sleep(c.late)
	return api.List{Items: c.items}, nil
}

func (c oneAnswer) Watch(ctx context.Context, _ *api.Kind, _ api.WatchOptions) (api.Watch, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A container begins with the Services of its namespace and that of the API, once the board has heard of them, and asks nobody.
func TestServicesOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		service := func(namespace, name string) api.Object {
			return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		}
		view := api.NewView[*corev1.Service](oneAnswer{late: patience + time.Second, items: []api.Object{service("default", "kubernetes"),
			service("default", "other"), service("shop", "web"), service("shop", "db")}}, api.Services, api.Selection{})
		needs := specNeeds{a: &Agent{cfg: Config{Services: view}}}
		go view.Run(ctx)
		if _, err := needs.Services(ctx, "shop"); err == nil || !strings.Contains(err.Error(), "not yet been read") {
			t.Errorf("before anything was heard: %v", err)
		}
		list, err := needs.Services(ctx, "shop") // it is heard while this one waits
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		if slices.Sort(names); err != nil || !slices.Equal(names, []string{"db", "kubernetes", "web"}) {
			t.Errorf("%q, %v", names, err)
		}
		if list, err = (specNeeds{a: &Agent{}}).Services(ctx, "shop"); err != nil || list != nil {
			t.Errorf("where nobody follows them: %v, %v", list, err)
		}
	})
}
