package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/board"
)

// doing changes something that a form names, and says where to look then.
type doing func(v *visit, form url.Values) (next string, err error)

// acts are what the page can do where that is switched on.
var acts = map[string]doing{
	"/act/delete": deletePod, "/act/restart": restart, "/act/cordon": cordon(true), "/act/uncordon": cordon(false), "/act/drain": drain,
	"/act/shutdown": shutdown, "/act/cancel": cancelShutdown,
}

// restartable are kinds whose pods are replaced when their template says that they were restarted.
var restartable = []*api.Kind{apps.Deployments, apps.StatefulSets, apps.DaemonSets}

func pathOf(s string) string { return url.PathEscape(s) }

// act carries out what a form says, if the form is one of ours.
func (p *Page) act(w http.ResponseWriter, r *http.Request, do doing) {
	v := p.visit(r)
	if err := r.ParseForm(); err != nil {
		fail(w, r, apierrors.NewBadRequest("the form cannot be read: "+err.Error()))
		return
	}
	if !same(r.PostForm.Get("form"), v.form) {
		fail(w, r, apierrors.NewForbidden(thing, "", errors.New("this form is not of this session: load the page again")))
		return
	}
	if r.PostForm.Get("sure") != "yes" && !slices.Contains(harmless, r.URL.Path) {
		p.askSure(w, r, v)
		return
	}
	next, err := do(v, r.PostForm)
	if p.c.Told != nil {
		p.c.Told("somebody did something by the page", "what", strings.TrimPrefix(r.URL.Path, "/act/"), "object",
			strings.Trim(r.PostForm.Get("namespace")+"/"+r.PostForm.Get("name"), "/"), "from", r.RemoteAddr, "err", err)
	}
	if err != nil {
		fail(w, r, err)
		return
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// harmless acts are done at once: another one takes them back.
var harmless = []string{"/act/cordon", "/act/uncordon", "/act/cancel"}

// askSure asks once more, for those whose browser runs no script.
func (p *Page) askSure(w http.ResponseWriter, r *http.Request, v *visit) {
	parts := []any{hidden("sure", "yes")}
	for _, name := range []string{"kind", "namespace", "name", "reboot"} {
		if value := r.PostForm.Get(name); value != "" {
			parts = append(parts, hidden(name, value))
		}
	}
	what := strings.TrimPrefix(r.URL.Path, "/act/")
	question := fmt.Sprintf("Do you mean it? %s %s", what, strings.Trim(r.PostForm.Get("namespace")+"/"+r.PostForm.Get("name"), "/"))
	p.write(w, r, http.StatusOK, "Sure?", []markup{el("p", question), form(r.URL.Path, v.form, "", append(parts, button("Yes, "+what, "grave"))...),
		el("p", link("/", "No, to the board"))}, false)
}

func deletePod(v *visit, f url.Values) (string, error) {
	_, err := v.api.Delete(v.ctx, api.Pods, f.Get("namespace"), f.Get("name"), api.DeleteOptions{})
	return "/pods", err
}

// restart does what 'kubectl rollout restart' does.
func restart(v *visit, f url.Values) (string, error) {
	i := slices.IndexFunc(restartable, func(k *api.Kind) bool { return k.Resource == f.Get("kind") })
	if i < 0 {
		return "", apierrors.NewBadRequest(fmt.Sprintf("%q cannot be restarted", f.Get("kind")))
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{"kubectl.kubernetes.io/restartedAt": v.now.Format(time.RFC3339)}}}}})
	if err != nil {
		return "", err
	}
	_, err = v.api.Patch(v.ctx, restartable[i], f.Get("namespace"), f.Get("name"),
		api.Patch{Type: types.StrategicMergePatchType, Data: patch}, api.WriteOptions{Manager: "ledge-page"})
	return "/workloads", err
}

func cordon(yes bool) doing {
	return func(v *visit, f url.Values) (string, error) {
		_, err := v.api.Patch(v.ctx, api.Nodes, "", f.Get("name"), api.Patch{Type: types.MergePatchType,
			Data: fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, yes)}, api.WriteOptions{Manager: "ledge-page"})
		return "/", err
	}
}

// drain cordons a board and evicts its pods once, those of daemons and of files aside. What a budget keeps stays, and is said.
func drain(v *visit, f url.Values) (string, error) {
	if _, err := cordon(true)(v, f); err != nil {
		return "", err
	}
	objs, _, err := v.list(api.Pods, api.Selection{Fields: fields.SelectorFromSet(fields.Set{"spec.nodeName": f.Get("name")})})
	if err != nil {
		return "", err
	}
	var kept []error
	for _, o := range objs {
		pod, ok := o.(*corev1.Pod)
		if owner := metav1.GetControllerOf(o); !ok || owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node") ||
			pod.Annotations[corev1.MirrorPodAnnotationKey] != "" || pod.DeletionTimestamp != nil {
			continue
		}
		_, err := v.api.Create(v.ctx, api.Pods, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}},
			api.WriteOptions{Subresource: "eviction"})
		if err != nil && !apierrors.IsNotFound(err) {
			kept = append(kept, fmt.Errorf("%s/%s stays: %w", pod.Namespace, pod.Name, err))
		}
	}
	if len(kept) > 0 {
		return "", apierrors.NewConflict(thing, f.Get("name"), errors.Join(kept...))
	}
	return "/", nil
}

func shutdown(v *visit, f url.Values) (string, error) {
	q := url.Values{"in": {"0s"}, "reboot": {fmt.Sprint(f.Get("reboot") == "true")}}
	return "/power", v.api.Ask(v.ctx, http.MethodPost, board.ShutdownPath+"?"+q.Encode(), nil, nil)
}

func cancelShutdown(v *visit, _ url.Values) (string, error) {
	return "/power", v.api.Ask(v.ctx, http.MethodDelete, board.ShutdownPath, nil, nil)
}
