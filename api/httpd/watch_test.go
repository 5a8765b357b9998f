package httpd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
	"ledge/api/batch"
	"ledge/api/coordination"
	"ledge/api/discovery"
	"ledge/api/events"
	"ledge/api/httpd"
	"ledge/api/kinds"
	"ledge/api/networking"
	"ledge/api/node"
	"ledge/api/policy"
	"ledge/api/rbac"
	"ledge/api/scheduling"
	"ledge/api/storage"
	"ledge/pki"
)

const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// stream is a watch as a client sees it.
type stream struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

func (f *fixture) watch(path string, headers ...string) *stream {
	f.t.Helper()
	resp, err := f.send(admin, "GET", path, "", headers...)
	if err != nil {
		f.t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		f.t.Fatalf("GET %s: %d %s", path, resp.StatusCode, body)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	return &stream{f.t, resp, bufio.NewReader(resp.Body)}
}

// line is one event of a watch, as much of it as the tests look at.
type line struct {
	Type   string
	Object struct {
		Kind              string
		Metadata          metav1.ObjectMeta
		Data              map[string]string
		Code              int
		Reason            string
		ColumnDefinitions []any
		Rows              []struct {
			Cells  []any
			Object struct {
				Kind     string
				Metadata metav1.ObjectMeta
			}
		}
	}
}

func (l line) String() string {
	name := l.Object.Metadata.Name
	if len(l.Object.Rows) > 0 {
		name = fmt.Sprint(l.Object.Rows[0].Cells[0])
	}
	return strings.TrimSpace(l.Type + " " + name + " " + l.Object.Data["k"])
}

func (s *stream) next() line {
	s.t.Helper()
	text, err := s.in.ReadString('\n')
	if err != nil {
		s.t.Fatalf("watch ended: %v", err)
	}
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		s.t.Fatalf("%q: %v", text, err)
	}
	return l
}

func (s *stream) expect(want ...string) {
	s.t.Helper()
	for _, w := range want {
		if got := s.next().String(); got != w {
			s.t.Errorf("event %q, want %q", got, w)
		}
	}
}

// ended expects the end of the stream.
func (s *stream) ended() {
	s.t.Helper()
	if rest, err := io.ReadAll(s.in); err != nil || len(rest) > 0 {
		s.t.Errorf("watch went on with %q (%v), want its end", rest, err)
	}
}

func (f *fixture) revision(path string) string {
	f.t.Helper()
	var list struct{ Metadata metav1.ListMeta }
	f.must(200, "GET", path, "").into(f.t, &list)
	return list.Metadata.ResourceVersion
}

// N-11.30: the present state first, or what comes after a revision; selectors turn changes into DELETED.
func TestWatch(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	here := f.revision(mapsPath)
	all := f.watch(mapsPath + "?watch=1")
	zero := f.watch(mapsPath + "?watch=1&resourceVersion=0")
	after := f.watch(mapsPath + "?watch=1&resourceVersion=" + here)
	picked := f.watch(mapsPath + "?watch=1&labelSelector=x%3Done&resourceVersion=" + here)
	named := f.watch(mapsPath + "?watch=1&fieldSelector=metadata.name%3Dother&resourceVersion=" + here)
	f.must(200, "PUT", mapsPath+"/m", configMap("m", "two"))
	f.must(201, "POST", mapsPath, configMap("other", "o"))
	f.must(200, "DELETE", mapsPath+"/m", "")
	all.expect("ADDED m one", "MODIFIED m two", "ADDED other o", "DELETED m two")
	zero.expect("ADDED m one", "MODIFIED m two", "ADDED other o", "DELETED m two")
	after.expect("MODIFIED m two", "ADDED other o", "DELETED m two")
	if l := picked.next(); l.Type != "DELETED" || l.Object.Metadata.Name != "m" {
		t.Errorf("out of the selection: %v", l)
	}
	named.expect("ADDED other o")
}

// N-11.31: initial events end with a marked bookmark.
func TestWatchInitialEvents(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	const query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=300"
	s := f.watch(mapsPath + query)
	s.expect("ADDED m one")
	l := s.next()
	if l.Type != "BOOKMARK" || l.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] != "true" || l.Object.Kind != "ConfigMap" {
		t.Errorf("after the initial events: %+v", l)
	}
	f.must(201, "POST", mapsPath, configMap("n", "two"))
	s.expect("ADDED n two")

	none := f.watch(mapsPath + "?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	f.must(200, "DELETE", mapsPath+"/n", "")
	none.expect("DELETED n two")
}

