package static

import (
	"strings"
	"testing"

	"ledge/api"

	corev1 "k8s.io/api/core/v1"
)

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: s}
spec:
  containers: [{name: c, image: "example.com/app:v1", command: [app]}]
`

func TestParse(t *testing.T) {
	read := func(text string, others bool) ([]*corev1.Pod, error) {
		return parse("/m/f", []byte(text), "node1", others)
	}
	pods, err := read(staticPod, false)
	if err != nil || len(pods) != 1 || pods[0].Name != "s-node1" || pods[0].Namespace != "default" || len(pods[0].UID) != 32 ||
		pods[0].Status.QOSClass != corev1.PodQOSBestEffort || *pods[0].Spec.TerminationGracePeriodSeconds != 30 {
		t.Fatalf("%+v %v", pods, err)
	}
	again, _ := read(staticPod, false)
	other, _ := parse("/m/g", []byte(staticPod), "node1", false)
	if again[0].UID != pods[0].UID || other[0].UID == pods[0].UID {
		t.Errorf("uids %s %s %s", pods[0].UID, again[0].UID, other[0].UID)
	}
	pods, err = read(staticPod+"---\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\n"+strings.Replace(staticPod,
		"name: s", "name: t", 1), true)
	if err != nil || len(pods) != 2 || pods[1].Name != "t-node1" || pods[0].UID == pods[1].UID {
		t.Errorf("several: %+v %v", pods, err)
	}
	pods, err = read(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j","uid":"abc-1","namespace":"kube-system"},`+
		`"spec":{"priorityClassName":"system-node-critical","containers":[{"name":"c","image":"x"}]}}`, false)
	if err != nil || pods[0].UID != "abc-1" || *pods[0].Spec.Priority != 2000001000 || pods[0].Namespace != "kube-system" {
		t.Errorf("JSON: %+v %v", pods, err)
	}
	if pods, err := read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", true); err != nil || len(pods) != 0 {
		t.Errorf("other things only: %v %v", pods, err)
	}
	spec := func(text string) string { return staticPod + "  " + text + "\n" }
	for text, want := range map[string]string{
		"":                             "no pod",
		"# nothing\n":                  "no pod",
		"a: [":                         "yaml",
		"kind: Pod\n":                  `not a "Pod" of ""`,
		"apiVersion: v1\nkind: Node\n": `not a "Node"`,
		strings.Replace(staticPod, "{name: s}", "{}", 1):                  "metadata.name is missing",
		strings.Replace(staticPod, "name: s", "name: s, uid: ../../x", 1): "metadata.uid",
		strings.Replace(staticPod, "name: s", "name: S", 1):               "metadata.name",
		spec("colour: red"):                                                                                "colour",
		spec("serviceAccountName: x"):                                                                      "service accounts",
		spec("priorityClassName: mine"):                                                                    "priorityClassName",
		spec("imagePullSecrets: [{name: x}]"):                                                              "",
		spec("volumes: [{name: v, configMap: {name: x}}]"):                                                 "ConfigMaps or Secrets",
		spec("volumes: [{name: v, secret: {secretName: x}}]"):                                              "ConfigMaps or Secrets",
		spec("volumes: [{name: v, projected: {sources: [{secret: {name: x}}]}}]"):                          "refer to",
		spec("volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]"):                                "persistent volume claims",
		strings.Replace(staticPod, "command:", "envFrom: [{secretRef: {name: x}}], command:", 1):           "ConfigMaps or Secrets",
		strings.Replace(staticPod, "name: s", "name: s, annotations: {kubernetes.io/config.mirror: x}", 1): "config.mirror",
	} {
		pods, err := read(text, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v %v, want %q", text, pods, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(staticPod)
	f.Add("---\n---\nkind: Pod\napiVersion: v1\n")
	f.Add(`{"apiVersion":"v1","kind":"Pod"}`)
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := parse("/m/f", []byte(text), "n", false)
		if err != nil {
			return
		}
		for _, p := range pods {
			if p.UID == "" || strings.ContainsAny(string(p.UID), "/.") || !strings.HasSuffix(p.Name, "-n") || p.Spec.NodeName != "n" {
				t.Errorf("%q gives %+v", text, p.ObjectMeta)
			}
			if err := api.Pods.Validate(p); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
