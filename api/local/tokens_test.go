package local

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/storage"
)

// sealKeys signs by putting a seal before the claims; real keys are pki's.
type sealKeys struct{ seal string }

func (k sealKeys) Sign(claims []byte) (string, error) { return k.seal + string(claims), nil }

func (k sealKeys) Verify(token string) ([]byte, error) {
	text, ok := strings.CutPrefix(token, k.seal)
	if !ok {
		return nil, errors.New("another seal")
	}
	return []byte(text), nil
}

// accounts is a client with tokens and a clock that the test sets.
func accounts(t *testing.T) (c *Client, now *time.Time) {
	t.Helper()
	db, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c, err = New(Config{Store: db, Tokens: &Tokens{Keys: sealKeys{"seal:"}, RootCA: []byte("the CA"), Now: func() time.Time { return clock }}})
	if err != nil {
		t.Fatal(err)
	}
	return c, &clock
}

func aPod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	return p
}

func (c *Client) mustPod(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	out, err := api.Create(t.Context(), c, api.Pods, p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func askToken(account string, pod *corev1.Pod, seconds int64, audiences ...string) *authenticationv1.TokenRequest {
	r := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: account}}
	r.Spec.Audiences = audiences
	if seconds > 0 {
		r.Spec.ExpirationSeconds = &seconds
	}
	if pod != nil {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	return r
}

var withToken = api.WriteOptions{Subresource: "token"}

// TestTokenLife: a token says who its pod is, until its time is over, or the pod or its account have gone.
func TestTokenLife(t *testing.T) {
	c, now := accounts(t)
	node, err := api.Create(t.Context(), c, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	p := aPod("p")
	p.Spec.NodeName = "a"
	pod := c.mustPod(t, p)
	make := func(r *authenticationv1.TokenRequest) string {
		t.Helper()
		obj, err := c.Create(t.Context(), api.ServiceAccounts, r, withToken)
		if err != nil {
			t.Fatal(err)
		}
		out := obj.(*authenticationv1.TokenRequest)
		if left := out.Status.ExpirationTimestamp.Sub(*now); left != time.Duration(*out.Spec.ExpirationSeconds)*time.Second {
			t.Errorf("it lasts %v", left)
		}
		return out.Status.Token
	}
	bound, free, other := make(askToken("default", pod, 600)), make(askToken("default", nil, 0)), make(askToken("default", pod, 0, "vault"))
	u, err := c.Authenticate(bound)
	if err != nil || u.Name != "system:serviceaccount:default:default" || u.UID == "" ||
		!slices.Equal(u.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}) ||
		u.Extra["authentication.kubernetes.io/node-name"][0] != "a" || u.Extra["authentication.kubernetes.io/node-uid"][0] != string(node.UID) ||
		u.Extra["authentication.kubernetes.io/pod-name"][0] != "p" || u.Extra["authentication.kubernetes.io/pod-uid"][0] != string(pod.UID) {
		t.Errorf("%+v %v", u, err)
	}
	if _, err := c.Authenticate(free); err != nil {
		t.Error(err)
	}
	if _, err := c.Authenticate(other); !errors.Is(err, ErrToken) {
		t.Errorf("a token for somebody else: %v", err)
	}
	if u, err := c.Authenticate(other, "x", "vault"); err != nil || u.Name == "" {
		t.Error(err)
	}
	*now = now.Add(599 * time.Second)
	if _, err := c.Authenticate(bound); err != nil {
		t.Error(err)
	}
	*now = now.Add(time.Second)
	if _, err := c.Authenticate(bound); !errors.Is(err, ErrToken) {
		t.Errorf("expired: %v", err)
	}
	*now = now.Add(-601*time.Second - clockSkew)
	if _, err := c.Authenticate(bound); !errors.Is(err, ErrToken) {
		t.Errorf("from the future: %v", err)
	}
	*now = now.Add(2 * clockSkew)

	// Another pod of that name is another pod.
	if _, err := c.Delete(t.Context(), api.Pods, "default", "p", api.DeleteOptions{Grace: new(int64)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Authenticate(bound); !errors.Is(err, ErrToken) {
			t.Errorf("its pod has gone: %v", err)
		}
		c.mustPod(t, aPod("p"))
		if _, err := c.Delete(t.Context(), api.Pods, "default", "p", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Delete(t.Context(), api.ServiceAccounts, "default", "default", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Authenticate(free); !errors.Is(err, ErrToken) {
		t.Errorf("its account is another: %v", err)
	}
}

// TestTokenForged: what is signed is still checked.
func TestTokenForged(t *testing.T) {
	c, now := accounts(t)
	sa, err := api.Get[*corev1.ServiceAccount](t.Context(), c, api.ServiceAccounts, "default", "default")
	if err != nil {
		t.Fatal(err)
	}
	good := claims{Audience: []string{tokenIssuer}, Issuer: tokenIssuer, From: now.Unix(), Expires: now.Unix() + 60,
		Subject: "system:serviceaccount:default:default",
		Bound:   boundClaims{Namespace: "default", Account: reference{"default", sa.UID}}}
	try := func(cl claims) error {
		data, err := json.Marshal(cl)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Authenticate("seal:" + string(data))
		return err
	}
	if err := try(good); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*claims){
		"issuer":         func(c *claims) { c.Issuer = "https://elsewhere" },
		"no audience":    func(c *claims) { c.Audience = nil },
		"subject":        func(c *claims) { c.Subject = "system:serviceaccount:kube-system:default" },
		"admin":          func(c *claims) { c.Subject = "admin" },
		"no account":     func(c *claims) { c.Bound.Account.Name, c.Subject = "none", "system:serviceaccount:default:none" },
		"another's uid":  func(c *claims) { c.Bound.Account.UID = "x" },
		"a pod not here": func(c *claims) { c.Bound.Pod = &reference{"p", "x"} },
		"a colon":        func(c *claims) { c.Bound.Namespace, c.Subject = "default:x", "system:serviceaccount:default:x:default" },
		"no end":         func(c *claims) { c.Expires = 0 },
	} {
		bad := good
		change(&bad)
		if err := try(bad); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, token := range []string{"", "x", "seal:", "seal:{", `seal:[]`, `seal:null`} {
		if _, err := c.Authenticate(token); !errors.Is(err, ErrToken) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// TestTokenRequests: who gets which token (N-1.36 for nodes).
func TestTokenRequests(t *testing.T) {
	c, _ := accounts(t)
	p := aPod("p")
	p.Spec.NodeName = "a"
	pod := c.mustPod(t, p)
	if _, err := api.Create(t.Context(), c, api.ServiceAccounts,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	node := func(name string) api.User {
		return api.User{Name: "system:node:" + name, Groups: []string{"system:nodes"}}
	}
	stale, unnamed := pod.DeepCopy(), pod.DeepCopy()
	stale.UID, unnamed.UID = "x", ""
	none := aPod("none")
	for _, ask := range []struct {
		what string
		who  *api.User
		r    *authenticationv1.TokenRequest
		want func(error) bool
	}{
		{"anybody, bound", nil, askToken("default", pod, 600), nil},
		{"anybody, bound by name", nil, askToken("default", unnamed, 600), nil},
		{"anybody, free", nil, askToken("default", nil, 1<<32), nil},
		{"too short", nil, askToken("default", nil, 599), apierrors.IsInvalid},
		{"too long", nil, askToken("default", nil, 1<<32+1), apierrors.IsInvalid},
		{"no account", nil, askToken("none", nil, 600), apierrors.IsNotFound},
		{"no pod", nil, askToken("default", none, 600), apierrors.IsNotFound},
		{"another pod of that name", nil, askToken("default", stale, 600), apierrors.IsConflict},
		{"another account", nil, askToken("other", pod, 600), apierrors.IsBadRequest},
		{"its node", ptr(node("a")), askToken("default", pod, 600), nil},
		{"its node, by name only", ptr(node("a")), askToken("default", unnamed, 600), apierrors.IsForbidden},
		{"its node, free", ptr(node("a")), askToken("default", nil, 600), apierrors.IsForbidden},
		{"another node", ptr(node("b")), askToken("default", pod, 600), apierrors.IsForbidden},
	} {
		ctx := t.Context()
		if ask.who != nil {
			ctx = api.WithUser(ctx, *ask.who)
		}
		_, err := c.Create(ctx, api.ServiceAccounts, ask.r, withToken)
		if ask.want == nil && err != nil || ask.want != nil && (err == nil || !ask.want(err)) {
			t.Errorf("%s: %v", ask.what, err)
		}
	}
	secret := askToken("default", pod, 600)
	secret.Spec.BoundObjectRef.Kind = "Secret"
	if _, err := c.Create(t.Context(), api.ServiceAccounts, secret, withToken); !apierrors.IsInvalid(err) {
		t.Errorf("bound to a Secret: %v", err)
	}
	if _, err := c.Create(t.Context(), api.ServiceAccounts, pod, withToken); !apierrors.IsBadRequest(err) {
		t.Errorf("a pod as a request: %v", err)
	}
	c.issuer.cfg, c.accounts.tokens = nil, nil
	if _, err := c.Create(t.Context(), api.ServiceAccounts, askToken("default", nil, 600), withToken); !apierrors.IsNotFound(err) {
		t.Errorf("without keys: %v", err)
	}
	if _, err := c.Authenticate("seal:{}"); !errors.Is(err, ErrToken) {
		t.Errorf("without keys: %v", err)
	}
}

// TestEveryNamespaceHas an account and the CA: the first ones, new ones, and again when somebody deletes or changes
// them; not those that go.
func TestEveryNamespaceHas(t *testing.T) {
	c, _ := accounts(t)
	if _, err := api.Create(t.Context(), c, api.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}); err != nil {
		t.Fatal(err)
	}
	has := func(ns string) bool {
		t.Helper()
		_, err := c.Get(t.Context(), api.ServiceAccounts, ns, "default")
		cm, cerr := api.Get[*corev1.ConfigMap](t.Context(), c, api.ConfigMaps, ns, "kube-root-ca.crt")
		return err == nil && cerr == nil && cm.Data["ca.crt"] == "the CA" && len(cm.Data) == 1
	}
	for _, ns := range []string{"default", "kube-system", "kube-public", "kube-node-lease", "new"} {
		if !has(ns) {
			t.Errorf("%s lacks something", ns)
		}
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: "kube-root-ca.crt"},
		Data: map[string]string{"ca.crt": "", "x": "y"}}
	if _, err := api.Update(t.Context(), c, api.ConfigMaps, cm); err != nil || !has("new") {
		t.Errorf("changed by hand: %v", err)
	}
	for _, k := range []struct {
		kind *api.Kind
		name string
	}{{api.ServiceAccounts, "default"}, {api.ConfigMaps, "kube-root-ca.crt"}} {
		if _, err := c.Delete(t.Context(), k.kind, "new", k.name, api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.restore:
		default:
			t.Errorf("nobody is told that %s has gone", k.name)
		}
	}
	if err := c.EnsureSystem(); err != nil || !has("new") {
		t.Errorf("deleted by hand: %v", err)
	}
	c.cfg.Tokens.RootCA = []byte("another CA")
	if err := c.EnsureSystem(); err != nil || has("new") {
		t.Errorf("the CA has changed: %v", err)
	}
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "new", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureSystem(); err != nil || has("new") {
		t.Errorf("in a namespace that has gone: %v", err)
	}
}

// TestAccountAdmission: which pods get which account and a token of it, and where.
func TestAccountAdmission(t *testing.T) {
	c, _ := accounts(t)
	no, yes := false, true
	for name, automount := range map[string]*bool{"quiet": &no, "other": nil} {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, AutomountServiceAccountToken: automount}
		if _, err := api.Create(t.Context(), c, api.ServiceAccounts, sa); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []struct {
		name  string
		edit  func(*corev1.Pod)
		who   string
		token bool
	}{
		{"plain", func(*corev1.Pod) {}, "default", true},
		{"old-spelling", func(p *corev1.Pod) { p.Spec.DeprecatedServiceAccount = "other" }, "other", true},
		{"account-says-no", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "quiet" }, "quiet", false},
		{"pod-says-yes", func(p *corev1.Pod) { p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = "quiet", &yes }, "quiet", true},
		{"pod-says-no", func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &no }, "default", false},
		{"own-mount", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: tokenDir}}
		}, "default", false},
	} {
		p := aPod(k.name)
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", VolumeMounts: nil}}
		k.edit(p)
		if k.name == "own-mount" {
			p.Spec.InitContainers = nil
		}
		got := c.mustPod(t, p)
		if got.Spec.ServiceAccountName != k.who || got.Spec.DeprecatedServiceAccount != k.who {
			t.Errorf("%s: account %q", k.name, got.Spec.ServiceAccountName)
		}
		i := slices.IndexFunc(got.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access-") })
		if (i >= 0) != k.token {
			t.Errorf("%s: volumes %+v", k.name, got.Spec.Volumes)
			continue
		}
		if i < 0 {
			continue
		}
		s := got.Spec.Volumes[i].Projected.Sources
		if *s[0].ServiceAccountToken.ExpirationSeconds != 3607 || s[0].ServiceAccountToken.Path != "token" ||
			s[1].ConfigMap.Name != "kube-root-ca.crt" ||
			s[2].DownwardAPI.Items[0].FieldRef.FieldPath != "metadata.namespace" || *got.Spec.Volumes[i].Projected.DefaultMode != 0o644 {
			t.Errorf("%s: %+v", k.name, s)
		}
		for _, con := range append(got.Spec.InitContainers, got.Spec.Containers...) {
			if m := con.VolumeMounts; len(m) != 1 || m[0].MountPath != tokenDir || !m[0].ReadOnly || m[0].Name != got.Spec.Volumes[i].Name {
				t.Errorf("%s: container %s has %+v", k.name, con.Name, m)
			}
		}
		// Who replaces it by its manifest need not know of any of this.
		p.ResourceVersion, p.UID, p.Labels = "", "", map[string]string{"a": "b"}
		if after, err := api.Update(t.Context(), c, api.Pods, p); err != nil || len(after.Spec.Volumes) != len(got.Spec.Volumes) {
			t.Errorf("%s: replaced: %v", k.name, err)
		}
	}
	p := aPod("nobody")
	p.Spec.ServiceAccountName = "nobody"
	_, err := api.Create(t.Context(), c, api.Pods, p)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(),
		`error looking up service account default/nobody: serviceaccount "nobody" not found`) {
		t.Errorf("an account that is not there: %v", err)
	}
	c.issuer.cfg, c.accounts.tokens = nil, nil
	if got := c.mustPod(t, aPod("without-keys")); len(got.Spec.Volumes) > 0 {
		t.Errorf("without keys: %+v", got.Spec.Volumes)
	}
}

// TestTokensOfRevokedBoards: what a board has got counts no more once it is revoked, nor when another has its name; what that one
// gets, and what others have, does.
func TestTokensOfRevokedBoards(t *testing.T) {
	c, _ := accounts(t)
	ever, still := map[string]bool{}, map[string]bool{}
	c.cfg.Tokens.Revoked = func(node string) (bool, bool) { return ever[node], still[node] }
	node := func(name string) {
		t.Helper()
		if _, err := api.Create(t.Context(), c, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	tokenOn := func(pod *corev1.Pod) string {
		t.Helper()
		obj, err := c.Create(t.Context(), api.ServiceAccounts, askToken("default", pod, 600), withToken)
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*authenticationv1.TokenRequest).Status.Token
	}
	on := func(name, node string) *corev1.Pod {
		p := aPod(name)
		p.Spec.NodeName = node
		return c.mustPod(t, p)
	}
	counts := func(when, token string, want bool) {
		t.Helper()
		if _, err := c.Authenticate(token); (err == nil) != want {
			t.Errorf("%s: %v, want %v", when, err, want)
		}
	}
	nameless := on("early", "a")
	early := tokenOn(nameless) // there is no Node yet
	node("a")
	node("b")
	pod := on("p", "a")
	stolen, elsewhere, free := tokenOn(pod), tokenOn(on("q", "b")), tokenOn(nil)
	for _, token := range []string{early, stolen, elsewhere, free} {
		counts("nothing is revoked", token, true)
	}
	ever["a"], still["a"] = true, true
	counts("it is revoked", stolen, false)
	counts("it is revoked", early, false)
	counts("of another board", elsewhere, true)
	counts("of none", free, true)
	counts("asked for afterwards", tokenOn(pod), false)

	if _, err := c.Delete(t.Context(), api.Nodes, "", "a", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	still["a"] = false
	counts("another has joined, and has no Node yet", stolen, false)
	node("a")
	counts("another has its place", stolen, false)
	counts("another has its place", early, false)
	counts("what that one gets", tokenOn(pod), true)
}

// TestTokensOfTheDeleted: a finalizer that holds a pod or an account holds no tokens, old or new, longer than a minute after its time.
func TestTokensOfTheDeleted(t *testing.T) {
	c, now := accounts(t)
	c.cfg.Now = func() time.Time { return *now }
	c.issuer.clock = c.cfg.Now
	held := func(o api.Object) { o.SetFinalizers([]string{"example.com/x"}) }
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "zombie"}}
	held(sa)
	if _, err := api.Create(t.Context(), c, api.ServiceAccounts, sa); err != nil {
		t.Fatal(err)
	}
	pod := aPod("p")
	held(pod)
	pod.Spec.NodeName = "a"
	pod.Spec.TerminationGracePeriodSeconds = ptr(int64(100))
	pod = c.mustPod(t, pod)
	ask := func(account string, pod *corev1.Pod) (string, error) {
		obj, err := c.Create(t.Context(), api.ServiceAccounts, askToken(account, pod, 3600), withToken)
		if err != nil {
			return "", err
		}
		return obj.(*authenticationv1.TokenRequest).Status.Token, nil
	}
	for _, tc := range []struct {
		what, account string
		pod           *corev1.Pod
		kind          *api.Kind
		lasts         time.Duration
	}{
		{"account", "zombie", nil, api.ServiceAccounts, time.Minute},
		{"pod", "default", pod, api.Pods, 160 * time.Second}, // its grace first
	} {
		token, err := ask(tc.account, tc.pod)
		if err != nil {
			t.Fatal(err)
		}
		name := tc.account
		if tc.pod != nil {
			name = tc.pod.Name
		}
		if _, err := c.Delete(t.Context(), tc.kind, "default", name, api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, pass := range []time.Duration{0, tc.lasts, time.Second} {
			*now = now.Add(pass)
			_, old := c.Authenticate(token)
			_, fresh := ask(tc.account, tc.pod)
			if counts := pass != time.Second; (old == nil) != counts || (fresh == nil) != counts || !counts && !apierrors.IsConflict(fresh) {
				t.Errorf("%s, %v on: the old token %v, a new one %v", tc.what, pass, old, fresh)
			}
		}
	}
}

// TestTokenLifeBound: who asks for centuries is given a year, and told so.
func TestTokenLifeBound(t *testing.T) {
	c, now := accounts(t)
	var heard []string
	obj, err := c.Create(api.WithWarnings(t.Context(), once(&heard)), api.ServiceAccounts, askToken("default", nil, 1<<32), withToken)
	if err != nil || len(heard) != 1 || heard[0] != "requested expiration of 4294967296 seconds shortened to 31536000 seconds" {
		t.Fatal(err, heard)
	}
	r := obj.(*authenticationv1.TokenRequest)
	if got := r.Status.ExpirationTimestamp.Sub(*now); got != mostTokenLife || *r.Spec.ExpirationSeconds != 31536000 {
		t.Errorf("it lasts %v", got)
	}
	*now = now.Add(mostTokenLife)
	if _, err := c.Authenticate(r.Status.Token); err == nil {
		t.Error("it lasts longer")
	}
}
