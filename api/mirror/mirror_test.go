package mirror

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
	"ledge/api/apitest"
	"ledge/api/local"
	"ledge/api/networking"
	"ledge/storage"
)

// cable is a server behind a link that can be cut, and that can be another server.
type cable struct {
	api.Client
	cut atomic.Pointer[error]
	ask func(kind *api.Kind, list *api.List) // changes what the server says
	has map[string]api.Object                // besides, by name
}

func (c *cable) Get(ctx context.Context, kind *api.Kind, namespace, name string) (api.Object, error) {
	if err := c.broken(); err != nil {
		return nil, err
	}
	if o := c.has[name]; o != nil {
		return copyOf(o), nil
	}
	return c.Client.Get(ctx, kind, namespace, name)
}

func (c *cable) down(err error) { c.cut.Store(&err) }
func (c *cable) up()            { c.cut.Store(nil) }

func (c *cable) broken() error {
	if err := c.cut.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *cable) List(ctx context.Context, kind *api.Kind, opts api.ListOptions) (api.List, error) {
	if err := c.broken(); err != nil {
		return api.List{}, err
	}
	out, err := c.Client.List(ctx, kind, opts)
	if c.ask != nil {
		c.ask(kind, &out)
	}
	return out, err
}

func (c *cable) Watch(ctx context.Context, kind *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	if err := c.broken(); err != nil {
		return nil, err
	}
	return c.Client.Watch(ctx, kind, opts)
}

func (c *cable) Create(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := c.broken(); err != nil {
		return nil, err
	}
	if r, ok := obj.(*authenticationv1.TokenRequest); ok {
		r = r.DeepCopy()
		r.Status.Token = fmt.Sprintf("token of %s, made at %d", r.Spec.BoundObjectRef.UID, time.Now().UnixNano())
		return r, nil
	}
	return c.Client.Create(ctx, kind, obj, opts)
}

var uplinkDown = apierrors.NewServiceUnavailable("no route to host")

// rig is a board behind a cable.
type rig struct {
	t      *testing.T
	server *local.Client
	cable  *cable
	db     *storage.Store // the board's
	m      *Client
}

func openStore(t *testing.T) *storage.Store {
	t.Helper()
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server, err := local.New(local.Config{Store: openStore(t)})
	must(t, err)
	r := &rig{t: t, server: server, cable: &cable{Client: server}, db: openStore(t)}
	r.reboot()
	return r
}

// reboot is the next process over the same table.
func (r *rig) reboot() {
	r.t.Helper()
	var err error
	r.m, err = New(Config{Client: r.cable, Node: "pi1", Table: r.db.Table("mirror"), Retry: 10 * time.Millisecond})
	must(r.t, err)
}

var mine = api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", "pi1")}

func (r *rig) pod(name string, secrets ...string) *corev1.Pod {
	r.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	p.Spec.NodeName, p.Spec.Containers = "pi1", []corev1.Container{{Name: "c", Image: "i"}}
	for _, s := range secrets {
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: s, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: s}}})
	}
	out, err := api.Create(r.t.Context(), r.server, api.Pods, p)
	must(r.t, err)
	return out
}

func (r *rig) list(kind *api.Kind, sel api.Selection) (names string, revision string) {
	r.t.Helper()
	out, err := r.m.List(r.t.Context(), kind, api.ListOptions{Selection: sel})
	must(r.t, err)
	seen := map[string]bool{}
	for _, o := range out.Items {
		seen[o.GetName()] = true
	}
	for _, n := range []string{"a", "b", "c", "s"} {
		if seen[n] {
			names += n
		}
	}
	if len(seen) != len(names) {
		r.t.Fatalf("listed %v", seen)
	}
	return names, out.Revision
}

func (r *rig) says(what, want string) {
	r.t.Helper()
	if got, _ := r.list(api.Pods, mine); got != want {
		r.t.Errorf("%s: pods %q, want %q", what, got, want)
	}
}

func (r *rig) delete(name string) {
	r.t.Helper()
	now := int64(0)
	_, err := r.server.Delete(r.t.Context(), api.Pods, "default", name, api.DeleteOptions{Grace: &now})
	must(r.t, err)
}

