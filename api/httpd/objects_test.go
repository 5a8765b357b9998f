package httpd_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/httpd"
	"ledge/api/kinds"
	"ledge/api/local"
	"ledge/api/networking"
	"ledge/api/storage"
	disk "ledge/storage"
)

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
	protobufType   = "application/vnd.kubernetes.protobuf"
)

func TestObjectLife(t *testing.T) {
	f := serve(t, httpd.Config{})
	var made, got corev1.ConfigMap
	f.must(201, "POST", mapsPath, configMap("m", "one")).into(t, &made)
	if made.Kind != "ConfigMap" || made.APIVersion != "v1" || made.Namespace != "default" || made.UID == "" || made.ResourceVersion == "" {
		t.Errorf("created %+v", made)
	}
	f.must(200, "GET", mapsPath+"/m", "").into(t, &got)
	if got.Data["k"] != "one" || got.ResourceVersion != made.ResourceVersion {
		t.Errorf("got %+v", got)
	}
	if s := f.must(409, "POST", mapsPath, configMap("m", "one")).status(t); s.Reason != metav1.StatusReasonAlreadyExists {
		t.Errorf("second create: %+v", s)
	}

	// N-11.32: a stale revision is a conflict.
	body := strings.Replace(configMap("m", "two"), `"name"`, `"resourceVersion":"`+made.ResourceVersion+`","name"`, 1)
	f.must(200, "PUT", mapsPath+"/m", body)
	s := f.must(409, "PUT", mapsPath+"/m", body).status(t)
	if s.Reason != metav1.StatusReasonConflict || !strings.Contains(s.Message, "the object has been modified") {
		t.Errorf("stale update: %+v", s)
	}

	f.must(200, "PATCH", mapsPath+"/m", `{"data":{"k":null,"n":"3"}}`, "Content-Type", mergePatch).into(t, &got)
	got = corev1.ConfigMap{}
	f.must(200, "PATCH", mapsPath+"/m", `[{"op":"add","path":"/data/j","value":"4"}]`, "Content-Type", jsonPatch).into(t, &got)
	if fmt.Sprint(got.Data) != "map[j:4 n:3]" {
		t.Errorf("patched: %v", got.Data)
	}
	var deleted corev1.ConfigMap
	f.must(200, "DELETE", mapsPath+"/m", "").into(t, &deleted)
	if deleted.UID != made.UID {
		t.Errorf("delete answered %+v", deleted)
	}
	s = f.must(404, "GET", mapsPath+"/m", "").status(t)
	if s.Reason != metav1.StatusReasonNotFound || s.Details == nil || s.Details.Name != "m" || s.Details.Kind != "configmaps" ||
		s.Message != `configmaps "m" not found` {
		t.Errorf("N-11.42: %+v", s)
	}
}

func TestNamesMustAgree(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	elsewhere := strings.Replace(configMap("o", ""), `"name"`, `"namespace":"kube-system","name"`, 1)
	for _, tc := range []struct{ method, path, body, says string }{
		{"POST", mapsPath, elsewhere, "the namespace of the provided object does not match"},
		{"PUT", mapsPath + "/m", configMap("other", "two"), "the name of the object (other) does not match the name on the URL (m)"},
		{"PUT", mapsPath + "/m", `{"data":{}}`, "does not match the name on the URL"},
		{"POST", mapsPath, pod("p"), "a Pod of v1, a ConfigMap of v1 was expected"},
		{"POST", podsPath + "/p/eviction", `{"metadata":{"name":"q"}}`, "name in URL does not match name in Eviction object"},
		{"POST", podsPath + "/p/binding", `{"kind":"Eviction","apiVersion":"policy/v1"}`, "a Binding of v1 was expected"},
		{"POST", mapsPath, "", "the body is empty"},
		{"POST", mapsPath, "{", "unexpected end of JSON input"},
	} {
		s := f.must(400, tc.method, tc.path, tc.body).status(t)
		if s.Reason != metav1.StatusReasonBadRequest || !strings.Contains(s.Message, tc.says) {
			t.Errorf("%s %s: %s, want %q", tc.method, tc.path, s.Message, tc.says)
		}
	}
}

