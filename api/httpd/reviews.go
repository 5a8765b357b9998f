package httpd

import (
	"context"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/rbac"
)

// reviewer answers who one is and what one may, and makes the tokens of service accounts.
type reviewer struct {
	client       api.Client
	intake       *intake
	rights       *authorizer
	authenticate Authenticate // knows the bearers of tokens; nil: there are none
}

// accessReview answers "may I" (kubectl auth can-i, N-11.16).
func (rev *reviewer) accessReview(w *response, r *request) error {
	var v authorizationv1.SelfSubjectAccessReview
	kind := authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")
	if err := rev.intake.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	a, err := attributesOf(v.Spec.ResourceAttributes, v.Spec.NonResourceAttributes)
	if err != nil {
		return err
	}
	if v.Status, err = rev.verdict(r.Context(), r.user, a); err != nil {
		return err
	}
	return w.json(http.StatusCreated, v, false)
}

// subjectReview answers "may they", to those who may ask about others.
func (rev *reviewer) subjectReview(w *response, r *request) error {
	var v authorizationv1.SubjectAccessReview
	kind := authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview")
	if err := rev.intake.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	var err error
	if v.Status, err = rev.answerAbout(r.Context(), v.Spec); err != nil {
		return err
	}
	return w.json(http.StatusCreated, v, false)
}

// localReview is subjectReview for one namespace.
func (rev *reviewer) localReview(w *response, r *request) error {
	var v authorizationv1.LocalSubjectAccessReview
	kind := authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview")
	if err := rev.intake.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	if err := r.adopt(&v); err != nil {
		return err
	}
	res := v.Spec.ResourceAttributes
	if res == nil || v.Spec.NonResourceAttributes != nil || res.Namespace != r.namespace ||
		res.Resource == api.Namespaces.Resource && res.Name != "" && res.Name != r.namespace { // attributesOf takes its name for the namespace
		return badRequest("spec.resourceAttributes must be given and be about the namespace %s", r.namespace)
	}
	var err error
	if v.Status, err = rev.answerAbout(r.Context(), v.Spec); err != nil {
		return err
	}
	return w.json(http.StatusCreated, v, false)
}

func (rev *reviewer) answerAbout(ctx context.Context, s authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus,
	error) {
	if s.User == "" && len(s.Groups) == 0 {
		return authorizationv1.SubjectAccessReviewStatus{}, badRequest("at least one of user or group must be specified")
	}
	a, err := attributesOf(s.ResourceAttributes, s.NonResourceAttributes)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return rev.verdict(ctx, api.User{Name: s.User, Groups: s.Groups}, a)
}

func attributesOf(res *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) (attributes, error) {
	switch {
	case (res == nil) == (path == nil):
		return attributes{}, badRequest("exactly one of resourceAttributes and nonResourceAttributes must be given")
	case path != nil:
		return attributes{verb: path.Verb, path: path.Path}, nil
	case res.Resource == "":
		return attributes{}, badRequest("resourceAttributes.resource is missing")
	}
	a := attributes{verb: res.Verb, group: res.Group, resource: res.Resource, sub: res.Subresource,
		namespace: res.Namespace, name: res.Name}
	if a.group == api.Namespaces.Group && a.resource == api.Namespaces.Resource && a.name != "" {
		a.namespace = a.name
	}
	if f := res.FieldSelector; f != nil {
		a.fields = f.RawSelector
	}
	return a, nil
}

func (rev *reviewer) verdict(ctx context.Context, u api.User, a attributes) (authorizationv1.SubjectAccessReviewStatus, error) {
	if allowed(u, a) {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
	}
	grant, ok, err := rev.rights.granted(ctx, u, a)
	switch {
	case err != nil:
		return authorizationv1.SubjectAccessReviewStatus{}, err
	case !ok:
		return authorizationv1.SubjectAccessReviewStatus{Reason: forbidden(u, a, "").Error()}, nil
	}
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: grant.String()}, nil
}

