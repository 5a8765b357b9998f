package httpd

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

// queryBool reads a yes or no. A bare "?watch" is a yes.
func queryBool(q url.Values, name string) (bool, error) {
	if !q.Has(name) {
		return false, nil
	}
	switch strings.ToLower(q.Get(name)) {
	case "", "1", "true", "t":
		return true, nil
	case "0", "false", "f":
		return false, nil
	}
	return false, badRequest("the query parameter %s=%q is neither true nor false", name, q.Get(name))
}

// queryInt reads a whole number, nil when there is none.
func queryInt(q url.Values, name string) (*int64, error) {
	v := q.Get(name)
	if v == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return nil, badRequest("the query parameter %s=%q is not a whole number", name, v)
	}
	return &n, nil
}

// selection reads the selectors of a list, watch or deletecollection (N-11.35, N-11.36).
func (r *request) selection() (api.Selection, error) {
	s := api.Selection{Namespace: r.namespace}
	if v := r.query.Get("labelSelector"); v != "" {
		sel, err := api.ParseLabels(v)
		if err != nil {
			return s, err
		}
		s.Labels = sel
	}
	if v := r.query.Get("fieldSelector"); v != "" {
		sel, err := api.ParseFields(r.kind, v)
		if err != nil {
			return s, err
		}
		s.Fields = sel
	}
	return s, nil
}

// revision reads resourceVersion: our revisions are numbers, so anything else can be refused here.
func (r *request) revision() (string, error) {
	v := r.query.Get("resourceVersion")
	if v == "" {
		return "", nil
	}
	if _, err := strconv.ParseUint(v, 10, 64); err != nil {
		return "", invalidOption("ListOptions", field.Invalid(field.NewPath("resourceVersion"), v, "not a revision of this server"))
	}
	return v, nil
}