// N-11.15: unknown and duplicate fields, in bodies and in every kind of patch.
func TestFieldValidation(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	unknown := `{"metadata":{"name":"n"},"daata":{"k":"v"}}`
	says := `unknown field "daata"`
	for _, tc := range []struct{ name, method, path, body, media string }{
		{"create", "POST", mapsPath + "?dryRun=All", unknown, "application/json"},
		{"create yaml", "POST", mapsPath + "?dryRun=All", "metadata: {name: fresh}\ndaata: {k: v}\n", "application/yaml"},
		{"update", "PUT", mapsPath + "/m?dryRun=All", strings.Replace(unknown, `"n"`, `"m"`, 1), "application/json"},
		{"merge patch", "PATCH", mapsPath + "/m?dryRun=All", `{"daata":{"k":"v"}}`, mergePatch},
		{"strategic patch", "PATCH", mapsPath + "/m?dryRun=All", `{"daata":{"k":"v"}}`, strategicPatch},
		{"JSON patch", "PATCH", mapsPath + "/m?dryRun=All", `[{"op":"add","path":"/daata","value":{}}]`, jsonPatch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			header := []string{"Content-Type", tc.media}
			s := f.do(admin, tc.method, tc.path+"&fieldValidation=Strict", tc.body, header...).status(t)
			if s.Code != 400 || !strings.Contains(s.Message, "strict decoding error: ") || !strings.Contains(s.Message, says) {
				t.Errorf("Strict: %d %s", s.Code, s.Message)
			}
			for _, option := range []string{"&fieldValidation=Warn", ""} {
				a := f.do(admin, tc.method, tc.path+option, tc.body, header...)
				if w := a.head.Get("Warning"); a.code >= 300 || w != `299 - "unknown field \"daata\""` {
					t.Errorf("Warn: %d, warning %q", a.code, w)
				}
			}
			a := f.do(admin, tc.method, tc.path+"&fieldValidation=Ignore", tc.body, header...)
			if a.code >= 300 || a.head.Get("Warning") != "" {
				t.Errorf("Ignore: %d, warning %q", a.code, a.head.Get("Warning"))
			}
			if s := f.do(admin, tc.method, tc.path+"&fieldValidation=Perhaps", tc.body, header...).status(t); s.Code != 422 {
				t.Errorf("Perhaps: %d", s.Code)
			}
		})
	}
}

// Directives of a strategic merge patch are no unknown fields.
func TestStrategicDirectivesAreFields(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", podsPath, pod("p"))
	patch := `{"metadata":{"labels":{"app":null}},"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","image":"ledge.local/self:2"}]}}`
	a := f.must(200, "PATCH", podsPath+"/p?fieldValidation=Strict", patch, "Content-Type", strategicPatch)
	var got corev1.Pod
	a.into(t, &got)
	if got.Spec.Containers[0].Image != "ledge.local/self:2" || len(got.Labels) != 0 {
		t.Errorf("patched pod %+v %+v", got.Labels, got.Spec.Containers)
	}
}

// What typed clients of today send: bodies in protobuf, also to subresources and deletes.
func TestProtobufBodies(t *testing.T) {
	f := serve(t, httpd.Config{})
	send := func(code int, method, path, apiVersion, kind string, obj interface{ Marshal() ([]byte, error) }) answer {
		t.Helper()
		raw, err := obj.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
		data, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return f.must(code, method, path, "k8s\x00"+string(data), "Content-Type", protobufType,
			"Accept", protobufType+",application/json")
	}
	var got corev1.ConfigMap
	send(201, "POST", mapsPath+"?fieldManager=kubectl-create&fieldValidation=Strict", "v1", "ConfigMap",
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"a": "b"}}).into(t, &got)
	if got.Data["a"] != "b" {
		t.Errorf("created %+v", got)
	}
	f.must(201, "POST", podsPath, pod("p"))
	// A dry run of the eviction first: the pod must still be there for the real one.
	send(201, "POST", podsPath+"/p/eviction", "policy/v1", "Eviction", &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{"All"}}})
	a := send(201, "POST", podsPath+"/p/eviction", "policy/v1", "Eviction",
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}})
	if s := a.status(t); s.Status != metav1.StatusSuccess {
		t.Errorf("N-11.1: eviction answered %+v", s)
	}
	wrong := "another"
	raw := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: (*types.UID)(&wrong)}}
	send(409, "DELETE", mapsPath+"/m", "v1", "DeleteOptions", raw)
	send(200, "DELETE", mapsPath+"/m", "meta.k8s.io/v1", "DeleteOptions", &metav1.DeleteOptions{})
}

