package httpd_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"ledge/api"
)

// TestApplyMakesByTheRightToCreate: an apply that makes an object takes the right to create it; the right to patch changes what is there.
func TestApplyMakesByTheRightToCreate(t *testing.T) {
	s := newStage(t)
	root := s.add("root", "", "", "root", api.AdminGroup)
	const rights, maps = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/", "/api/v1/namespaces/default/configmaps"
	for name, rule := range map[string]string{
		"patcher": `{"verbs":["patch"],"apiGroups":[""],"resources":["configmaps"]}`,
		"maker":   `{"verbs":["patch","create"],"apiGroups":[""],"resources":["configmaps"]}`,
		"namer":   `{"verbs":["patch","create"],"apiGroups":[""],"resources":["configmaps"],"resourceNames":["mine"]}`,
	} {
		s.make(root, rights+"roles", `{"metadata":{"name":"`+name+`"},"rules":[`+rule+`]}`)
		s.make(root, rights+"rolebindings", `{"metadata":{"name":"`+name+`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role",`+
			`"name":"`+name+`"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+name+`"}]}`)
	}
	s.make(root, maps, `{"metadata":{"name":"there"}}`)
	for _, tc := range []struct {
		who, name, query string
		code             int
		says             string
	}{
		{"patcher", "there", "", 200, ""},
		{"patcher", "new", "&dryRun=All", 403, "cannot create"},
		{"patcher", "new", "&force=true", 403, "cannot create"},
		{"namer", "mine", "", 201, ""},
		{"namer", "new", "", 403, "cannot patch"},
		{"maker", "new", "", 201, ""},
		{"patcher", "new", "", 200, ""},
	} {
		who := s.add(tc.who, "", "", tc.who)
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + tc.name + `"},"data":{"` + tc.who + `":"x"}}`
		req, err := http.NewRequest("PATCH", s.base+maps+"/"+tc.name+"?fieldManager="+tc.who+tc.query, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", applyPatch)
		resp, err := who.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tc.code || !strings.Contains(string(answer), tc.says) {
			t.Errorf("%s applies %s: %d %s %v, want %d", tc.who, tc.name, resp.StatusCode, answer, err, tc.code)
		}
	}
}
