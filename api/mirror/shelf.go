package mirror

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/networking"
)

// shelf is what one selection was answered.
type shelf struct {
	kind *api.Kind
	rows map[string]row // by namespace/name
}

// row is an object as it stands on disk.
type row struct {
	Kept   bool            `json:"kept,omitempty"` // an older server does not know it
	Object json.RawMessage `json:"object"`
	obj    api.Object
}

// Keys on disk are the shelf, a line feed, and the name; the shelf itself has no name, and its value is the revision.
const split = "\n"

func shelfKey(kind *api.Kind, sel api.Selection) string {
	key := kind.Resource + " " + sel.Namespace
	for _, s := range []fmt.Stringer{sel.Labels, sel.Fields} {
		key += " "
		if s != nil {
			key += s.String()
		}
	}
	return key
}

func (s *shelf) list() []api.Object {
	var out []api.Object
	for _, r := range s.rows {
		out = append(out, copyOf(r.obj))
	}
	return out
}

func copyOf(o api.Object) api.Object { return o.DeepCopyObject().(api.Object) }

// shelf finds or makes one. That it was answered at all is remembered too: no object is an answer.
func (c *Client) shelf(kind *api.Kind, key string) *shelf {
	s := c.shelves[key]
	if s == nil {
		s = &shelf{kind: kind, rows: map[string]row{}}
		c.shelves[key] = s
		c.mark(key)
	}
	return s
}

func (c *Client) mark(key string) {
	c.disk(c.cfg.Table.Put(key+split, []byte(strconv.FormatUint(c.seen, 10))))
}

// put remembers an object. What was there before is written again only if a reboot would miss the difference: a card must
// not bear each change of a status.
func (c *Client) put(key string, s *shelf, old map[string]row, obj api.Object) {
	name := api.Key(obj).String()
	before, was := old[name]
	r := row{obj: copyOf(obj), Object: before.Object}
	s.rows[name] = r
	if was && !before.Kept && same(before.obj, obj) {
		return
	}
	c.write(key, name, r)
	if s.kind == api.Pods {
		c.mark(key)
	}
}

func (c *Client) write(key, name string, r row) {
	var err error
	if r.Object, err = json.Marshal(r.obj); err == nil {
		var data []byte
		if data, err = json.Marshal(r); err == nil {
			err = c.cfg.Table.Put(key+split+name, data)
		}
	}
	c.disk(err)
}

func (c *Client) remove(key, name string) { c.disk(c.cfg.Table.Delete(key + split + name)) }

// disk: a full disk stops nothing. What is not on it is not there after a reboot, no more.
func (c *Client) disk(err error) {
	if err != nil {
		slog.Warn("cannot remember what the control plane said; a reboot without it may miss pods", "err", err)
	}
}

// same: all but what the next status tells anyway.
func same(a, b api.Object) bool {
	x, y := copyOf(a), copyOf(b)
	for _, o := range []api.Object{x, y} {
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		if p, ok := o.(*corev1.Pod); ok {
			p.Status = corev1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason, ContainerStatuses: restarts(p)}
		}
	}
	return equality.Semantic.DeepEqual(x, y)
}

func restarts(p *corev1.Pod) (out []corev1.ContainerStatus) {
	for _, cs := range p.Status.ContainerStatuses {
		out = append(out, corev1.ContainerStatus{Name: cs.Name, RestartCount: cs.RestartCount})
	}
	return out
}

// named is what the pods of this board name, and the volumes of their claims.
func (c *Client) named() map[string]bool {
	out := map[string]bool{api.ConfigMaps.Resource + metav1.NamespaceSystem + "/" + api.PodNetworksName: true}
	for _, s := range c.shelves {
		if s.kind != api.Pods {
			continue
		}
		for _, r := range s.rows {
			configMaps, secrets := api.References(r.obj.(*corev1.Pod))
			for _, n := range configMaps {
				out[api.ConfigMaps.Resource+r.obj.GetNamespace()+"/"+n] = true
			}
			for _, n := range secrets {
				out[api.Secrets.Resource+r.obj.GetNamespace()+"/"+n] = true
			}
			for _, n := range api.ClaimsOf(r.obj.(*corev1.Pod)) {
				out[api.PersistentVolumeClaims.Resource+r.obj.GetNamespace()+"/"+n] = true
			}
		}
	}
	for _, s := range c.shelves {
		for _, r := range s.rows {
			if claim, ok := r.obj.(*corev1.PersistentVolumeClaim); ok && out[s.kind.Resource+api.Key(claim).String()] {
				out[api.PersistentVolumes.Resource+"/"+claim.Spec.VolumeName] = true
			}
		}
	}
	return out
}

// tidy forgets what no pod of this board names any more, secrets above all.
func (c *Client) tidy() {
	named := c.named()
	c.tidyTokens()
	for key, s := range c.shelves {
		if s.kind == api.Pods || everything(s.kind) || len(s.rows) == 0 {
			continue
		}
		for name := range s.rows {
			if named[s.kind.Resource+name] {
				continue
			}
			delete(s.rows, name)
			c.remove(key, name)
		}
		if len(s.rows) == 0 {
			delete(c.shelves, key)
			c.remove(key, "")
		}
	}
}

// load reads the table. What is damaged is forgotten: the server has it.
func (c *Client) load() error {
	rows, damaged, err := c.cfg.Table.All()
	if err != nil {
		return fmt.Errorf("read what the control plane said last: %w", err)
	}
	for key, data := range rows {
		if !c.loadRow(key, data) {
			damaged = append(damaged, key)
		}
	}
	for _, key := range damaged {
		// A list that lacks some of its pods must not be taken for the whole: none is remembered then.
		at, _, _ := strings.Cut(key, split)
		delete(c.shelves, at)
	}
	if len(damaged) > 0 {
		slog.Error("some of what the control plane said last is damaged and forgotten", "entries", len(damaged))
	}
	return nil
}

func (c *Client) loadRow(key string, data []byte) bool {
	at, name, found := strings.Cut(key, split)
	if !found {
		return false
	}
	if at == tokenShelf {
		var t token
		err := json.Unmarshal(data, &t)
		c.tokens[name] = t
		return err == nil
	}
	resource, _, _ := strings.Cut(at, " ")
	kinds := []*api.Kind{api.Pods, api.ConfigMaps, api.Secrets, api.PersistentVolumeClaims, api.PersistentVolumes,
		networking.NetworkPolicies, api.Namespaces}
	i := slices.IndexFunc(kinds, func(k *api.Kind) bool { return k.Resource == resource })
	if i < 0 {
		return false
	}
	s := c.shelves[at]
	if s == nil {
		s = &shelf{kind: kinds[i], rows: map[string]row{}}
		c.shelves[at] = s
	}
	if name == "" {
		c.note(string(data))
		return true
	}
	r := row{obj: kinds[i].New()}
	if json.Unmarshal(data, &r) != nil || json.Unmarshal(r.Object, r.obj) != nil {
		return false
	}
	kinds[i].Stamp(r.obj)
	s.rows[name] = r
	return true
}
