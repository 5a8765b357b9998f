package httpd

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"ledge/api"
)

// FuzzHeaders: what a caller writes into the headers that say what it wants and who it wants to be is one of the forms there are,
// and never makes it somebody without a question for each part of that one.
func FuzzHeaders(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "bob", "ops", "7", "Scopes", "all")
	f.Add("application/json;q=0.1;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "system:serviceaccount:n:a", "", "", "", "")
	f.Add("application/com.github.proto-openapi.spec.v2@v1.0+protobuf, */*;q=x", "system:anonymous", "system:unauthenticated", "", "a%2fb",
		"x")
	f.Add("", "", "system:masters", "", "", "")
	f.Fuzz(func(t *testing.T, accept, user, group, uid, key, extra string) {
		head := http.Header{}
		for name, value := range map[string]string{"Accept": accept, "Impersonate-User": user, "Impersonate-Group": group, "Impersonate-Uid": uid,
			"Impersonate-Extra-" + key: extra} {
			if value != "" {
				head.Add(name, value)
			}
		}
		r := &request{Request: &http.Request{Header: head}, query: url.Values{}}
		if got, err := r.form(); err == nil && (!slices.Contains([]string{asObject, asTable, asMetadata}, got.as) ||
			(got.as == asObject) != (got.version == "") || !strings.Contains("v1beta1", got.version)) {
			t.Fatalf("Accept %q: %+v", accept, got)
		}
		as, questions, err := personIn(head)
		if err != nil {
			return
		}
		asked := map[string]bool{}
		for _, q := range questions {
			asked[q.resource+" "+q.namespace+" "+q.name] = q.verb == "impersonate"
		}
		if user == "" && (len(questions) > 0 || as.Name != "") {
			t.Fatalf("nobody is named: %+v, %+v", as, questions)
		}
		if namespace, name, ok := api.AccountOf(user); as.Name != user || user != "" && !asked["users  "+user] &&
			!(ok && asked["serviceaccounts "+namespace+" "+name]) {
			t.Fatalf("%q is %+v, asked %+v", user, as, questions)
		}
		if group != "" && (!asked["groups  "+group] || !slices.Contains(as.Groups, group)) || uid != "" && !asked["uids  "+uid] {
			t.Fatalf("%+v, asked %+v", as, questions)
		}
		for key, values := range as.Extra {
			for _, v := range values {
				if !asked["userextras  "+v] {
					t.Fatalf("%s=%q was not asked about: %+v", key, v, questions)
				}
			}
		}
		if known := slices.Contains(as.Groups, api.AuthenticatedGroup) ||
			slices.Contains(as.Groups, api.UnauthenticatedGroup); known != (user != "") {
			t.Fatalf("%q has the groups %q", user, as.Groups)
		}
	})
}
