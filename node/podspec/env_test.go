package podspec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
	"ledge/node/downward"
)

// TestExpand: $(NAME) of what is set, $$ for a dollar, everything else as written.
func TestExpand(t *testing.T) {
	env := []envVar{{"A", "a"}, {"EMPTY", ""}, {"DOLLAR", "$(A)"}, {"with.dot-", "x"}}
	for in, want := range map[string]string{
		"":                "",
		"plain":           "plain",
		"$(A)":            "a",
		"x$(A)y$(A)z":     "xayaz",
		"$(EMPTY)":        "",
		"$(NONE)":         "$(NONE)",
		"$(NONE)$(A)":     "$(NONE)a",
		"$$(A)":           "$(A)",
		"$$$(A)":          "$a",
		"$$$$(A)":         "$$(A)",
		"$$":              "$",
		"$":               "$",
		"a$":              "a$",
		"$A":              "$A",
		"$ (A)":           "$ (A)",
		"$()":             "$()",
		"$(A":             "$(A",
		"$(A$(A)":         "$(A$(A)",
		"$(DOLLAR)":       "$(A)", // once, not again
		"$(with.dot-)":    "x",
		"$(a)":            "$(a)",
		"ü$(A)ü":          "üaü",
		"$((A))":          "$((A))",
		"$(A)$":           "a$",
		"{$(A)}[$(NONE)]": "{a}[$(NONE)]",
	} {
		if got := expand(in, env); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$(A)", "$(A$(B)", "$", "$()", "$(NONE)", "a$$$b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !strings.Contains(s, "$") && expand(s, nil) != s {
			t.Errorf("%q without a dollar becomes %q", s, expand(s, nil))
		}
		quoted := strings.ReplaceAll(s, "$", "$$")
		if got := expand(quoted, []envVar{{"A", "x"}}); got != s {
			t.Errorf("%q quoted comes back as %q", s, got)
		}
		if !strings.Contains(s, "$$") {
			if got := expand(s, nil); got != s {
				t.Errorf("%q with nothing set becomes %q", s, got)
			}
		}
	})
}

// TestEnvironment: who wins, and what of it can be used in $(NAME): only what the pod itself has set before, as on
// Kubernetes; the image's variables and the agent's are not seen there.
func TestEnvironment(t *testing.T) {
	pod := aPod("web", func(p *corev1.Pod) {
		p.UID = "u1"
		p.Labels, p.Annotations = map[string]string{"app": "a", "x/y": "z"}, map[string]string{"note": "n"}
		p.Spec.ServiceAccountName = "sa"
	})
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	img := images.Image{Config: images.Config{Env: []string{"IMAGE=i", "BOTH=image", "NOVALUE"}}}
	c := &corev1.Container{Name: "c", Env: []corev1.EnvVar{
		{Name: "EARLY", Value: "$(LATE)"}, {Name: "LATE", Value: "late"}, {Name: "USES", Value: "$(LATE)-$(IMAGE)-$(PATH)"},
		{Name: "BOTH", Value: "pod"}, {Name: "TWICE", Value: "1"}, {Name: "TWICE", Value: "$(TWICE)2"},
		field("NAME", "metadata.name"), field("NS", "metadata.namespace"), field("UID", "metadata.uid"), field("NODE", "spec.nodeName"),
		field("SA", "spec.serviceAccountName"), field("HOST", "status.hostIP"), field("POD", "status.podIP"),
		field("LABEL", "metadata.labels['x/y']"), field("NOLABEL", "metadata.labels['none']"), field("NOTE", "metadata.annotations['note']"),
		{Name: "REF", Value: "$(NAME)"}, {Name: "NOVALUE", Value: "$(NOVALUE)"},
	}, Args: []string{"$(NAME)", "$(IMAGE)", "$(PATH)", "$(HOSTNAME)", "$$(NAME)"}}
	maker := envMaker{downward.Facts{Pod: pod, HostIPs: []string{"192.0.2.1"}, PodIPs: []string{"10.0.0.2"}}, "web", nil, nil}
	env, err := maker.environment(t.Context(), c, img)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"PATH=" + defaultPath, "HOSTNAME=web", "IMAGE=i", "BOTH=pod", "NOVALUE=$(NOVALUE)", "EARLY=$(LATE)", "LATE=late",
		"USES=late-$(IMAGE)-$(PATH)", "TWICE=12", "NAME=web", "NS=default", "UID=u1", "NODE=n", "SA=sa", "HOST=192.0.2.1", "POD=10.0.0.2",
		"LABEL=z", "NOLABEL=", "NOTE=n", "REF=web"}
	if got := env.list(); !slices.Equal(got, want) {
		t.Errorf("environment\ngot  %q\nwant %q", got, want)
	}
	got, err := command(c, img, env)
	if want := []string{"web", "$(IMAGE)", "$(PATH)", "$(HOSTNAME)", "$(NAME)"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("args %q, want %q", got, want)
	}
	for _, bad := range []corev1.EnvVar{field("X", "status.phase"), {Name: "X", ValueFrom: &corev1.EnvVarSource{}}} {
		if _, err := maker.environment(t.Context(), &corev1.Container{Name: "c", Env: []corev1.EnvVar{bad}}, img); err == nil {
			t.Errorf("%+v was taken", bad.ValueFrom)
		}
	}
}