// TestLeaseInProtobuf: whoever would rather have a Lease in protobuf gets it so, whoever names JSON first does not, and other kinds
// and errors are JSON for all.
func TestLeaseInProtobuf(t *testing.T) {
	f := serve(t, httpd.Config{})
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	at, holder := metav1.NewMicroTime(time.Unix(1900000000, 123456000)), "n"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "kube-node-lease"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at}}
	body, err := api.ToProtobuf(coordination.Leases, lease)
	if err != nil {
		t.Fatal(err)
	}
	both := []string{"Content-Type", protobufType, "Accept", protobufType + ",application/json;q=0.9"}
	read := func(a answer) *coordinationv1.Lease {
		t.Helper()
		got, err := api.FromProtobuf(coordination.Leases, []byte(a.body))
		if err != nil || a.head.Get("Content-Type") != protobufType {
			t.Fatalf("%s %.100q: %v", a.head.Get("Content-Type"), a.body, err)
		}
		return got.(*coordinationv1.Lease)
	}
	made := read(f.must(201, "POST", leases, string(body), both...))
	if !made.Spec.RenewTime.Equal(&at) || made.UID == "" || *made.Spec.HolderIdentity != "n" {
		t.Errorf("made %+v", made)
	}
	later := metav1.NewMicroTime(at.Add(10 * time.Second))
	made.Spec.RenewTime = &later
	if body, err = api.ToProtobuf(coordination.Leases, made); err != nil {
		t.Fatal(err)
	}
	if got := read(f.must(200, "PUT", leases+"/n", string(body), both...)); !got.Spec.RenewTime.Equal(&later) {
		t.Errorf("renewed %+v", got)
	}
	if got := read(f.must(200, "GET", leases+"/n", "", both[2:]...)); !got.Spec.RenewTime.Equal(&later) {
		t.Errorf("read %+v", got)
	}
	var plain coordinationv1.Lease
	for _, accept := range []string{"", "*/*", "application/json", "application/json," + protobufType,
		protobufType + ";q=0.5,application/json",
		protobufType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"} {
		f.must(200, "GET", leases+"/n", "", "Accept", accept).into(t, &plain)
		if plain.Kind != "Lease" || !plain.Spec.RenewTime.Equal(&later) {
			t.Errorf("%q: %+v", accept, plain)
		}
	}
	if s := f.must(409, "PUT", leases+"/n", string(body), both...).status(t); s.Reason != metav1.StatusReasonConflict { // it is older now
		t.Errorf("written over: %+v", s)
	}
	f.must(200, "GET", leases, "", both[2:]...).into(t, &coordinationv1.LeaseList{})
	f.must(201, "POST", mapsPath, configMap("m", "one"), "Accept", protobufType+",application/json").into(t, &corev1.ConfigMap{})
}

