package httpd_test

import (
	"strings"
	"testing"

	"ledge/api/httpd"
)

// TestPeersOfABoard: of pods that are not its own a board sees what network policies go by, and only of those with a network of their
// own (N-14.6).
func TestPeersOfABoard(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p","labels":{"app":"web"},"annotations":{"note":"private"}},
		"spec":{"nodeName":"b","containers":[{"name":"c","image":"private","env":[{"name":"A","value":"private"}],
		"ports":[{"name":"web","containerPort":80}]}]}}`)
	for _, form := range []string{"", "&watch=1&resourceVersion=0&timeoutSeconds=1"} {
		for _, scope := range []string{"/api/v1/pods", "/api/v1/namespaces/default/pods"} {
			a := f.do(nodeA, "GET", scope+"?fieldSelector=spec.hostNetwork%3Dfalse"+form, "")
			if a.code != 200 || !strings.Contains(a.body, `"app":"web"`) || !strings.Contains(a.body, `"containerPort":80`) {
				t.Errorf("%s%s: %d %s", scope, form, a.code, a.body)
			}
			if strings.Contains(a.body, "private") {
				t.Errorf("%s%s shows too much: %s", scope, form, a.body)
			}
			for _, u := range []string{"", "?fieldSelector=spec.hostNetwork%3Dtrue" + form, "?fieldSelector=spec.nodeName%3Db" + form} {
				if a := f.do(nodeA, "GET", scope+u, ""); a.code != 403 {
					t.Errorf("%s%s: %d", scope, u, a.code)
				}
			}
		}
	}
	// Of a static pod, which is what its board says, it sees that.
	f.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"static","annotations":{"kubernetes.io/config.mirror":"private"}},
		"spec":{"nodeName":"b","containers":[{"name":"c","image":"private"}]}}`)
	a := f.do(nodeA, "GET", "/api/v1/pods?fieldSelector=spec.hostNetwork%3Dfalse", "")
	if strings.Count(a.body, "kubernetes.io/config.mirror") != 1 || strings.Contains(a.body, "private") {
		t.Errorf("a static pod: %s", a.body)
	}
	// Its own it sees whole, whatever else it selects.
	f.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"own"},"spec":{"nodeName":"a","containers":[{"name":"c","image":"mine"}]}}`)
	if a := f.do(nodeA, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Da", ""); !strings.Contains(a.body, `"image":"mine"`) {
		t.Errorf("its own: %s", a.body)
	}
}