// TestRebootWithoutUplink: what was told last is said again, by the next process too, whatever kind of silence it is.
func TestRebootWithoutUplink(t *testing.T) {
	r := newRig(t)
	r.cable.down(uplinkDown)
	if _, err := r.m.List(t.Context(), api.Pods, api.ListOptions{Selection: mine}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("nothing was ever told: %v", err)
	}
	r.cable.up()
	r.pod("a")
	r.says("at first", "a")
	for what, err := range map[string]error{"cut": uplinkDown, "slow": apierrors.NewTimeoutError("x", 1),
		"a server that does not know us": apierrors.NewUnauthorized("no board named \"pi1\" has joined"),
		"another's rights":               apierrors.NewForbidden(api.Pods.GR(), "", nil)} {
		r.cable.down(err)
		r.says(what, "a")
		r.reboot()
		r.says(what+", after a reboot", "a")
	}
	if _, err := r.m.List(t.Context(), api.Pods, api.ListOptions{}); err == nil {
		t.Error("a selection that was never asked for is answered")
	}
	// What is said again ends as soon as the server can be asked.
	_, revision := r.list(api.Pods, mine)
	w, err := r.m.Watch(t.Context(), api.Pods, api.WatchOptions{Selection: mine, Revision: revision})
	must(t, err)
	defer w.Close()
	if e, err := w.Next(); !apierrors.IsResourceExpired(err) {
		t.Errorf("%v %v", e, err)
	}
	r.cable.up()
	r.delete("a")
	r.says("back", "")
	r.cable.down(uplinkDown)
	r.reboot()
	r.says("no pod is an answer too", "")
}

// TestWatchIsRemembered: a view over the mirror sees every change, and so does the next process.
func TestWatchIsRemembered(t *testing.T) {
	r := newRig(t)
	_, revision := r.list(api.Pods, mine)
	w, err := r.m.Watch(t.Context(), api.Pods, api.WatchOptions{Selection: mine, Revision: revision})
	must(t, err)
	defer w.Close()
	next := func(want api.EventType) {
		t.Helper()
		if e, err := w.Next(); err != nil || e.Type != want {
			t.Fatalf("%v %v, want %s", e, err, want)
		}
	}
	a := r.pod("a")
	next(api.Added)
	r.pod("b")
	next(api.Added)
	a.Status.Phase = corev1.PodSucceeded
	_, err = api.UpdateStatus(t.Context(), r.server, api.Pods, a)
	must(t, err)
	next(api.Modified)
	r.delete("b")
	next(api.Deleted)
	r.cable.down(uplinkDown)
	r.reboot()
	r.says("after a reboot", "a")
	out, err := r.m.List(t.Context(), api.Pods, api.ListOptions{Selection: mine})
	must(t, err)
	if p := out.Items[0].(*corev1.Pod); p.Status.Phase != corev1.PodSucceeded || p.Kind != "Pod" {
		t.Errorf("a pod that has had its run would run again: %s %s", p.Kind, p.Status.Phase)
	}
}

// TestOlderServer: a server that has forgotten pods does not end them.
func TestOlderServer(t *testing.T) {
	r := newRig(t)
	r.pod("a")
	b := r.pod("b")
	r.says("at first", "ab")
	r.cable.ask = func(kind *api.Kind, l *api.List) {
		if kind == api.Pods {
			l.Items, l.Revision = nil, "1"
		}
	}
	r.says("an empty server", "ab")
	r.reboot()
	r.says("after a reboot", "ab")
	r.cable.ask = func(kind *api.Kind, l *api.List) { l.Items, l.Revision = nil, "999999" }
	r.says("and once it has done more than was seen", "ab")
	// Its status is not taken for a proof of its end.
	r.cable.Client = mustLocal(t)
	if _, err := api.UpdateStatus(t.Context(), r.m, api.Pods, b); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the status of a forgotten pod: %v", err)
	}
	// The server knows them again: from then on it decides.
	r.cable.Client, r.cable.ask = r.server, nil
	r.says("the right server", "ab")
	r.delete("a")
	r.cable.ask = func(_ *api.Kind, l *api.List) { l.Revision = "9999999" }
	r.says("it deletes", "b")
}

func mustLocal(t *testing.T) *local.Client {
	t.Helper()
	c, err := local.New(local.Config{Store: openStore(t)})
	must(t, err)
	return c
}