// listOptions reads what a list is asked for (N-11.29).
func (r *request) listOptions() (api.ListOptions, error) {
	var o api.ListOptions
	var err error
	if o.Selection, err = r.selection(); err != nil {
		return o, err
	}
	if o.Revision, err = r.revision(); err != nil {
		return o, err
	}
	limit, err := queryInt(r.query, "limit")
	if err != nil {
		return o, err
	}
	if limit != nil {
		if o.Limit = *limit; o.Limit < 0 {
			return o, invalidOption("ListOptions", field.Invalid(field.NewPath("limit"), o.Limit, "must not be negative"))
		}
	}
	o.Continue = r.query.Get("continue")
	o.Match = metav1.ResourceVersionMatch(r.query.Get("resourceVersionMatch"))
	var errs field.ErrorList
	match := field.NewPath("resourceVersionMatch")
	if o.Match != "" {
		switch {
		case o.Match != metav1.ResourceVersionMatchExact && o.Match != metav1.ResourceVersionMatchNotOlderThan:
			errs = append(errs, field.NotSupported(match, o.Match,
				[]metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan}))
		case o.Revision == "":
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
		case o.Continue != "":
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
		case o.Revision == "0" && o.Match == metav1.ResourceVersionMatchExact:
			errs = append(errs, field.Forbidden(match, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
		}
	}
	if o.Continue != "" && o.Revision != "" && o.Revision != "0" {
		errs = append(errs, field.Forbidden(field.NewPath("resourceVersion"), "specifying resource version is not allowed when using continue"))
	}
	if r.query.Has("sendInitialEvents") {
		errs = append(errs, field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for list"))
	}
	if len(errs) > 0 {
		return o, invalidOption("ListOptions", errs...)
	}
	return o, nil
}

// watchOptions reads what a watch is asked for (N-11.30, N-11.31). fromNow is a watch that wants neither the
// present state nor a revision: only what happens from here on.
func (r *request) watchOptions() (o api.WatchOptions, fromNow bool, err error) {
	if o.Selection, err = r.selection(); err != nil {
		return o, false, err
	}
	if o.Revision, err = r.revision(); err != nil {
		return o, false, err
	}
	if o.Bookmarks, err = queryBool(r.query, "allowWatchBookmarks"); err != nil {
		return o, false, err
	}
	if o.InitialEvents, err = queryBool(r.query, "sendInitialEvents"); err != nil {
		return o, false, err
	}
	var refused *field.Error
	match := metav1.ResourceVersionMatch(r.query.Get("resourceVersionMatch"))
	path := field.NewPath("resourceVersionMatch")
	switch asked := r.query.Has("sendInitialEvents"); {
	case !asked && match != "":
		refused = field.Forbidden(path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	case asked && match == "":
		refused = field.Forbidden(path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	case asked && match != metav1.ResourceVersionMatchNotOlderThan:
		refused = field.NotSupported(path, match, []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchNotOlderThan})
	case asked && !o.InitialEvents:
		fromNow = o.Revision == "" || o.Revision == "0"
	}
	if r.query.Get("continue") != "" {
		refused = field.Forbidden(field.NewPath("continue"), "a watch has no pages")
	}
	if refused != nil {
		return o, false, invalidOption("ListOptions", refused)
	}
	return o, fromNow, nil
}

// writeOptions reads dryRun and fieldManager.
func (r *request) writeOptions() (api.WriteOptions, error) {
	o := api.WriteOptions{Subresource: r.sub, Manager: r.query.Get("fieldManager")}
	if o.Manager == "" { // as on Kubernetes: the program that sends it
		o.Manager, _, _ = strings.Cut(r.UserAgent(), "/")
		o.Manager = o.Manager[:min(len(o.Manager), maxFieldOwner)]
	}
	var err error
	if o.DryRun, err = dryRun(r.query["dryRun"]); err != nil {
		return o, err
	}
	odd := func(c rune) bool { return !unicode.IsPrint(c) }
	if len(o.Manager) > maxFieldOwner || strings.ContainsFunc(o.Manager, odd) {
		return o, invalidOption("CreateOptions",
			field.Invalid(field.NewPath("fieldManager"), o.Manager, "must be up to 128 printable characters"))
	}
	return o, nil
}

// dryRun reads the list of stages that are to be tried only. There is one, All.
func dryRun(stages []string) (bool, error) {
	stages = slices.DeleteFunc(slices.Clone(stages), func(s string) bool { return s == "" })
	for _, s := range stages {
		if s != metav1.DryRunAll {
			return false, invalidOption("CreateOptions", field.NotSupported(field.NewPath("dryRun"), s, []string{metav1.DryRunAll}))
		}
	}
	return len(stages) > 0, nil
}

// deleteOptions merges the query into the options of a body and turns them into ours.
func (r *request) deleteOptions(body *metav1.DeleteOptions) (api.DeleteOptions, error) {
	var o api.DeleteOptions
	if body.GracePeriodSeconds == nil {
		n, err := queryInt(r.query, "gracePeriodSeconds")
		if err != nil {
			return o, err
		}
		body.GracePeriodSeconds = n
	}
	if v := r.query.Get("propagationPolicy"); v != "" && body.PropagationPolicy == nil {
		body.PropagationPolicy = (*metav1.DeletionPropagation)(&v)
	}
	body.DryRun = append(body.DryRun, r.query["dryRun"]...)
	orphan, err := queryBool(r.query, "orphanDependents")
	if err != nil {
		return o, err
	}
	if r.query.Has("orphanDependents") {
		body.OrphanDependents = &orphan //lint:ignore SA1019 old clients still send it
	}
	return deleteOptions(body)
}

func deleteOptions(body *metav1.DeleteOptions) (api.DeleteOptions, error) {
	var o api.DeleteOptions
	var errs field.ErrorList
	o.Grace = body.GracePeriodSeconds // a negative one means something (N-7.23)
	if p := body.Preconditions; p != nil {
		o.UID, o.Revision = (*types.UID)(p.UID), p.ResourceVersion
	}
	if p := body.PropagationPolicy; p != nil {
		o.Propagation = *p
		if !slices.Contains(api.Propagations, *p) {
			errs = append(errs, field.NotSupported(field.NewPath("propagationPolicy"), *p, api.Propagations))
		}
	}
	//lint:ignore SA1019 old clients still send it
	if v := body.OrphanDependents; v != nil {
		if body.PropagationPolicy != nil {
			errs = append(errs, field.Invalid(field.NewPath("propagationPolicy"), *body.PropagationPolicy,
				"orphanDependents and deletionPropagation cannot be both set"))
		}
		o.Propagation = metav1.DeletePropagationBackground
		if *v {
			o.Propagation = metav1.DeletePropagationOrphan
		}
	}
	if v := body.IgnoreStoreReadErrorWithClusterBreakingPotential; v != nil && *v {
		errs = append(errs, field.Forbidden(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), "not supported by ledge"))
	}
	if len(errs) > 0 {
		return o, invalidOption("DeleteOptions", errs...)
	}
	var err error
	o.DryRun, err = dryRun(body.DryRun)
	return o, err
}
