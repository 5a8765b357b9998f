package httpd_test

import (
	"slices"
	"strings"
	"testing"

	"ledge/api/httpd"
)

// The whole of authorisation: who may do what with which resource. A letter is a verb: g get, l list, w watch,
// c create, u update, p patch, d delete, D deletecollection. "has" is what the API has, and so what members of
// system:masters and those who are bound to cluster-admin may do. admin, edit and view are who is bound to that role in
// the namespace that is asked about; a node asks about what is its own; anybody is whoever is known, among them service
// accounts without a binding or with one elsewhere. Who is not known may do nothing.
const matrix = `
resource                                                       has      admin    edit     view  node   anybody
configmaps                                                     glwcupdD glwcupdD glwcupdD glw   glw    -
endpoints                                                      glwcupdD glw      glw      glw   -      -
events                                                         glwcupdD glwcupdD glwcupdD glw   cup    -
limitranges                                                    glwcupdD glw      glw      glw   -      -
namespaces                                                     glwcupdD g        g        g     lw     -
namespaces/finalize                                            u        -        -        -     -      -
namespaces/status                                              gup      g        g        g     -      -
nodes                                                          glwcupdD -        -        -     glwcup -
nodes/proxy                                                    g        -        -        -     -      -
nodes/status                                                   gup      -        -        -     gup    -
persistentvolumeclaims                                         glwcupdD glwcupdD glwcupdD glw   glwup  -
persistentvolumeclaims/status                                  gup      g        g        g     gup    -
persistentvolumes                                              glwcupdD -        -        -     glwcup -
persistentvolumes/status                                       gup      -        -        -     -      -
pods                                                           glwcupdD glwcupdD glwcupdD glw   glwcd  -
pods/attach                                                    c        c        c        -     -      -
pods/binding                                                   c        -        -        -     -      -
pods/ephemeralcontainers                                       gup      -        -        -     -      -
pods/eviction                                                  c        c        c        -     c      -
pods/exec                                                      c        c        c        -     -      -
pods/log                                                       g        g        g        g     -      -
pods/portforward                                               c        c        c        -     -      -
pods/proxy                                                     gcupd    gcupd    gcupd    -     -      -
pods/resize                                                    gup      -        -        -     -      -
pods/status                                                    gup      g        g        g     gup    -
podtemplates                                                   glwcupdD -        -        -     -      -
replicationcontrollers                                         glwcupdD glwcupdD glwcupdD glw   -      -
replicationcontrollers/scale                                   gup      gup      gup      g     -      -
replicationcontrollers/status                                  gup      g        g        g     -      -
resourcequotas                                                 glwcupdD glw      glw      glw   -      -
resourcequotas/status                                          gup      g        g        g     -      -
secrets                                                        glwcupdD glwcupdD glwcupdD -     glw    -
serviceaccounts                                                glwcupdD glwcupdD glwcupdD glw   -      -
serviceaccounts/token                                          c        c        c        -     c      -
services                                                       glwcupdD glwcupdD glwcupdD glw   glw    -
services/proxy                                                 gcupd    gcupd    gcupd    -     -      -
services/status                                                gup      g        g        g     -      -
mutatingwebhookconfigurations.admissionregistration.k8s.io     glw      -        -        -     -      -
validatingwebhookconfigurations.admissionregistration.k8s.io   glw      -        -        -     -      -
customresourcedefinitions.apiextensions.k8s.io                 glw      -        -        -     -      -
apiservices.apiregistration.k8s.io                             glw      -        -        -     -      -
controllerrevisions.apps                                       glwcupdD glw      glw      glw   -      -
daemonsets.apps                                                glwcupdD glwcupdD glwcupdD glw   -      -
daemonsets.apps/status                                         gup      g        g        g     -      -
deployments.apps                                               glwcupdD glwcupdD glwcupdD glw   -      -
deployments.apps/scale                                         gup      gup      gup      g     -      -
deployments.apps/status                                        gup      g        g        g     -      -
replicasets.apps                                               glwcupdD glwcupdD glwcupdD glw   -      -
replicasets.apps/scale                                         gup      gup      gup      g     -      -
replicasets.apps/status                                        gup      g        g        g     -      -
statefulsets.apps                                              glwcupdD glwcupdD glwcupdD glw   -      -
statefulsets.apps/scale                                        gup      gup      gup      g     -      -
statefulsets.apps/status                                       gup      g        g        g     -      -
selfsubjectreviews.authentication.k8s.io                       c        c        c        c     c      c
tokenreviews.authentication.k8s.io                             c        -        -        -     -      -
selfsubjectaccessreviews.authorization.k8s.io                  c        c        c        c     c      c
selfsubjectrulesreviews.authorization.k8s.io                   c        c        c        c     c      c
subjectaccessreviews.authorization.k8s.io                      c        -        -        -     -      -
localsubjectaccessreviews.authorization.k8s.io                 c        c        -        -     -      -
horizontalpodautoscalers.autoscaling                           glwcupdD glwcupdD glwcupdD glw   -      -
horizontalpodautoscalers.autoscaling/status                    gup      g        g        g     -      -
cronjobs.batch                                                 glwcupdD glwcupdD glwcupdD glw   -      -
cronjobs.batch/status                                          gup      g        g        g     -      -
jobs.batch                                                     glwcupdD glwcupdD glwcupdD glw   -      -
jobs.batch/status                                              gup      g        g        g     -      -
certificatesigningrequests.certificates.k8s.io                 glw      -        -        -     -      -
leases.coordination.k8s.io                                     glwcupdD glwcupdD glwcupdD -     gcup   -
endpointslices.discovery.k8s.io                                glwcupdD glw      glw      glw   glw    -
events.events.k8s.io                                           glwcupdD glwcupdD glwcupdD glw   -      -
nodes.metrics.k8s.io                                           gl       -        -        -     -      -
pods.metrics.k8s.io                                            gl       gl       gl       gl    -      -
ingressclasses.networking.k8s.io                               glwcupdD -        -        -     -      -
ingresses.networking.k8s.io                                    glwcupdD glwcupdD glwcupdD glw   -      -
ingresses.networking.k8s.io/status                             gup      g        g        g     -      -
ipaddresses.networking.k8s.io                                  glwcupdD -        -        -     -      -
networkpolicies.networking.k8s.io                              glwcupdD glwcupdD glwcupdD glw   glw    -
servicecidrs.networking.k8s.io                                 glwcupdD -        -        -     -      -
servicecidrs.networking.k8s.io/status                          gup      -        -        -     -      -
runtimeclasses.node.k8s.io                                     glwcupdD -        -        -     glw    -
poddisruptionbudgets.policy                                    glwcupdD glwcupdD glwcupdD glw   -      -
poddisruptionbudgets.policy/status                             gup      g        g        g     -      -
clusterrolebindings.rbac.authorization.k8s.io                  glwcupdD -        -        -     -      -
clusterroles.rbac.authorization.k8s.io                         glwcupdD -        -        -     -      -
rolebindings.rbac.authorization.k8s.io                         glwcupdD glwcupdD -        -     -      -
roles.rbac.authorization.k8s.io                                glwcupdD glwcupdD -        -     -      -
priorityclasses.scheduling.k8s.io                              glwcupdD -        -        -     -      -
csidrivers.storage.k8s.io                                      glwcupdD -        -        -     -      -
csinodes.storage.k8s.io                                        glwcupdD -        -        -     -      -
csinodes.storage.k8s.io/status                                 gup      -        -        -     -      -
csistoragecapacities.storage.k8s.io                            glwcupdD -        -        -     -      -
storageclasses.storage.k8s.io                                  glwcupdD -        -        -     glw    -
volumeattachments.storage.k8s.io                               glwcupdD -        -        -     -      -
volumeattachments.storage.k8s.io/status                        gup      -        -        -     -      -
volumeattributesclasses.storage.k8s.io                         glwcupdD -        -        -     -      -
`