func TestBodiesRefused(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	for _, tc := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		reason                   metav1.StatusReason
	}{
		{"media type", "POST", mapsPath, "<xml/>", []string{"Content-Type", "text/xml"}, 415, "UnsupportedMediaType"},
		{"broken media type", "POST", mapsPath, "{}", []string{"Content-Type", "a/b/c;="}, 415, "UnsupportedMediaType"},
		{"cbor", "POST", mapsPath, "{}", []string{"Content-Type", "application/cbor"}, 415, "UnsupportedMediaType"},
		{"patch without type", "PATCH", mapsPath + "/m", "{}", nil, 415, "UnsupportedMediaType"},
		{"apply of nothing", "PATCH", mapsPath + "/m?fieldManager=x", "{}", []string{"Content-Type", applyPatch}, 400, "BadRequest"},
		{"apply without manager", "PATCH", mapsPath + "/m", "{}", []string{"Content-Type", applyPatch}, 422, "Invalid"},
		{"apply with aliases", "PATCH", mapsPath + "/m?fieldManager=x", "a: &a {}\nb: *a\n", []string{"Content-Type", applyPatch}, 400,
			"BadRequest"},
		{"apply, strict", "PATCH", mapsPath + "/m?fieldManager=x&fieldValidation=Strict",
			`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"1","a":"2"}}`,
			[]string{"Content-Type", applyPatch}, 400, "BadRequest"},
		{"force without apply", "PATCH", mapsPath + "/m?force=true", "{}", []string{"Content-Type", mergePatch}, 422, "Invalid"},
		{"compressed", "POST", mapsPath, "\x1f\x8b", []string{"Content-Encoding", "gzip"}, 415, "UnsupportedMediaType"},
		{"impersonation of nobody", "GET", mapsPath, "", []string{"Impersonate-Extra-Scopes", "x"}, 400, "BadRequest"},
		{"impersonation of an unknown sort", "GET", mapsPath, "", []string{"Impersonate-User", "x", "Impersonate-Shoes", "x"}, 400, "BadRequest"},
		{"accept", "GET", mapsPath, "", []string{"Accept", "application/cbor"}, 406, "NotAcceptable"},
		{"accept protobuf only", "GET", mapsPath + "/m", "", []string{"Accept", protobufType}, 406, "NotAcceptable"},
		{"accept a foreign table", "GET", mapsPath, "", []string{"Accept", "application/json;as=Table;v=v1;g=example.com"}, 406, "NotAcceptable"},
		{"config map size", "POST", mapsPath, `{"data":{"a":"` + strings.Repeat("x", 1536<<10) + `"}}`, nil, 413, "RequestEntityTooLarge"},
		{"pod size", "POST", podsPath, `{"a":"` + strings.Repeat("x", 256<<10) + `"}`, nil, 413, "RequestEntityTooLarge"},
		{"patch size", "PATCH", podsPath + "/p", `{"a":"` + strings.Repeat("x", 256<<10) + `"}`, []string{"Content-Type", mergePatch}, 413,
			"RequestEntityTooLarge"},
		{"options size", "DELETE", mapsPath + "/m", `{"a":"` + strings.Repeat("x", 64<<10) + `"}`, nil, 413, "RequestEntityTooLarge"},
		{"pod elements", "POST", podsPath, `{"spec":{"containers":[` + strings.Repeat("{},", 5000) + `{}]}}`, nil, 400, "BadRequest"},
		{"patch elements", "PATCH", podsPath + "/p", `{"spec":{"containers":[` + strings.Repeat("{},", 5000) + `{}]}}`,
			[]string{"Content-Type", mergePatch}, 400, "BadRequest"},
		{"options", "DELETE", mapsPath + "/m", `{"propagationPolicy":"Sideways"}`, nil, 422, "Invalid"},
		{"propagation", "DELETE", mapsPath + "/m?propagationPolicy=Sideways", "", nil, 422, "Invalid"},
		{"dry run", "DELETE", mapsPath + "/m?dryRun=Some", "", nil, 422, "Invalid"},
		{"field manager", "POST", mapsPath + "?fieldManager=" + strings.Repeat("x", 129), configMap("n", ""), nil, 422, "Invalid"},
		{"query", "GET", mapsPath + "?limit=%zz", "", nil, 400, "BadRequest"},
		{"includeObject", "GET", mapsPath + "?includeObject=All", "", nil, 400, "BadRequest"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := f.do(admin, tc.method, tc.path, tc.body, tc.headers...).status(t)
			if int(s.Code) != tc.code || s.Reason != tc.reason || s.Message == "" {
				t.Errorf("%d %s %q, want %d %s", s.Code, s.Reason, s.Message, tc.code, tc.reason)
			}
		})
	}
	f.must(200, "GET", mapsPath+"/m", "") // nothing of it deleted or changed the object
	// The largest honest ConfigMap goes through.
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"large"},"binaryData":{"b":"`+strings.Repeat("AAAA", 340<<10)+`"}}`)
}

// A body of unknown length may be no body at all.
func TestDeleteWithAnEmptyChunkedBody(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	req, err := http.NewRequest("DELETE", "http://x"+mapsPath+"/m", io.MultiReader())
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = -1
	resp, err := f.as["admin"].Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
}

// What becomes of what belonged to an object is said in the body or the query, in the words of old clients too; of a
// replication controller's, when nobody says it, nothing.
func TestDeletePropagation(t *testing.T) {
	f := serve(t, httpd.Config{})
	const controllers = "/api/v1/namespaces/default/replicationcontrollers"
	for i, tc := range []struct {
		query, body string
		orphan      bool
	}{
		{"", "", true},
		{"", `{"orphanDependents":true}`, true},
		{"", `{"orphanDependents":false}`, false},
		{"?orphanDependents=true", "", true},
		{"?orphanDependents=false", "", false},
		{"?propagationPolicy=Background", "", false},
		{"", `{"propagationPolicy":"Orphan"}`, true},
		{"", `{"propagationPolicy":"Background"}`, false},
	} {
		var rc corev1.ReplicationController
		f.must(201, "POST", controllers, `{"metadata":{"name":"rc"},"spec":{"replicas":0,"template":{"metadata":{"labels":{"a":"b"}},`+
			`"spec":{"containers":[{"name":"c","image":"i"}]}}}}`).into(t, &rc)
		child := fmt.Sprintf("%s/c%d", mapsPath, i)
		f.must(201, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"c%d","ownerReferences":[{"apiVersion":"v1","kind":"ReplicationController","name":"rc","uid":%q}]}}`,
			i, rc.UID))
		f.must(200, "DELETE", controllers+"/rc"+tc.query, tc.body)
		var m corev1.ConfigMap
		f.must(200, "GET", child, "").into(t, &m)
		if orphan := len(m.OwnerReferences) == 0; orphan != tc.orphan {
			t.Errorf("%q %s: an orphan: %v, want %v", tc.query, tc.body, orphan, tc.orphan)
		}
		f.must(200, "DELETE", child, "")
	}
	f.must(422, "DELETE", controllers+"/rc?propagationPolicy=Orphan&orphanDependents=false", "")
}

func TestYAMLBodies(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, "metadata:\n  name: fresh\ndata:\n  k: v\n", "Content-Type", "application/yaml; charset=utf-8")
	s := f.must(400, "POST", mapsPath, "metadata: &m\n  name: y\ndata: *m\n", "Content-Type", "application/yaml").status(t)
	if !strings.Contains(s.Message, "aliases are not accepted") {
		t.Error(s.Message)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath+"?dryRun=All", configMap("m", "one"))
	f.must(404, "GET", mapsPath+"/m", "")
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	f.must(200, "PUT", mapsPath+"/m?dryRun=All", configMap("m", "two"))
	f.must(200, "PATCH", mapsPath+"/m?dryRun=All", `{"data":{"k":"two"}}`, "Content-Type", mergePatch)
	f.must(200, "DELETE", mapsPath+"/m?dryRun=All", "")
	f.must(200, "DELETE", mapsPath+"/m", `{"dryRun":["All"]}`)
	f.must(200, "DELETE", mapsPath+"?dryRun=All", "")
	var got corev1.ConfigMap
	f.must(200, "GET", mapsPath+"/m", "").into(t, &got)
	if got.Data["k"] != "one" {
		t.Errorf("data %v", got.Data)
	}
}

