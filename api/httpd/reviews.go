package httpd

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// accessReview answers "may I" (kubectl auth can-i, N-11.16).
func (h *handler) accessReview(w *response, r *request) error {
	var v authorizationv1.SelfSubjectAccessReview
	kind := authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")
	if err := h.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	a, err := attributesOf(v.Spec.ResourceAttributes, v.Spec.NonResourceAttributes)
	if err != nil {
		return err
	}
	v.Status = verdict(r.user, a)
	return w.json(http.StatusCreated, v, false)
}

// subjectReview answers "may they", to those who may ask about others.
func (h *handler) subjectReview(w *response, r *request) error {
	var v authorizationv1.SubjectAccessReview
	kind := authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview")
	if err := h.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	var err error
	if v.Status, err = answerAbout(v.Spec); err != nil {
		return err
	}
	return w.json(http.StatusCreated, v, false)
}

// localReview is subjectReview for one namespace.
func (h *handler) localReview(w *response, r *request) error {
	var v authorizationv1.LocalSubjectAccessReview
	kind := authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview")
	if err := h.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	if err := r.adopt(&v); err != nil {
		return err
	}
	if res := v.Spec.ResourceAttributes; res == nil || v.Spec.NonResourceAttributes != nil || res.Namespace != r.namespace {
		return badRequest("spec.resourceAttributes must be given and be about the namespace %s", r.namespace)
	}
	var err error
	if v.Status, err = answerAbout(v.Spec); err != nil {
		return err
	}
	return w.json(http.StatusCreated, v, false)
}

func answerAbout(s authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	if s.User == "" && len(s.Groups) == 0 {
		return authorizationv1.SubjectAccessReviewStatus{}, badRequest("at least one of user or group must be specified")
	}
	a, err := attributesOf(s.ResourceAttributes, s.NonResourceAttributes)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return verdict(api.User{Name: s.User, Groups: s.Groups}, a), nil
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
	if f := res.FieldSelector; f != nil {
		a.fields = f.RawSelector
	}
	return a, nil
}

func verdict(u api.User, a attributes) authorizationv1.SubjectAccessReviewStatus {
	if err := authorize(u, a); err != nil {
		return authorizationv1.SubjectAccessReviewStatus{Reason: err.Error()}
	}
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
}

// rulesReview answers "what may I" (kubectl auth can-i --list).
func (h *handler) rulesReview(w *response, r *request) error {
	var v authorizationv1.SelfSubjectRulesReview
	kind := authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview")
	if err := h.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	v.SetGroupVersionKind(kind)
	v.Status = rulesOf(r.user)
	return w.json(http.StatusCreated, v, false)
}

func rulesOf(u api.User) authorizationv1.SubjectRulesReviewStatus {
	out := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{},
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{verbRead}, NonResourceURLs: []string{"*"}}},
	}
	node, isNode := nodeName(u)
	switch all := []string{"*"}; {
	case allowed(u, attributes{verb: "*", resource: "*"}):
		out.ResourceRules = append(out.ResourceRules, authorizationv1.ResourceRule{Verbs: all, APIGroups: all, Resources: all})
	case isNode:
		for _, rule := range nodeRules {
			resource := rule.kind.Resource
			if rule.sub != "" {
				resource += "/" + rule.sub
			}
			line := authorizationv1.ResourceRule{Verbs: rule.verbs, APIGroups: []string{rule.kind.Group}, Resources: []string{resource}}
			if rule.where == ownName || rule.where == ownLease {
				line.ResourceNames = []string{node}
			}
			out.ResourceRules = append(out.ResourceRules, line)
		}
	}
	return out
}

// selfReview answers "who am I" (kubectl auth whoami).
func (h *handler) selfReview(w *response, r *request) error {
	var v authenticationv1.SelfSubjectReview
	kind := authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview")
	if err := h.readObject(w, r, boundSmall, &v, kind); err != nil {
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
func (h *handler) tokenReview(w *response, r *request) error {
	var v authenticationv1.TokenReview
	kind := authenticationv1.SchemeGroupVersion.WithKind("TokenReview")
	if err := h.readObject(w, r, boundSmall, &v, kind); err != nil {
		return err
	}
	if v.Spec.Token == "" {
		return badRequest("token is required for TokenReview in authentication")
	}
	v.SetGroupVersionKind(kind)
	v.Status = authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
	if h.authenticate != nil {
		if u, err := h.authenticate(v.Spec.Token, v.Spec.Audiences...); err == nil {
			v.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(u), Audiences: v.Spec.Audiences}
		}
	}
	v.Spec.Token = "" // not back to where it may be logged
	return w.json(http.StatusCreated, v, false)
}

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// token makes a token of a service account.
func (h *handler) token(w *response, r *request) error {
	opts, err := r.writeOptions()
	if err != nil {
		return err
	}
	t := &authenticationv1.TokenRequest{}
	if err := h.readObject(w, r, boundSmall, t, tokenRequestKind); err != nil {
		return err
	}
	if err := r.adopt(t); err != nil {
		return err
	}
	if t.Name != "" && t.Name != r.name {
		return badRequest("name in URL does not match name in TokenRequest object")
	}
	t.Name = r.name
	out, err := h.client.Create(r.Context(), r.kind, t, opts)
	if err != nil {
		return err
	}
	out.GetObjectKind().SetGroupVersionKind(tokenRequestKind)
	return w.json(http.StatusCreated, out, false)
}
