package httpd

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

func (h *handler) create(w *response, r *request) error {
	opts, err := r.writeOptions()
	if err != nil {
		return err
	}
	obj := r.kind.New()
	if err := h.intake.readObject(w, r, boundOf(r.kind), obj, r.kind.GVK()); err != nil {
		return err
	}
	if err := r.adopt(obj); err != nil {
		return err
	}
	r.audit.named(obj.GetName())
	made, err := h.client.Create(r.Context(), r.kind, obj, opts)
	if err != nil {
		return err
	}
	r.audit.named(made.GetName())
	return h.forms.object(w, r, http.StatusCreated, made)
}

func (h *handler) update(w *response, r *request) error {
	opts, err := r.writeOptions()
	if err != nil {
		return err
	}
	kind := r.kind.As(r.sub)
	obj := kind.New()
	if err := h.intake.readObject(w, r, boundOf(kind), obj, kind.GVK()); err != nil {
		return err
	}
	if err := r.adopt(obj); err != nil {
		return err
	}
	if obj.GetName() != r.name {
		return badRequest("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), r.name)
	}
	made, err := h.client.Update(r.Context(), r.kind, obj, opts)
	if err != nil {
		return err
	}
	return h.forms.spoken(w, r, http.StatusOK, made)
}

// adopt gives an object the namespace of the URL, unless it names another. One that can have none is read without it, as clients send.
func (r *request) adopt(obj metav1.Object) error {
	if ns := obj.GetNamespace(); ns != "" && ns != r.namespace && r.namespace != "" {
		return badRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetNamespace(r.namespace)
	return nil
}

// The patch formats, by the media type that announces them (N-11.33).
var patchTypes = []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType}

// patchTypesOf: a Scale has nobody who applies it, for its one field is also one of the object it is of.
func patchTypesOf(sub string) []types.PatchType {
	if sub == api.Scale {
		return patchTypes[:len(patchTypes)-1]
	}
	return patchTypes
}

func (h *handler) patch(w *response, r *request) error {
	opts, err := r.writeOptions()
	if err != nil {
		return err
	}
	fields, err := strictnessOf(r)
	if err != nil {
		return err
	}
	w.quiet = fields == ignore
	if _, err := r.form(); err != nil {
		return err
	}
	media, err := mediaType(r.Header)
	if err != nil {
		return err
	}
	patch := api.Patch{Type: types.PatchType(media)}
	accepted := patchTypesOf(r.sub)
	if !slices.Contains(accepted, patch.Type) {
		for _, t := range accepted {
			w.Header().Add("Accept-Patch", string(t))
		}
		return errMediaType("the patch format %q is not supported, only %v", media, accepted)
	}
	b := boundOf(r.kind)
	data, done, err := h.intake.readToDecode(w, r, b, media)
	if err != nil {
		return err
	}
	w.hold(done)
	if patch.Type == types.ApplyYAMLPatchType {
		return h.apply(w, r, data, b, opts, fields)
	}
	if err := prescan(data, b.elements); err != nil {
		return badRequest("error decoding patch: %v", err)
	}
	if r.query.Has("force") {
		return invalidOption("PatchOptions", field.Forbidden(field.NewPath("force"), "may not be specified for non-apply patch"))
	}
	patch.Data = data
	if err := h.checkPatch(w, r, patch, fields); err != nil {
		return err
	}
	made, err := h.client.Patch(r.Context(), r.kind, r.namespace, r.name, patch, opts)
	if err != nil {
		return err
	}
	return h.forms.spoken(w, r, http.StatusOK, made)
}

// apply is a server-side apply. Its configuration may be YAML or JSON; fields that do not exist are always refused, by
// the schema, and what else is odd about it by fieldValidation.
func (h *handler) apply(w *response, r *request, data []byte, b bound, opts api.WriteOptions, fields strictness) error {
	var err error
	if opts.Force, err = queryBool(r.query, "force"); err != nil {
		return err
	}
	if r.query.Get("fieldManager") == "" {
		return invalidOption("PatchOptions", field.Required(field.NewPath("fieldManager"), "is required for apply patch"))
	}
	var config map[string]any
	decodeConfig := decodeJSON
	if !json.Valid(data) {
		decodeConfig = decodeYAML
	}
	duplicates, err := decodeConfig(data, b.elements, &config)
	if err != nil {
		return badRequest("error decoding the applied configuration: %v", err)
	}
	if err := judge(w, fields, duplicates, r.kind.GVK()); err != nil {
		return err
	}
	patch := api.Patch{Type: types.ApplyYAMLPatchType}
	if patch.Data, err = json.Marshal(config); err != nil {
		return badRequest("error decoding the applied configuration: %v", err)
	}
	made := false
	opts.Made = &made
	create := r.attributes()
	create.verb = "create"
	if err := h.rights.authorize(r.Context(), r.user, create); apierrors.IsForbidden(err) {
		opts.NoCreate = err // the right to patch changes what is there, and makes nothing
	} else if err != nil {
		return err
	}
	obj, err := h.client.Patch(r.Context(), r.kind, r.namespace, r.name, patch, opts)
	if err != nil {
		return err
	}
	if made {
		return h.forms.object(w, r, http.StatusCreated, obj)
	}
	return h.forms.object(w, r, http.StatusOK, obj)
}

// checkPatch finds the fields of a patch that do not exist, by trying it on a copy: the patch itself is applied by
// the Client, in one transaction, and says nothing of what it dropped.
func (h *handler) checkPatch(w *response, r *request, patch api.Patch, fields strictness) error {
	if fields == ignore {
		return nil
	}
	obj, err := h.client.Get(r.Context(), r.kind, r.namespace, r.name)
	if err != nil {
		return err
	}
	kind := r.kind.As(r.sub)
	if kind == api.Scales {
		obj = r.kind.ScaleOf(obj)
	}
	_, dropped, err := api.ApplyPatch(kind, obj, patch)
	if err != nil {
		return err
	}
	return judge(w, fields, dropped, kind.GVK())
}

// readDeleteOptions reads the options of a delete, which come as a body, in the query, or not at all.
func (h *handler) readDeleteOptions(w *response, r *request) (api.DeleteOptions, error) {
	var body metav1.DeleteOptions
	if r.ContentLength != 0 {
		kinds := []schema.GroupVersionKind{
			metav1.SchemeGroupVersion.WithKind("DeleteOptions"),
			{Version: "v1", Kind: "DeleteOptions"},
			r.kind.GVK().GroupVersion().WithKind("DeleteOptions"),
			{Group: "meta.k8s.io", Version: "v1", Kind: "DeleteOptions"},
		}
		err := h.intake.readObject(w, r, boundSmall, &body, kinds...)
		var none *emptyBody // a chunked body may turn out to be empty
		if err != nil && !errors.As(err, &none) {
			return api.DeleteOptions{}, err
		}
	}
	return r.deleteOptions(&body)
}

// delete answers the object: as it is while it still exists, as it was when it is gone.
func (h *handler) delete(w *response, r *request) error {
	opts, err := h.readDeleteOptions(w, r)
	if err != nil {
		return err
	}
	gone, err := h.client.Delete(r.Context(), r.kind, r.namespace, r.name, opts)
	if err != nil {
		return err
	}
	return h.forms.object(w, r, http.StatusOK, gone)
}

// deleteCollection deletes what the selectors pick, each for itself, and answers the list of it (N-11.36). What
// somebody else deleted in between is as good as deleted. It ends with the first that may not go.
func (h *handler) deleteCollection(w *response, r *request) error {
	list, err := r.listOptions()
	if err != nil {
		return err
	}
	opts, err := h.readDeleteOptions(w, r)
	if err != nil {
		return err
	}
	if opts.UID != nil || opts.Revision != nil {
		return badRequest("preconditions name one object, not a collection")
	}
	found, err := h.client.List(r.Context(), r.kind, list)
	if err != nil {
		return err
	}
	some, ctx := errgroup.WithContext(r.Context())
	some.SetLimit(api.WritersAtOnce)
	for i, obj := range found.Items {
		if ctx.Err() != nil {
			break
		}
		some.Go(func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = panicked(r.Request, p) // nobody else recovers here
				}
			}()
			gone, err := h.client.Delete(ctx, r.kind, obj.GetNamespace(), obj.GetName(), opts)
			if err == nil {
				found.Items[i] = gone
			}
			if isGone(err) {
				return nil
			}
			return err
		})
	}
	if err := cmp.Or(some.Wait(), r.Context().Err()); err != nil {
		return err
	}
	return h.forms.objects(w, r, found)
}