// N-11.36: deletecollection honours both selectors and stays in its namespace.
func TestDeleteCollection(t *testing.T) {
	f := serve(t, httpd.Config{})
	for _, n := range []string{"a", "b", "c"} {
		f.must(201, "POST", mapsPath, configMap(n, n))
	}
	f.must(201, "POST", "/api/v1/namespaces/kube-system/configmaps", configMap("a", "a"))
	var list corev1.ConfigMapList
	f.must(200, "DELETE", mapsPath+"?labelSelector=x+in+(a,b)&fieldSelector=metadata.name!%3Db", "").into(t, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("deleted %v", list.Items)
	}
	f.must(404, "GET", mapsPath+"/a", "")
	f.must(200, "DELETE", mapsPath, "")
	list = corev1.ConfigMapList{}
	f.must(200, "GET", "/api/v1/configmaps?labelSelector=x", "").into(t, &list)
	if len(list.Items) != 1 || list.Items[0].Namespace != "kube-system" {
		t.Errorf("left %v", list.Items)
	}
}

func TestMethodsAnswerAllow(t *testing.T) {
	f := serve(t, httpd.Config{})
	a := f.must(405, "POST", mapsPath+"/m", "{}")
	if got := a.head.Get("Allow"); got != "DELETE, GET, PATCH, PUT" {
		t.Errorf("Allow %q", got)
	}
	if s := a.status(t); s.Reason != metav1.StatusReasonMethodNotAllowed {
		t.Errorf("%+v", s)
	}
	for _, path := range []string{"/", "/api/v1/widgets", "/apis/apps/v1/widgets", "/metrics"} {
		if s := f.must(http.StatusNotFound, "GET", path, "").status(t); s.Reason != metav1.StatusReasonNotFound {
			t.Errorf("%s: %+v", path, s)
		}
	}
}

// A node reads its own pods and what they refer to; the rest of its rights is in the matrix of authz_test.go.
func TestNodeReads(t *testing.T) {
	f := serve(t, httpd.Config{})
	const secrets = "/api/v1/namespaces/default/secrets"
	f.must(201, "POST", secrets, `{"metadata":{"name":"other"},"data":{"k":"djE="}}`)
	f.must(201, "POST", podsPath, strings.Replace(pod("mine"), `"spec":{`, `"spec":{"nodeName":"a",`, 1))
	f.must(201, "POST", podsPath, strings.Replace(pod("theirs"), `"spec":{`, `"spec":{"nodeName":"b",`, 1))
	for path, want := range map[string]int{
		podsPath + "/mine":   200,
		podsPath + "/theirs": 403,
		podsPath + "/none":   403,
		podsPath:             403,
		podsPath + "?fieldSelector=spec.nodeName%3Da":         200,
		podsPath + "?fieldSelector=spec.nodeName%3Db":         403,
		secrets + "/other":                                    403,
		secrets:                                               403,
		secrets + "?fieldSelector=metadata.name%3Dother":      403,
		"/api/v1/secrets?fieldSelector=metadata.name%3Dother": 403,
		"/api/v1/namespaces/kube-system/secrets/other":        403,
		"/api/v1/nodes/b":                                     403,
	} {
		if a := f.do(nodeA, "GET", path, ""); a.code != want {
			t.Errorf("%s: %d %s, want %d", path, a.code, a.body, want)
		}
	}
}

// unlisted notes who decodes Ingresses.
type unlisted struct {
	*local.Client
	lists atomic.Int32
}

func (u *unlisted) List(ctx context.Context, k *api.Kind, o api.ListOptions) (api.List, error) {
	if k == networking.Ingresses {
		u.lists.Add(1)
	}
	return u.Client.List(ctx, k, o)
}

