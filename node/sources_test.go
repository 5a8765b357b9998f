package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

// environments keeps what containers were started with, by the container's name.
func environments(into map[string][]string) func(runtime.Container) enginefake.Behaviour {
	return func(c runtime.Container) enginefake.Behaviour {
		into[c.Name] = c.Env
		return enginefake.Behaviour{TermCode: 143}
	}
}

func (r *rig) config(name string, data map[string]string) {
	r.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
	if _, err := api.Create(r.Context(), r.Client, api.ConfigMaps, cm); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) secretOf(name string, data map[string]string) {
	r.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, StringData: data}
	if _, err := api.Create(r.Context(), r.Client, api.Secrets, s); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func waiting(p *corev1.Pod) string {
	if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
		return ""
	}
	w := p.Status.ContainerStatuses[0].State.Waiting
	return w.Reason + ": " + w.Message
}

// TestEnvironmentFromObjects: everything a pod can take its environment from, and who wins (N-7.47).
func TestEnvironmentFromObjects(t *testing.T) {
	with(t, nil, func(r *rig) {
		got := map[string][]string{}
		r.engine = enginefake.New(enginefake.Config{Script: environments(got)})
		r.cfg.Engine = r.engine
		r.config("all", map[string]string{"A": "1", "B": "2", "a.b-c": "3"})
		r.config("keys", map[string]string{"k": "v"})
		r.secretOf("hidden", map[string]string{"B": "two", "k": "s"})
		r.begin()
		optional := true
		r.pod("p", func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.EnvFrom = []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("all")}},
				{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("hidden")}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("hidden")}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("none"), Optional: &optional}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("none"), Optional: &optional}},
			}
			c.Env = []corev1.EnvVar{
				{Name: "A", Value: "own"}, {Name: "REF", Value: "$(A) $(B) $(S_k) $(K)"},
				{Name: "K", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("keys"),
					Key: "k"}}},
				{Name: "NOKEY", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("keys"),
					Key: "x", Optional: &optional}}},
				{Name: "NOSECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("none"), Key: "x",
					Optional: &optional}}},
				{Name: "CPUS", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
				{Name: "IPS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIPs"}}},
				{Name: "HOSTS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIPs"}}},
			}
		})
		r.pass(time.Second)
		want := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=p", "A=own", "B=two", "a.b-c=3",
			"S_B=two", "S_k=s", "k=s", "REF=own two s $(K)", "K=v",
			"CPUS=4", "IPS=" + r.get("p").Status.PodIP, "HOSTS=192.0.2.10"}
		if !slices.Equal(got["c"], want) {
			t.Errorf("environment\ngot  %q\nwant %q (%s)", got["c"], want, waiting(r.get("p")))
		}
	})
}

func ref(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// TestMissingConfig: a pod waits for what it names, says for what, and starts as soon as it is there (N-7.13).
func TestMissingConfig(t *testing.T) {
	cases := map[string]struct {
		env     corev1.EnvVarSource
		says    string
		between func(r *rig)
		then    string
		after   func(r *rig)
	}{
		"config": {corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("x"), Key: "k"}},
			`configmap "x" not found`,
			func(r *rig) { r.config("x", map[string]string{"other": "1"}) },
			"couldn't find key k in ConfigMap default/x",
			func(r *rig) {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Data: map[string]string{"k": "v"}}
				if _, err := api.Update(r.Context(), r.Client, api.ConfigMaps, cm); err != nil {
					r.Fatal(err)
				}
			}},
		"secret": {corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("x"), Key: "k"}},
			`secret "x" not found`,
			func(r *rig) { r.secretOf("x", map[string]string{"other": "1"}) },
			"couldn't find key k in Secret default/x",
			func(r *rig) {
				s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, StringData: map[string]string{"k": "v"}}
				if _, err := api.Update(r.Context(), r.Client, api.Secrets, s); err != nil {
					r.Fatal(err)
				}
			}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			with(t, nil, func(r *rig) {
				r.begin()
				r.pod("p", func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &c.env}} })
				r.pass(time.Second)
				if got, want := waiting(r.get("p")), "CreateContainerConfigError: "+c.says; got != want ||
					r.get("p").Status.Phase != corev1.PodPending {
					t.Errorf("waits with %q, want %q", got, want)
				}
				r.pass(10 * time.Minute) // the back-off is long by now
				c.between(r)
				r.pass(time.Second)
				if got, want := waiting(r.get("p")), "CreateContainerConfigError: "+c.then; got != want {
					t.Errorf("waits with %q, want %q", got, want)
				}
				c.after(r)
				r.pass(time.Second)
				if got := r.get("p").Status.Phase; got != corev1.PodRunning {
					t.Errorf("it is %s: %s", got, waiting(r.get("p")))
				}
			})
		})
	}
}

// TestOnlyWhatIsNamed is followed: one watch for an object however many pods name it, none when the last has gone.
func TestOnlyWhatIsNamed(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.config("x", map[string]string{"k": "v"})
		r.config("y", nil)
		r.begin()
		lists := func() int { return r.via.count("list configmaps") + r.via.count("list secrets") }
		for i := range 3 {
			r.pod(fmt.Sprint("p", i), func(p *corev1.Pod) {
				p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("x")}}}
			})
		}
		r.pass(time.Hour)
		if lists() != 1 {
			t.Errorf("listed %d times", lists())
		}
		held := func() string {
			r.agent.sources.mu.Lock()
			defer r.agent.sources.mu.Unlock()
			var out []string
			for k := range r.agent.sources.held {
				out = append(out, k.String())
			}
			return strings.Join(out, " ")
		}
		if got := held(); got != `configmap "x"` {
			t.Errorf("followed: %s", got)
		}
		for i := range 3 {
			r.delete(fmt.Sprint("p", i), nil)
		}
		r.pass(time.Minute)
		if got := held(); got != "" {
			t.Errorf("still followed: %s", got)
		}
		r.nothingLeft()
	})
}

// TestNamedBy: every place in a pod that names a ConfigMap or Secret.
func TestNamedBy(t *testing.T) {
	env := func(n string) []corev1.EnvVar {
		return []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("c" + n)}}},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("s" + n)}}}}
	}
	from := func(n string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("c" + n)}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("s" + n)}}}
	}
	p := aPod("p", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("c1")}}},
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s1"}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("c2")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: ref("s2")}}}}}},
		}
		p.Spec.InitContainers = []corev1.Container{{Env: env("3"), EnvFrom: from("4")}}
		p.Spec.Containers[0].Env, p.Spec.Containers[0].EnvFrom = env("5"), from("4")
	})
	var got []string
	for _, k := range namedBy(p) {
		if k.namespace != "default" {
			t.Errorf("%s of namespace %s", k, k.namespace)
		}
		got = append(got, k.name)
	}
	if want := strings.Fields("c1 c2 c4 c3 c5 s1 s2 s4 s3 s5"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