// TestEnvironmentIsBounded: variables that name each other, and arguments that name a long variable, grow to no more than a program can be
// started with.
func TestEnvironmentIsBounded(t *testing.T) {
	vars := []corev1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 1000)}}
	for i := range 60 {
		vars = append(vars, corev1.EnvVar{Name: fmt.Sprint("V", i+1), Value: strings.Repeat(fmt.Sprintf("$(V%d)", i), 2)})
	}
	_, err := envMaker{hostname: "web"}.environment(t.Context(), &corev1.Container{Env: vars}, images.Image{})
	if err == nil || !strings.Contains(err.Error(), "take more than") {
		t.Errorf("variables that double: %v", err)
	}
	env, err := envMaker{hostname: "web"}.environment(t.Context(), &corev1.Container{Env: vars[:10]}, images.Image{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*corev1.Container{{Command: slices.Repeat([]string{"$(V9)"}, 10_000)},
		{Args: []string{strings.Repeat("$(V9)", 10_000)}}} {
		if args, err := command(c, images.Image{}, env); err == nil {
			t.Errorf("%d arguments are made", len(args))
		}
	}
	e := environ{}
	if e.bounded(mostTexts) != nil || e.bounded(1) == nil {
		t.Error("the bound is another")
	}
}

// TestImagePath: PATH is the image's when it has one, HOSTNAME the pod's.
func TestImagePath(t *testing.T) {
	env, err := envMaker{hostname: "other"}.environment(t.Context(), &corev1.Container{},
		images.Image{Config: images.Config{Env: []string{"PATH=/only"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := env.list(); !slices.Equal(got, []string{"PATH=/only", "HOSTNAME=other"}) {
		t.Errorf("%q", got)
	}
}

// TestCommand: command replaces the image's entrypoint and its arguments, args the arguments only.
func TestCommand(t *testing.T) {
	img := images.Image{Config: images.Config{Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}}}
	for _, c := range []struct{ command, args, want []string }{
		{nil, nil, []string{"entry", "cmd"}},
		{nil, []string{"a"}, []string{"entry", "a"}},
		{[]string{"c"}, nil, []string{"c"}},
		{[]string{"c"}, []string{"a", "b"}, []string{"c", "a", "b"}},
	} {
		got, err := command(&corev1.Container{Command: c.command, Args: c.args}, img, environ{})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q %q: %q, want %q", c.command, c.args, got, c.want)
		}
	}
	if img.Config.Entrypoint[0] != "entry" || len(img.Config.Entrypoint) != 1 {
		t.Error("the image was changed")
	}
}

// TestAPIServerEnv: pods are told where the API is if they can get there.
func TestAPIServerEnv(t *testing.T) {
	for _, c := range []struct {
		at     string
		onHost bool
		want   string
	}{
		{"", false, ""}, {"127.0.0.1:6443", false, ""}, {"127.0.0.1:6443", true, "127.0.0.1 6443"}, {"0.0.0.0:6443", false, "192.0.2.10 6443"},
		{"[::]:6443", false, "192.0.2.10 6443"}, {"192.0.2.77:1", false, "192.0.2.77 1"}, {"[2001:db8::1]:1", false, "2001:db8::1 1"},
	} {
		b := Board{IPs: []string{"192.0.2.10"}}
		if c.at != "" {
			b.APIServer = netip.MustParseAddrPort(c.at)
		}
		got := ""
		if env := b.apiServer(aPod("p", func(p *corev1.Pod) { p.Spec.HostNetwork = c.onHost })); env != nil {
			got = env[0].value + " " + env[1].value
		}
		if got != c.want {
			t.Errorf("%s on host %v: %q, want %q", c.at, c.onHost, got, c.want)
		}
	}
}