// N-11.18: each event is a table of one row; the columns come once.
func TestWatchTable(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", podsPath, pod("p"))
	s := f.watch(podsPath+"?watch=true&resourceVersion=0", "Accept", tableAccept)
	f.must(200, "PATCH", podsPath+"/p", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
	first, second := s.next(), s.next()
	if first.Object.Kind != "Table" || len(first.Object.ColumnDefinitions) != 9 || first.Type != "ADDED" {
		t.Errorf("first %+v", first)
	}
	if second.Object.Kind != "Table" || second.Object.ColumnDefinitions != nil || second.Type != "MODIFIED" {
		t.Errorf("second %+v", second)
	}
	if row := second.Object.Rows[0]; row.Object.Kind != "PartialObjectMetadata" || row.Object.Metadata.Labels["a"] != "b" ||
		row.Cells[2] != "Pending" {
		t.Errorf("row %+v", row)
	}
}

// N-11.18: every kind can be watched as a table, with the columns that its list has.
func TestWatchTableOfEveryKind(t *testing.T) {
	f := serve(t, httpd.Config{})
	if err := f.store.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	const binding = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"bob"}]`
	const deployed = `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
	const scaled = `"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}`
	const job = `"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`
	bodies := map[*api.Kind]string{batch.Jobs: job, batch.CronJobs: `"spec":{"schedule":"@daily","jobTemplate":{` + job + `}}`,
		apps.ControllerRevisions: `"data":{},"revision":1`, apps.DaemonSets: deployed, apps.Deployments: deployed, apps.ReplicaSets: deployed,
		apps.StatefulSets: deployed, api.Pods: `"spec":{"containers":[{"name":"c","image":"i"}]}`,
		api.PodTemplates:           `"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		api.ReplicationControllers: `"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`,
		api.Events:                 `"involvedObject":{"namespace":"default"},"reason":"R","type":"Normal"`,
		node.RuntimeClasses:        `"handler":"ledge"`, scheduling.PriorityClasses: `"value":7`,
		policy.PodDisruptionBudgets: `"spec":{"minAvailable":1}`, rbac.RoleBindings: binding, rbac.ClusterRoleBindings: binding,
		coordination.Leases:                  `"spec":{}`,
		api.Services:                         `"spec":{"ports":[{"port":80}]}`,
		discovery.EndpointSlices:             `"addressType":"IPv4","endpoints":[]`,
		networking.IngressClasses:            `"spec":{"controller":"x.io/y"}`,
		networking.Ingresses:                 `"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}`,
		networking.IPAddresses:               `"spec":{"parentRef":{"group":"x.io","resource":"things","name":"mine"}}`,
		networking.NetworkPolicies:           `"spec":{"podSelector":{}}`,
		api.PersistentVolumeClaims:           `"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`,
		api.PersistentVolumes:                `"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"}}`,
		storage.StorageClasses:               `"provisioner":"x.io/y"`,
		storage.CSIStorageCapacities:         `"storageClassName":"c"`,
		storage.VolumeAttachments:            `"spec":{"attacher":"x.io","nodeName":"n","source":{"persistentVolumeName":"v"}}`,
		storage.VolumeAttributesClasses:      `"driverName":"x.io","parameters":{"a":"b"}`,
		networking.ServiceCIDRs:              `"spec":{"cidrs":["192.0.2.0/24"]}`,
		autoscaling.HorizontalPodAutoscalers: scaled, autoscaling.HorizontalPodAutoscalersV1: scaled,
		events.Events: `"regarding":{"namespace":"default"},"reason":"R","type":"Normal","action":"A","reportingController":"x.io/y","reportingInstance":"z","eventTime":"2026-11-20T12:00:00.000000Z"`}
	for _, k := range slices.Concat(kinds.All.Kept, kinds.All.Views) {
		path, name := "/apis/"+k.APIVersion(), "x-"+strings.ToLower(k.Name)+k.Version
		if k.Group == "" {
			path = "/api/v1"
		} else {
			name += "-" + strings.ReplaceAll(k.Group, ".", "-")
		}
		if k.Namespaced {
			path += "/namespaces/default"
		}
		path += "/" + k.Resource
		query := "?watch=1&resourceVersion=0&fieldSelector=metadata.name%3D" + name
		if k == networking.IPAddresses { // which have no other names
			query, name = strings.Replace(query, name, "192.0.2.7", 1), "192.0.2.7"
		}
		body := bodies[k]
		if body != "" {
			body = "," + body
		}
		f.must(201, "POST", path, `{"metadata":{"name":"`+name+`"}`+body+`}`)
		var list struct{ ColumnDefinitions []any }
		f.must(200, "GET", path, "", "Accept", tableAccept).into(t, &list)
		s := f.watch(path+query, "Accept", tableAccept)
		first := s.next()
		if first.Type != "ADDED" || first.Object.Kind != "Table" || len(list.ColumnDefinitions) == 0 ||
			!reflect.DeepEqual(first.Object.ColumnDefinitions, list.ColumnDefinitions) ||
			len(first.Object.Rows) != 1 || len(first.Object.Rows[0].Cells) != len(list.ColumnDefinitions) {
			t.Errorf("%s: first %+v", k, first)
		}
		f.must(200, "PATCH", path+"/"+name, `{"metadata":{"labels":{"a":"c"}}}`, "Content-Type", mergePatch)
		second := s.next()
		if second.Type != "MODIFIED" || second.Object.Kind != "Table" || second.Object.ColumnDefinitions != nil || len(second.Object.Rows) != 1 ||
			second.Object.Rows[0].Object.Metadata.Labels["a"] != "c" || len(second.Object.Rows[0].Cells) != len(list.ColumnDefinitions) {
			t.Errorf("%s: second %+v", k, second)
		}
	}
}

