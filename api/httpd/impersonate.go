package httpd

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"ledge/api"
)

const impersonatePrefix = "Impersonate-"

// impersonated is who a request is made as (kubectl --as): the caller, unless it names another in its headers and may act
// as every part of that one. Each part is a question of its own to authorisation, as on Kubernetes.
func (auth *authorizer) impersonated(ctx context.Context, caller api.User, head http.Header) (api.User, error) {
	as, questions, err := personIn(head)
	if err != nil || questions == nil {
		return caller, err
	}
	for _, a := range questions {
		if err := auth.authorize(ctx, caller, a); err != nil {
			return caller, err
		}
	}
	return as, nil
}

// personIn reads the headers, and says what one must be allowed to be that person; no questions: nobody is named.
func personIn(head http.Header) (as api.User, questions []attributes, err error) {
	may := func(group, resource, sub, namespace, name string) {
		questions = append(questions, attributes{verb: "impersonate", group: group, resource: resource, sub: sub, namespace: namespace,
			name: name})
	}
	as.Name, as.UID = head.Get(authenticationv1.ImpersonateUserHeader), head.Get(authenticationv1.ImpersonateUIDHeader)
	as.Groups = slices.Clone(head[authenticationv1.ImpersonateGroupHeader])
	if namespace, name, ok := api.AccountOf(as.Name); ok {
		may("", "serviceaccounts", "", namespace, name)
		if as.Groups == nil {
			as.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
		}
	} else if as.Name != "" {
		may("", "users", "", "", as.Name)
	}
	for _, g := range head[authenticationv1.ImpersonateGroupHeader] {
		may("", "groups", "", "", g)
	}
	if as.UID != "" {
		may(authenticationv1.GroupName, "uids", "", "", as.UID)
	}
	for name, values := range head {
		key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			if strings.HasPrefix(name, impersonatePrefix) && !slices.Contains(personHeaders, name) {
				return as, nil, badRequest("the header %s is not known", name)
			}
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		for _, v := range values {
			may(authenticationv1.GroupName, "userextras", key, "", v)
			if as.Extra == nil {
				as.Extra = map[string][]string{}
			}
			as.Extra[key] = append(as.Extra[key], v)
		}
	}
	if questions != nil && as.Name == "" {
		return as, nil, badRequest("a group, uid or extra field was requested without impersonating a user")
	}
	if questions != nil {
		as.Groups = withKnown(as)
	}
	return as, questions, nil
}

var personHeaders = []string{authenticationv1.ImpersonateUserHeader, authenticationv1.ImpersonateGroupHeader,
	http.CanonicalHeaderKey(authenticationv1.ImpersonateUIDHeader)}

// withKnown are the groups of a user with the one that says whether it is known, unless one of the two is there.
func withKnown(u api.User) []string {
	group := api.AuthenticatedGroup
	if u.Name == anonymousUser {
		group = api.UnauthenticatedGroup
	}
	if slices.Contains(u.Groups, api.AuthenticatedGroup) || slices.Contains(u.Groups, api.UnauthenticatedGroup) {
		return u.Groups
	}
	return append(slices.Clone(u.Groups), group)
}