// TestSecretsGoWithTheirPod: nothing is kept that no pod names.
func TestSecretsGoWithTheirPod(t *testing.T) {
	r := newRig(t)
	r.pod("a", "s")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}, StringData: map[string]string{"k": "mellon"}}
	_, err := api.Create(t.Context(), r.server, api.Secrets, secret)
	must(t, err)
	sel := api.Selection{Namespace: "default", Fields: fields.OneTermEqualSelector("metadata.name", "s")}
	r.says("at first", "a")
	r.list(api.Secrets, sel)
	for _, other := range []api.Selection{{}, {Namespace: "default"}, {Fields: sel.Fields}} { // a person looks around
		_, err := r.m.List(t.Context(), api.Secrets, api.ListOptions{Selection: other})
		must(t, err)
		_, err = r.m.List(t.Context(), api.Pods, api.ListOptions{Selection: other})
		must(t, err)
	}
	if len(r.m.shelves) != 2 {
		t.Errorf("%d answers are remembered, want that about the pods and that about their secret", len(r.m.shelves))
	}
	r.cable.down(uplinkDown)
	r.reboot()
	if got, _ := r.list(api.Secrets, sel); got != "s" {
		t.Errorf("secrets %q", got)
	}
	r.cable.up()
	r.delete("a")
	r.says("its pod is gone", "")
	rows, _, err := r.db.Table("mirror").All()
	must(t, err)
	for key, data := range rows {
		if strings.HasPrefix(key, "secrets") || strings.Contains(string(data), "mellon") {
			t.Errorf("still kept: %s", key)
		}
	}
}

// TestClaimsAreRemembered: that of a pod here and its volume, while the pod is here; nobody else's.
func TestClaimsAreRemembered(t *testing.T) {
	r := newRig(t)
	r.pod("a")
	r.cable.ask = func(kind *api.Kind, list *api.List) {
		for _, o := range list.Items {
			if p, ok := o.(*corev1.Pod); ok {
				p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			}
		}
	}
	claim := func(name, volume string) api.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	r.cable.has = map[string]api.Object{"data": claim("data", "pv-1"), "other": claim("other", "pv-2"),
		"pv-1": &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}},
		"pv-2": &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-2"}}}
	r.says("at first", "a")
	get := func(kind *api.Kind, namespace, name string, want bool) {
		t.Helper()
		o, err := r.m.Get(t.Context(), kind, namespace, name)
		if (err == nil) != want || want && o.GetName() != name {
			t.Errorf("%s %s: %v", kind.Singular, name, err)
		}
	}
	all := func(mine, others bool) {
		t.Helper()
		get(api.PersistentVolumeClaims, "default", "data", mine)
		get(api.PersistentVolumes, "", "pv-1", mine)
		get(api.PersistentVolumeClaims, "default", "other", others)
		get(api.PersistentVolumes, "", "pv-2", others)
	}
	all(true, true)
	r.cable.down(uplinkDown)
	r.reboot()
	all(true, false)
	r.cable.up()
	r.says("again", "a")
	r.delete("a")
	r.says("its pod is gone", "")
	r.cable.down(uplinkDown)
	all(false, false)
	rows, _, err := r.db.Table("mirror").All()
	must(t, err)
	for key := range rows {
		if strings.HasPrefix(key, "persistent") {
			t.Errorf("still kept: %s", key)
		}
	}
}

// TestTokens: a pod can begin without the server, and each pod costs one write.
func TestTokens(t *testing.T) {
	r := newRig(t)
	p := r.pod("a")
	r.says("at first", "a")
	ask := func() (string, error) {
		req := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
		req.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", Name: p.Name, UID: p.UID}
		out, err := r.m.Create(t.Context(), api.ServiceAccounts, req, api.WriteOptions{Subresource: "token"})
		if err != nil {
			return "", err
		}
		return out.(*authenticationv1.TokenRequest).Status.Token, nil
	}
	first, err := ask()
	must(t, err)
	second, err := ask()
	must(t, err)
	if first == second {
		t.Error("while the server answers its tokens are new")
	}
	r.cable.down(uplinkDown)
	r.reboot()
	if got, err := ask(); err != nil || got != first {
		t.Errorf("%q %v, want %q", got, err, first)
	}
	r.cable.up()
	r.delete("a")
	r.says("its pod is gone", "")
	r.cable.down(uplinkDown)
	if got, err := ask(); err == nil {
		t.Errorf("the token of a pod that is gone: %q", got)
	}
}