func TestWatchTooOld(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	here := f.revision(mapsPath)
	for i := range 100 { // more than the ring holds
		f.must(200, "PUT", mapsPath+"/m", configMap("m", fmt.Sprint(i)))
	}
	l := f.watch(mapsPath + "?watch=1&resourceVersion=" + here).next()
	if l.Type != "ERROR" || l.Object.Kind != "Status" || l.Object.Code != 410 || l.Object.Reason != "Expired" {
		t.Errorf("N-11.30: %+v", l)
	}
}

func TestListAndWatchOptions(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", mapsPath, configMap("m", "one"))
	here := f.revision(mapsPath)
	for query, want := range map[string]int{
		"resourceVersion=0":       200,
		"resourceVersion=" + here: 200,
		"resourceVersion=" + here + "&resourceVersionMatch=NotOlderThan": 200,
		"resourceVersion=0&resourceVersionMatch=NotOlderThan":            200,
		"resourceVersion=999999999":                                      504,
		"resourceVersion=abc":                                            422,
		"resourceVersion=-1":                                             422,
		"resourceVersionMatch=Exact":                                     422,
		"resourceVersion=0&resourceVersionMatch=Exact":                   422,
		"resourceVersion=1&resourceVersionMatch=Perhaps":                 422,
		"continue=x&resourceVersion=0&resourceVersionMatch=NotOlderThan": 422,
		"continue=x&resourceVersion=5":                                   422,
		"continue=nonsense":                                              400,
		"sendInitialEvents=true":                                         422,
		"limit=x":                                                        400,
		"limit=-1":                                                       422,
		"labelSelector=a%3D%3D%3Db":                                      400,
		"fieldSelector=spec.nodeName%3Da":                                400,
		"fieldSelector=metadata.name":                                    400,
		"watch=1&resourceVersionMatch=NotOlderThan":                      422,
		"watch=1&sendInitialEvents=true":                                 422,
		"watch=1&sendInitialEvents=true&resourceVersionMatch=Exact":      422,
		"watch=1&timeoutSeconds=-1":                                      422,
		"watch=1&timeoutSeconds=x":                                       400,
		"watch=1&continue=x":                                             422,
		"watch=1&fieldSelector=no.such%3Da":                              400,
		"watch=perhaps":                                                  400,
	} {
		if a := f.do(admin, "GET", mapsPath+"?"+query, ""); a.code != want {
			t.Errorf("%s: %d %s, want %d", query, a.code, a.body, want)
		}
	}
	// One object may be asked for by revision too.
	f.must(200, "GET", mapsPath+"/m?resourceVersion=0", "")
	f.must(200, "GET", mapsPath+"/m?resourceVersion="+here, "")
	f.must(404, "GET", mapsPath+"/n?resourceVersion="+here, "")
	s := f.must(504, "GET", mapsPath+"/m?resourceVersion=999999999", "").status(t)
	if len(s.Details.Causes) == 0 || s.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge {
		t.Errorf("N-11.29: %+v", s)
	}
}

// N-11.29: pages of one snapshot, in the form kubectl asks for.
func TestPages(t *testing.T) {
	f := serve(t, httpd.Config{})
	for _, n := range []string{"a", "b", "c"} {
		f.must(201, "POST", mapsPath, configMap(n, n))
	}
	var names []string
	token := ""
	for range 5 {
		var page struct {
			Metadata metav1.ListMeta
			Rows     []struct{ Cells []any }
		}
		f.must(200, "GET", mapsPath+"?limit=2&continue="+token, "", "Accept", tableAccept).into(t, &page)
		for _, r := range page.Rows {
			names = append(names, fmt.Sprint(r.Cells[0]))
		}
		if token = page.Metadata.Continue; token == "" {
			break
		}
		if n := page.Metadata.RemainingItemCount; n == nil || *n != 1 {
			t.Errorf("remaining %v", n)
		}
	}
	if got := strings.Join(names, " "); got != "a b c" {
		t.Errorf("pages %q", got)
	}
}