// rulesReview answers "what may I" (kubectl auth can-i --list).
func (rev *reviewer) rulesReview(w *response, r *request) error {
	var v authorizationv1.SelfSubjectRulesReview
	kind := authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview")
	if err := rev.intake.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	err := rev.rights.withPolicy(r.Context(), func(p *rbac.Policy) { v.Status = rulesOf(r.user, p.Rules(r.user, v.Spec.Namespace)) })
	if err != nil {
		return err
	}
	return w.json(http.StatusCreated, v, false)
}

// rulesOf is everything that a user may do: by who it is, and by the bindings that it is a subject of.
func rulesOf(u api.User, held []rbacv1.PolicyRule) authorizationv1.SubjectRulesReviewStatus {
	var out authorizationv1.SubjectRulesReviewStatus
	resource := func(verbs, groups, resources []string, names ...string) {
		out.ResourceRules = append(out.ResourceRules,
			authorizationv1.ResourceRule{Verbs: verbs, APIGroups: groups, Resources: resources, ResourceNames: names})
	}
	rules := func(list []rbacv1.PolicyRule) {
		for _, r := range list {
			if len(r.NonResourceURLs) > 0 {
				out.NonResourceRules = append(out.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
				continue
			}
			resource(r.Verbs, r.APIGroups, r.Resources, r.ResourceNames...)
		}
	}
	for _, v := range reviews {
		if !v.admin {
			resource([]string{"create"}, []string{v.gvk.Group}, []string{v.resource()})
		}
	}
	var open []string
	for _, p := range openPaths {
		open = append(open, p, p+"/*")
	}
	out.NonResourceRules = []authorizationv1.NonResourceRule{{Verbs: []string{verbRead}, NonResourceURLs: open}}
	if allowed(u, attributes{verb: "*", resource: "*"}) {
		rules(rbac.Everything())
	}
	if node, ok := nodeName(u); ok {
		for _, rule := range nodeRules {
			kind := rule.kind.Resource
			if rule.sub != "" {
				kind += "/" + rule.sub
			}
			var names []string
			if rule.where == ownName || rule.where == ownLease {
				names = []string{node}
			}
			resource(rule.verbs, []string{rule.kind.Group}, []string{kind}, names...)
		}
	}
	rules(held)
	return out
}

// selfReview answers "who am I" (kubectl auth whoami).
func (rev *reviewer) selfReview(w *response, r *request) error {
	var v authenticationv1.SelfSubjectReview
	kind := authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview")
	if err := rev.intake.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	v.CreationTimestamp = metav1.Time{}
	v.Status.UserInfo = userInfo(r.user)
	return w.json(http.StatusCreated, v, false)
}

func userInfo(u api.User) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for k, v := range u.Extra {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[k] = v
	}
	return out
}

// tokenReview says whose a token is, to those who may ask about others.
func (rev *reviewer) tokenReview(w *response, r *request) error {
	var v authenticationv1.TokenReview
	kind := authenticationv1.SchemeGroupVersion.WithKind("TokenReview")
	if err := rev.intake.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	if v.Spec.Token == "" {
		return badRequest("token is required for TokenReview in authentication")
	}
	v.SetGroupVersionKind(kind)
	v.Status = authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
	if rev.authenticate != nil {
		if u, err := rev.authenticate(v.Spec.Token, v.Spec.Audiences...); err == nil {
			v.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(u), Audiences: v.Spec.Audiences}
		}
	}
	v.Spec.Token = "" // not back to where it may be logged
	return w.json(http.StatusCreated, v, false)
}

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// token makes a token of a service account.
func (rev *reviewer) token(w *response, r *request) error {
	opts, err := r.writeOptions()
	if err != nil {
		return err
	}
	t := &authenticationv1.TokenRequest{}
	if err := rev.intake.readObject(w, r, boundSmall, t, tokenRequestKind); err != nil {
		return err
	}
	if err := r.adopt(t); err != nil {
		return err
	}
	if t.Name != "" && t.Name != r.name {
		return badRequest("name in URL does not match name in TokenRequest object")
	}
	t.Name = r.name
	out, err := rev.client.Create(r.Context(), r.kind, t, opts)
	if err != nil {
		return err
	}
	out.GetObjectKind().SetGroupVersionKind(tokenRequestKind)
	return w.json(http.StatusCreated, out, false)
}
