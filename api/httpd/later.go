package httpd

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"ledge/api"
	"ledge/api/openapi"
)

// laterKinds answers what is asked of kinds that have no objects yet.
type laterKinds struct {
	client   api.Client
	kinds    *api.Kinds
	intake   *intake
	forms    *forms
	answers  *answers
	building sync.Mutex // one at a time works with the schemas, which are megabytes
}

// listNone answers the list of a kind that has no objects yet: empty, at the revision the store is at.
func (l *laterKinds) listNone(w *response, r *request) error {
	if _, err := r.listNoneOptions(); err != nil {
		return err
	}
	revision, err := l.revisionNow(r.Context())
	if err != nil {
		return err
	}
	return l.forms.objects(w, r, api.List{Revision: revision})
}

// getNone answers 404: these kinds have no objects yet.
func (l *laterKinds) getNone(_ *response, r *request) error {
	return apierrors.NewNotFound(r.kind.GR(), r.name)
}

// refuse says that no such object can be made. Who asked for unknown fields to be refused hears of those first, as on
// Kubernetes: a file can be checked although it cannot be applied.
func (l *laterKinds) refuse(w *response, r *request) error {
	fields, err := strictnessOf(r)
	if err != nil {
		return err
	}
	media, err := mediaType(r.Header)
	if err != nil {
		return err
	}
	if fields == strict && (media == mediaJSON || media == mediaYAML) && slices.Contains(l.kinds.Later, r.kind) {
		if err := l.checkFields(w, r, media); err != nil {
			return err
		}
	}
	return api.NotWritable(r.kind)
}

// checkFields reads a body by the schema of its kind, whose Go type is not linked.
func (l *laterKinds) checkFields(w *response, r *request, media string) error {
	b, gvk := boundOf(r.kind), r.kind.GVK()
	data, done, err := l.intake.readToDecode(w, r, b, media)
	if err != nil {
		return err
	}
	defer done()
	if media == mediaYAML {
		if err = checkYAML(data, b.elements); err == nil {
			data, err = yaml.YAMLToJSON(data)
		}
	}
	if err == nil {
		err = prescan(data, b.elements)
	}
	if err != nil {
		return badRequest("%s in version %q cannot be handled: %v", gvk.Kind, gvk.GroupVersion(), err)
	}
	l.building.Lock() // the schemas are megabytes
	defer l.building.Unlock()
	all, err := openapi.Schemas()
	if err != nil {
		return err
	}
	problems, err := openapi.Unknown(all, schemaName(gvk), data)
	if err != nil {
		return badRequest("%s in version %q cannot be handled: %v", gvk.Kind, gvk.GroupVersion(), err)
	}
	return judge(w, strict, problems, gvk)
}

// watchNone is a watch in which nothing ever happens.
func (l *laterKinds) watchNone(w *response, r *request) error {
	initial, err := r.listNoneOptions()
	if err != nil {
		return err
	}
	form, err := r.form()
	if err != nil {
		return err
	}
	limit, err := r.watchTime()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	defer context.AfterFunc(stopping(r.Context()), cancel)()
	quiet := &quietWatch{ctx: ctx}
	if initial {
		mark := &metav1.PartialObjectMetadata{}
		if mark.ResourceVersion, err = l.revisionNow(ctx); err != nil {
			return err
		}
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		quiet.first = append(quiet.first, api.Event{Type: api.Bookmark, Object: mark})
	}
	return pump(ctx, l.answers, w, form, quiet, sizeOf, l.forms.lineOf(r, form))
}

// listNoneOptions checks what a list or watch of nothing is asked for, and says whether a watch wants the end of its
// initial events marked. Selectors are not read: they pick from nothing.
func (r *request) listNoneOptions() (initial bool, err error) {
	if _, err := r.revision(); err != nil {
		return false, err
	}
	if v := r.query.Get("labelSelector"); v != "" {
		if _, err := api.ParseLabels(v); err != nil {
			return false, err
		}
	}
	return queryBool(r.query, "sendInitialEvents")
}

// revisionNow is the revision the store is at.
func (l *laterKinds) revisionNow(ctx context.Context) (string, error) {
	list, err := l.client.List(ctx, api.Namespaces, api.ListOptions{Limit: 1})
	return list.Revision, err
}

// quietWatch delivers what it was given and then waits for its end.
type quietWatch struct {
	ctx   context.Context
	first []api.Event
}

func (q *quietWatch) Next() (api.Event, error) {
	if len(q.first) > 0 {
		e := q.first[0]
		q.first = q.first[1:]
		return e, nil
	}
	<-q.ctx.Done()
	return api.Event{}, q.ctx.Err()
}

func (q *quietWatch) Close() {}