func TestListForms(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", podsPath, pod("p"))
	list := f.must(200, "GET", podsPath, "")
	for _, want := range []string{`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"`,
		`"items":[{"kind":"Pod","apiVersion":"v1",`} {
		if !strings.Contains(list.body, want) {
			t.Errorf("list without %s: %s", want, list.body)
		}
	}
	if got := f.must(200, "GET", "/api/v1/namespaces/none/pods", "").body; !strings.Contains(got, `"items":[]`) {
		t.Errorf("N-11.42: an empty list is %s", got)
	}
	if got := f.must(200, "GET", "/api/v1/namespaces/none/pods", "", "Accept", tableAccept).body; !strings.Contains(got, `"rows":[]`) ||
		strings.Count(got, `"rows"`) != 1 {
		t.Errorf("an empty table is %s", got)
	}
	meta := f.must(200, "GET", podsPath, "", "Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").body
	if !strings.Contains(meta, `"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"`) || strings.Contains(meta, `"spec"`) {
		t.Errorf("metadata only: %s", meta)
	}
	one := f.must(200, "GET", podsPath+"/p", "", "Accept", "application/json;as=Table;v=v1beta1;g=meta.k8s.io").body
	if !strings.Contains(one, `"kind":"Table","apiVersion":"meta.k8s.io/v1beta1"`) ||
		!strings.Contains(one, `"cells":["p","0/1","Pending","0"`) {
		t.Errorf("one pod as a table: %s", one)
	}
	if got := f.must(200, "GET", podsPath+"/p?pretty=true", "").body; !strings.Contains(got, "\n  \"metadata\": {") {
		t.Errorf("pretty: %s", got)
	}
	// The first offer that can be met wins, weights aside.
	for accept, kind := range map[string]string{
		"application/vnd.kubernetes.protobuf,application/json": "PodList",
		"application/json;as=Table;v=v9;g=meta.k8s.io, */*":    "PodList",
		"text/html, application/json;q=0.5":                    "PodList",
		"application/json;q=0.1, " + tableAccept:               "Table",
		"":                                                     "PodList",
	} {
		if got := f.must(200, "GET", podsPath, "", "Accept", accept).body; !strings.HasPrefix(got, `{"kind":"`+kind+`"`) {
			t.Errorf("Accept %q: %.60s, want a %s", accept, got, kind)
		}
	}
}

// A watch lasts as long as the client says, at most; without a word half an hour to an hour.
func TestWatchTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		start := time.Now()
		f.watch(mapsPath + "?watch=1&timeoutSeconds=7").ended()
		if got := time.Since(start); got < 7*time.Second || got > 8*time.Second {
			t.Errorf("timeoutSeconds=7 took %s", got)
		}
		start = time.Now()
		f.watch(mapsPath + "?watch=1").ended()
		if got := time.Since(start); got < 30*time.Minute || got > time.Hour {
			t.Errorf("a watch of its own length took %s", got)
		}
		f.stop()
	})
}

// A quiet watch says where it is (N-11.31), and outlives every deadline of a single write.
func TestQuietWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		s := f.watch(mapsPath + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=600")
		start := time.Now()
		for range 5 {
			if l := s.next(); l.Type != "BOOKMARK" || l.Object.Metadata.ResourceVersion == "" {
				t.Fatalf("%+v", l)
			}
		}
		if d := time.Since(start); d < 4*time.Minute || d > 6*time.Minute {
			t.Errorf("five bookmarks took %s", d)
		}
		f.must(201, "POST", mapsPath, configMap("m", "one"))
		s.expect("ADDED m one")
		s.resp.Body.Close()
		f.stop()
	})
}

// The same over TLS and HTTP/2, where a deadline that passes kills the stream even if nobody writes.
func TestQuietWatchOverHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		h, err := httpd.New(httpd.Config{Client: f.store})
		if err != nil {
			t.Fatal(err)
		}
		a, err := pki.Open(pki.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		conf, err := a.ServerTLS([]string{"x"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		door, dial := httpd.Pipe(admin)
		l, err := httpd.WrapTLS(door.Listener, conf)
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}})
		client := withCert(t, a, "x", api.AdminGroup)
		tr := client.Transport.(*http.Transport)
		tr.DialContext = dialer(dial)
		resp, err := client.Get("https://x" + mapsPath + "?watch=1&timeoutSeconds=1800")
		if err != nil || resp.Proto != "HTTP/2.0" {
			t.Fatal(resp, err)
		}
		time.Sleep(10 * time.Minute)
		f.must(201, "POST", mapsPath, configMap("m", "one"))
		s := &stream{t, resp, bufio.NewReader(resp.Body)}
		s.expect("ADDED m one")
		resp.Body.Close()
		tr.CloseIdleConnections()
		stop()
		f.stop()
	})
}