// matrixOfOwn is what the holders of roles of one's own may do beyond what anybody may (ownRoles): role by a Role in the namespace, wide by
// a ClusterRole that is bound everywhere. What has no line here is nothing to them.
const matrixOfOwn = `
resource                      role     wide
configmaps                    glw      -
leases.coordination.k8s.io    glwcupdD -
nodes                         -        glw
pods/exec                     c        -
pods/log                      -        g
replicationcontrollers/scale  g        -
`

// matrixPaths are the paths that are no object's. Rights in a namespace say nothing about them.
const matrixPaths = `
path                    has  admin edit view node anybody nobody wide
GET:/version            yes  yes   yes  yes  yes  yes     yes    yes
GET:/healthz            yes  yes   yes  yes  yes  yes     -      yes
GET:/readyz             yes  yes   yes  yes  yes  yes     yes    yes
GET:/livez              yes  yes   yes  yes  yes  yes     yes    yes
GET:/api                yes  yes   yes  yes  yes  yes     -      yes
GET:/apis               yes  yes   yes  yes  yes  yes     -      yes
GET:/openapi/v2         yes  yes   yes  yes  yes  yes     -      yes
GET:/openapi/v3         yes  yes   yes  yes  yes  yes     -      yes
GET:/metrics            yes  -     -    -    -    -       -      yes
GET:/metrics/resource   yes  -     -    -    -    -       -      -
GET:/ledge/v1/status    yes  -     -    -    -    -       -      -
POST:/ledge/v1/shutdown yes  -     -    -    -    -       -      -
`