// The pods that take requests in read the Secrets that an Ingress of their class names, as long as one does; a read decodes no Ingresses.
func TestIngressReads(t *testing.T) {
	db, err := disk.Open(t.Context(), disk.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	client, err := local.New(local.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	counts := &unlisted{Client: client}
	f := serve(t, httpd.Config{Client: counts})
	const secrets, ingresses = "/api/v1/namespaces/default/secrets", "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
	for _, name := range []string{"ours", "others", "private"} {
		f.must(201, "POST", secrets, `{"metadata":{"name":"`+name+`"},"data":{"k":"djE="}}`)
	}
	for name, class := range map[string]string{"ours": "ledge", "others": "others"} {
		f.must(201, "POST", ingresses, `{"metadata":{"name":"`+name+`"},"spec":{"ingressClassName":"`+class+`","tls":[{"secretName":"`+name+
			`"}],"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}`)
	}
	check := func(ours int) {
		t.Helper()
		for path, want := range map[string]int{secrets + "/ours": ours, secrets + "/others": 403, secrets + "/private": 403, secrets: 403,
			secrets + "?fieldSelector=metadata.name%3Dours": 403, "/api/v1/namespaces/kube-system/secrets/ours": 403} {
			if a := f.do(taker, "GET", path, ""); a.code != want {
				t.Errorf("%s: %d %s, want %d", path, a.code, a.body, want)
			}
		}
	}
	check(200)
	f.must(200, "DELETE", ingresses+"/ours", "")
	check(403)
	if n := counts.lists.Load(); n > 0 {
		t.Errorf("%d lists of Ingresses", n)
	}
}

// Nothing is decoded for a caller who may not do what is asked: a body that no decoder could read is a 403 too.
func TestAuthorisedBeforeDecoded(t *testing.T) {
	f := serve(t, httpd.Config{})
	for _, u := range []api.User{bob, nodeA} {
		a := f.do(u, "POST", mapsPath, strings.Repeat("[", 200<<10), "Content-Type", "text/nonsense")
		if s := a.status(t); s.Code != 403 || !strings.Contains(s.Message, `User "`+u.Name+`" cannot create resource "configmaps"`) {
			t.Errorf("%s: %d %s", u.Name, s.Code, s.Message)
		}
	}
}

// Kinds that come later answer empty, and every write to them says why not.
func TestKindsThatComeLater(t *testing.T) {
	later := *kinds.All // a board that has no claims
	later.Kept = slices.DeleteFunc(slices.Clone(later.Kept), func(k *api.Kind) bool {
		return k == api.PersistentVolumeClaims || k == api.PersistentVolumes || k == storage.StorageClasses
	})
	later.Later = append(slices.Clone(later.Later), api.DefineLater("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true, "pvc"),
		api.DefineLater("storage.k8s.io", "v1", "StorageClass", "storageclasses", false, "sc"))
	f := serve(t, httpd.Config{Kinds: &later})
	const claims = "/api/v1/namespaces/default/persistentvolumeclaims"
	for _, path := range []string{"/api/v1/persistentvolumeclaims", "/api/v1/namespaces/default/persistentvolumeclaims",
		"/apis/storage.k8s.io/v1/storageclasses"} {
		var list struct {
			Kind     string
			Items    []any
			Metadata metav1.ListMeta
		}
		f.must(200, "GET", path+"?limit=500", "").into(t, &list)
		if !strings.HasSuffix(list.Kind, "List") || list.Items == nil || len(list.Items) > 0 || list.Metadata.ResourceVersion == "" {
			t.Errorf("%s: %+v", path, list)
		}
	}
	f.must(404, "GET", claims+"/data", "")
	for _, c := range []struct{ method, path, word string }{
		{"POST", claims, "persistentvolumeclaims are not supported by ledge yet"},
		{"PATCH", claims + "/data", "persistentvolumeclaims are not supported by ledge yet"},
		{"DELETE", "/apis/storage.k8s.io/v1/storageclasses", "storageclasses.storage.k8s.io are not supported by ledge yet"},
	} {
		a := f.must(405, c.method, c.path, "{}")
		if s := a.status(t); !strings.Contains(s.Message, c.word) || s.Reason != metav1.StatusReasonMethodNotAllowed {
			t.Errorf("%s %s: %+v", c.method, c.path, s)
		}
	}
	f.must(405, "POST", claims+"?fieldValidation=Strict",
		`{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"d"},"spec":{"volumeName":"v"}}`)
	f.must(405, "POST", claims, `{"spec":{"colour":"red"}}`)
	f.must(405, "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests?fieldValidation=Strict", `{"x":1}`) // no schema of it
	for body, want := range map[string]string{
		`{"metadata":{"a":1},"spec":{"volumeName":"v","volumeName":"w"}}`: `PersistentVolumeClaim in version "v1" cannot be handled as a PersistentVolumeClaim: ` +
			`strict decoding error: unknown field "metadata.a", duplicate field "spec.volumeName"`,
		`{"spec":`: "cannot be handled: ",
	} {
		if s := f.must(400, "POST", claims+"?fieldValidation=Strict", body).status(t); !strings.Contains(s.Message, want) {
			t.Errorf("%s: %s", body, s.Message)
		}
	}
	if s := f.must(400, "POST", claims+"?fieldValidation=Strict", "spec: {colour: red}", "Content-Type",
		"application/yaml").status(t); !strings.Contains(s.Message, `"spec.colour"`) {
		t.Error(s.Message)
	}
	if a := f.do(bob, "POST", claims, "{}"); a.code != 403 {
		t.Errorf("who may not make any: %d", a.code)
	}
	var service corev1.Service
	f.must(200, "GET", "/api/v1/namespaces/default/services/kubernetes", "").into(t, &service)
	if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Name != "https" {
		t.Errorf("%+v", service.Spec)
	}
	// A watch of nothing says where its beginning ends, and ends when its time is up.
	a := f.must(200, "GET", "/api/v1/persistentvolumeclaims?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
		"")
	if !strings.Contains(a.body, `"BOOKMARK"`) || !strings.Contains(a.body, metav1.InitialEventsAnnotationKey) ||
		!strings.Contains(a.body, `"kind":"PersistentVolumeClaim"`) {
		t.Errorf("watch: %s", a.body)
	}
}

// Server-side apply on the wire: 201 when it makes the object, YAML or JSON, 409 with the fields and their managers.
func TestApply(t *testing.T) {
	f := serve(t, httpd.Config{})
	config := "kind: ConfigMap\napiVersion: v1\nmetadata: {name: m}\ndata: {k: one}\n"
	var m corev1.ConfigMap
	f.must(201, "PATCH", mapsPath+"/m?fieldManager=a", config, "Content-Type", applyPatch).into(t, &m)
	if m.Data["k"] != "one" || len(m.ManagedFields) != 1 || m.ManagedFields[0].Manager != "a" {
		t.Errorf("%+v", m)
	}
	f.must(200, "PATCH", mapsPath+"/m?fieldManager=a", config, "Content-Type", applyPatch)
	other := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m"},"data":{"k":"two"}}`
	s := f.must(409, "PATCH", mapsPath+"/m?fieldManager=b", other, "Content-Type", applyPatch).status(t)
	if s.Reason != metav1.StatusReasonConflict || len(s.Details.Causes) != 1 || s.Details.Causes[0].Field != ".data.k" {
		t.Errorf("%+v", s)
	}
	f.must(200, "PATCH", mapsPath+"/m?fieldManager=b&force=true", other, "Content-Type", applyPatch).into(t, &m)
	if m.Data["k"] != "two" {
		t.Errorf("%+v", m.Data)
	}
}

// Reviews about others are for administrators, in one namespace or all; an answer is no row of a table.
func TestSubjectReviews(t *testing.T) {
	f := serve(t, httpd.Config{})
	const all, local = "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		"/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
	ask := func(user, group, verb, resource string) string {
		return fmt.Sprintf(`{"spec":{"user":%q,"groups":[%q],"resourceAttributes":{"verb":%q,"resource":%q,"namespace":"default"}}}`, user, group,
			verb, resource)
	}
	for _, path := range []string{all, local} {
		for _, tc := range []struct {
			body    string
			allowed bool
		}{
			{ask("x", "system:masters", "delete", "pods"), true},
			{ask("x", "people", "delete", "pods"), false},
			{ask("system:node:a", "system:nodes", "get", "pods"), true},
			{ask("system:node:a", "system:nodes", "update", "secrets"), false},
		} {
			var v struct {
				Kind   string
				Status struct {
					Allowed bool
					Reason  string
				}
			}
			f.must(201, "POST", path, tc.body).into(t, &v)
			if v.Status.Allowed != tc.allowed || !tc.allowed && v.Status.Reason == "" || !strings.HasSuffix(v.Kind, "SubjectAccessReview") {
				t.Errorf("%s %s: %+v", path, tc.body, v)
			}
		}
		if a := f.do(nodeA, "POST", path, ask("x", "y", "get", "pods")); a.code != 403 {
			t.Errorf("a node may ask about others: %d", a.code)
		}
		f.must(406, "POST", path, ask("x", "y", "get", "pods"), "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		f.must(400, "POST", path, `{"spec":{"user":"x"}}`)
	}
	f.must(400, "POST", all, `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`)
	f.must(400, "POST", local, strings.Replace(ask("x", "y", "get", "pods"), `"default"`, `"other"`, 1))
	f.must(400, "POST", local, strings.Replace(ask("x", "y", "get", "namespaces"), `"namespaces"`, `"namespaces","name":"other"`, 1))
}

// applyEvents applies configurations in the newer form to events that are kept in the older one.
func (f *fixture) applyEvents(t *testing.T, path, old string) {
	t.Helper()
	var v struct {
		APIVersion, Note string
		Metadata         metav1.ObjectMeta
		Series           *struct{ Count int }
	}
	const mine = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e"},"note":"%s","deprecatedCount":7}`
	f.must(409, "PATCH", path+"/e?fieldManager=x", fmt.Sprintf(mine, "mine"), "Content-Type", applyPatch)
	f.must(200, "PATCH", path+"/e?fieldManager=x&force=true", fmt.Sprintf(mine, "mine"), "Content-Type", applyPatch).into(t, &v)
	if v.APIVersion != "events.k8s.io/v1" || v.Note != "mine" || v.Series == nil || v.Series.Count != 2 {
		t.Errorf("applied: %+v", v)
	}
	var core corev1.Event
	f.must(200, "GET", old+"/e", "").into(t, &core)
	if core.Message != "mine" || core.Count != 7 || core.InvolvedObject.Name != "p" || len(core.ManagedFields) == 0 {
		t.Errorf("in the older form: %+v", core)
	}
	// The same manager may say the same in the older form: its fields are one.
	core = corev1.Event{}
	f.must(200, "PATCH", old+"/e?fieldManager=x", `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"message":"still mine"}`,
		"Content-Type", applyPatch).into(t, &core)
	if core.Message != "still mine" || core.Count != 0 {
		t.Errorf("given up by the same manager: %+v", core)
	}
	w := f.must(409, "PATCH", path+"/e?fieldManager=y", fmt.Sprintf(mine, "no, mine"), "Content-Type", applyPatch)
	if !strings.Contains(w.body, `conflict with \"x\"`) {
		t.Errorf("conflict: %s", w.body)
	}
	for _, bad := range []string{`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"}}`, strings.Replace(mine, "note", "message", 1),
		strings.Replace(mine, "note", "nothing", 1)} {
		f.must(400, "PATCH", path+"/e?fieldManager=x", bad, "Content-Type", applyPatch)
	}
	// One that is not there is made.
	const made = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"f"},"eventTime":"2026-11-20T10:00:00.000000Z","reportingController":"c",
		"reportingInstance":"i","action":"Do","reason":"Why","type":"Normal","note":"new","regarding":{"kind":"Pod","name":"f","namespace":"default"}}`
	f.must(201, "PATCH", path+"/f?fieldManager=x", made, "Content-Type", applyPatch)
	core = corev1.Event{}
	f.must(200, "GET", old+"/f", "").into(t, &core)
	if core.Message != "new" || core.ReportingController != "c" || core.InvolvedObject.Name != "f" {
		t.Errorf("made: %+v", core)
	}
	f.must(200, "DELETE", path+"/f", "")
	f.must(200, "PATCH", path+"/e", `{"note":"bye"}`, "Content-Type", strategicPatch)
}

// The newer form of events: the same objects under other names of their fields, with everything that can be done to them.
func TestEventsV1(t *testing.T) {
	f := serve(t, httpd.Config{})
	const path, old = "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"
	event := `{"metadata":{"name":"e","labels":{"a":"b"}},"eventTime":"2026-11-20T10:00:00.000000Z","reportingController":"c",
		"reportingInstance":"i","action":"Do","reason":"Why","type":"Normal","note":"hello","regarding":{"kind":"Pod","name":"p","namespace":"default"}}`
	var v map[string]any
	f.must(201, "POST", path, event).into(t, &v)
	if v["apiVersion"] != "events.k8s.io/v1" || v["note"] != "hello" {
		t.Errorf("%v", v)
	}
	var core corev1.Event
	f.must(200, "GET", old+"/e", "").into(t, &core)
	if core.Message != "hello" || core.InvolvedObject.Name != "p" || core.ReportingController != "c" || core.APIVersion != "v1" {
		t.Errorf("%+v", core)
	}
	f.must(200, "PATCH", path+"/e", `{"note":"bye","series":{"count":2,"lastObservedTime":"2026-11-20T10:00:01.000000Z"}}`, "Content-Type",
		strategicPatch).into(t, &v)
	if v["note"] != "bye" {
		t.Errorf("patched: %v", v)
	}
	f.applyEvents(t, path, old)
	var list struct{ Items []map[string]any }
	for query, n := range map[string]int{"": 1, "?fieldSelector=regarding.name%3Dp,reportingController%3Dc": 1,
		"?fieldSelector=regarding.name%3Dq": 0,
		"?labelSelector=a%3Db":              1} {
		f.must(200, "GET", path+query, "").into(t, &list)
		if len(list.Items) != n {
			t.Errorf("%q: %d", query, len(list.Items))
		}
	}
	f.must(400, "GET", path+"?fieldSelector=involvedObject.name%3Dp", "")
	w := f.must(200, "GET", path+"?watch=1&timeoutSeconds=1", "")
	if !strings.Contains(w.body, `"note":"bye"`) || !strings.Contains(w.body, `"apiVersion":"events.k8s.io/v1"`) {
		t.Errorf("watch: %s", w.body)
	}
	var table metav1.Table
	f.must(200, "GET", path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").into(t, &table)
	if len(table.Rows) != 1 || !strings.Contains(fmt.Sprint(table.Rows[0].Cells), "pod/p") {
		t.Errorf("table: %v", table.Rows)
	}
	f.must(200, "DELETE", path+"?labelSelector=a%3Db", "")
	f.must(404, "GET", old+"/e", "")
}

// TestNamespaceOfTheClusterScoped: clients send a namespace with what can have none; it is left out, in every way to write.
func TestNamespaceOfTheClusterScoped(t *testing.T) {
	f := serve(t, httpd.Config{})
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	const binding = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"b","namespace":"default","labels":{"a":"%d"}},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`
	for i, w := range []struct{ method, path, media string }{
		{"POST", path, "application/json"}, {"PUT", path + "/b", "application/json"}, {"PATCH", path + "/b", "application/merge-patch+json"},
		{"PATCH", path + "/b?fieldManager=x&force=true", applyPatch}, {"PATCH", path + "/new?fieldManager=x", applyPatch},
	} {
		body := fmt.Sprintf(binding, i)
		code := 200
		if strings.Contains(w.path, "/new") {
			body, code = strings.Replace(body, `"name":"b"`, `"name":"new"`, 1), 201
		}
		if w.method == "POST" {
			code = 201
		}
		var v metav1.PartialObjectMetadata
		f.must(code, w.method, w.path, body, "Content-Type", w.media).into(t, &v)
		if v.Namespace != "" || v.Labels["a"] != fmt.Sprint(i) {
			t.Errorf("%s %s: %+v", w.method, w.media, v.ObjectMeta)
		}
	}
}