// TestStatusesAreNotWritten: a card does not bear each change of a status.
func TestStatusesAreNotWritten(t *testing.T) {
	p := &corev1.Pod{}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true}}
	q := p.DeepCopy()
	q.ResourceVersion, q.Status.ContainerStatuses[0].Ready, q.Status.PodIP = "7", false, "10.0.0.1"
	if !same(p, q) {
		t.Error("a status that the next start finds out itself")
	}
	for what, change := range map[string]func(*corev1.Pod){
		"restarts": func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ },
		"phase":    func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"spec":     func(p *corev1.Pod) { p.Spec.NodeName = "x" }, "deletion": func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
	} {
		q := p.DeepCopy()
		change(q)
		if same(p, q) {
			t.Errorf("%s: it is not written", what)
		}
	}
}

// TestDamagedRow: a list that lacks one pod is not said again.
func TestDamagedRow(t *testing.T) {
	r := newRig(t)
	r.pod("a")
	r.pod("b")
	r.says("at first", "ab")
	must(t, r.db.Table("mirror").Put(shelfKey(api.Pods, mine)+split+"default/a", []byte("{")))
	r.cable.down(uplinkDown)
	r.reboot()
	if out, err := r.m.List(t.Context(), api.Pods, api.ListOptions{Selection: mine}); err == nil {
		t.Errorf("a list that lacks a pod: %v", out)
	}
}

func TestConformanceOfTheMirror(t *testing.T) {
	apitest.Run(t, func(t *testing.T) api.Client {
		m, err := New(Config{Client: mustLocal(t), Node: "pi1", Table: openStore(t).Table("mirror")})
		must(t, err)
		return m
	})
}

// TestBoardsAreRemembered: a board that comes back without the control plane still knows where others' pods are.
func TestBoardsAreRemembered(t *testing.T) {
	r := newRig(t)
	sel := api.Selection{Namespace: "kube-system", Fields: fields.OneTermEqualSelector("metadata.name", api.PodNetworksName)}
	look := func() string {
		t.Helper()
		out, err := r.m.List(t.Context(), api.ConfigMaps, api.ListOptions{Selection: sel})
		if err != nil || len(out.Items) != 1 {
			return fmt.Sprint(out.Items, err)
		}
		return out.Items[0].(*corev1.ConfigMap).Data["there"]
	}
	_, err := api.Create(t.Context(), r.server, api.ConfigMaps, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: api.PodNetworksName},
		Data:       map[string]string{"there": "10.42.2.0/24 via 10.99.0.2"}})
	must(t, err)
	want := look()
	r.pod("a")
	r.list(api.Pods, mine) // and what no pod names is forgotten
	r.cable.down(uplinkDown)
	r.reboot()
	if got := look(); got != want || got != "10.42.2.0/24 via 10.99.0.2" {
		t.Errorf("%q, was %q", got, want)
	}
}

// TestPoliciesAreRemembered: a board whose control plane is away after a reboot knows what its pods may (N-14.4).
func TestPoliciesAreRemembered(t *testing.T) {
	r := newRig(t)
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
	_, err := r.server.Create(t.Context(), networking.NetworkPolicies, p, api.WriteOptions{})
	must(t, err)
	r.pod("b", "s")
	for _, kind := range []*api.Kind{networking.NetworkPolicies, api.Namespaces} {
		_, err := r.m.List(t.Context(), kind, api.ListOptions{})
		must(t, err)
	}
	r.list(api.Pods, mine) // which forgets what no pod names
	r.cable.down(uplinkDown)
	r.reboot()
	if got, _ := r.list(networking.NetworkPolicies, api.Selection{}); got != "a" {
		t.Errorf("policies %q", got)
	}
	out, err := r.m.List(t.Context(), api.Namespaces, api.ListOptions{})
	if must(t, err); len(out.Items) == 0 {
		t.Error("no namespaces")
	}
	r.cable.down(apierrors.NewNotFound(networking.NetworkPolicies.GR(), ""))
	if got, _ := r.list(networking.NetworkPolicies, api.Selection{}); got != "a" {
		t.Errorf("of a control plane without policies: %q", got)
	}
	if _, err := r.m.List(t.Context(), networking.NetworkPolicies, api.ListOptions{Selection: api.Selection{Namespace: "default"}}); err == nil {
		t.Error("what somebody looks at besides is not remembered")
	}
}