var letters = map[string]string{"get": "g", "list": "l", "watch": "w", "create": "c", "update": "u", "patch": "p", "delete": "d",
	"deletecollection": "D"}

// TestMatrix holds the table against the handler: every resource that discovery shows, with every verb it has, asked by
// everybody, in the namespace they have rights in, in another one, and in all at once.
func TestMatrix(t *testing.T) {
	base, callers := theatre(t)
	want := lines(matrix)
	for name, row := range lines(matrixOfOwn) {
		for column, verbs := range row {
			want[name][column] = verbs
		}
	}
	seen := map[string]bool{}
	asked := 0
	for _, r := range discovered(t, base, callers[0]) {
		name := r.String()
		if seen[name] { // another version of the same
			continue
		}
		seen[name] = true
		row, ok := want[name]
		if !ok {
			t.Errorf("%s has no line in the matrix: who may do what with it?", name)
			continue
		}
		for verb, letter := range letters {
			if slices.Contains(r.Verbs, verb) != strings.Contains(row["has"], letter) {
				t.Errorf("%s has %v, the matrix says %s", name, r.Verbs, row["has"])
			}
			if !slices.Contains(r.Verbs, verb) {
				continue
			}
			for _, c := range callers {
				for _, ns := range namespacesFor(c, r, verb) {
					asked++
					column := c.column
					if ns != "team" {
						column = "anybody" // rights in one namespace are none in another, and none in all of them
					}
					may, wanted := c.ask(t, base, r, verb, ns), strings.Contains(row[column], letter)
					if c.column == "role" || c.column == "wide" {
						wanted = wanted || strings.Contains(row["anybody"], letter)
					}
					if may != wanted {
						t.Errorf("%s: may %s %s in namespace %q: %v, want %v", c.name, verb, name, ns, may, wanted)
					}
				}
			}
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("%s has a line in the matrix, but there is no such resource", name)
		}
	}
	t.Logf("%d requests of %d callers", asked, len(callers))
	if asked < 2500 {
		t.Errorf("only %d requests were asked", asked)
	}
}

// namespacesFor are those that a subject is asked about.
func namespacesFor(c *caller, r discoveredResource, verb string) []string {
	in := []string{"team"}
	if slices.Contains([]string{"admin", "edit", "view", "role"}, c.column) {
		in = append(in, "other")
		if r.Namespaced && (verb == "list" || verb == "watch") {
			in = append(in, "")
		}
	}
	return in
}

// TestMatrixOfPaths: the same for what is no object's.
func TestMatrixOfPaths(t *testing.T) {
	base, callers := theatre(t)
	want := lines(matrixPaths)
	for _, path := range httpd.FixedPaths() {
		if want[path] == nil {
			t.Errorf("%s has no line in the matrix: who may do that?", path)
		}
	}
	t.Logf("%d paths, %d callers", len(want), len(callers))
	for path, row := range want {
		method, path, _ := strings.Cut(path, ":")
		for _, c := range callers {
			column := c.column
			if column == "role" {
				column = "anybody"
			}
			if may, wanted := c.do(t, method, base+path, ""), row[column] == "yes"; may != wanted {
				t.Errorf("%s: may %s %s: %v, want %v", c.name, method, path, may, wanted)
			}
		}
	}
}

// A node may look at where other boards' pods are, which no pod of its names, and at nothing beside it.
func TestNodeReadsPodNetworks(t *testing.T) {
	f := serve(t, httpd.Config{})
	for _, c := range []struct {
		path string
		code int
	}{
		{"/api/v1/namespaces/kube-system/configmaps/ledge-pod-networks", 404}, // allowed: there is none
		{"/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dledge-pod-networks", 200},
		{"/api/v1/namespaces/kube-system/configmaps", 403},
		{"/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dother", 403},
		{"/api/v1/namespaces/kube-system/configmaps/other", 403},
		{"/api/v1/namespaces/default/configmaps/ledge-pod-networks", 403},
		{"/api/v1/namespaces/kube-system/secrets/ledge-pod-networks", 403},
	} {
		if a := f.do(nodeA, "GET", c.path, ""); a.code != c.code {
			t.Errorf("%s: %d, want %d: %s", c.path, a.code, c.code, a.body)
		}
	}
	if a := f.do(nodeA, "PATCH", "/api/v1/namespaces/kube-system/configmaps/ledge-pod-networks", `{"data":{"a":"b"}}`, "Content-Type",
		"application/merge-patch+json"); a.code != 403 {
		t.Errorf("a node writes it: %d", a.code)
	}
}
