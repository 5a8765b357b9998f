package podspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
)

func TestEnvFile(t *testing.T) {
	for _, c := range []struct{ text, want, wrong string }{
		{"", "", ""},
		{"A='x'", "x", ""},
		{"A='x'\n", "x", ""},
		{"\n # no A='y'\n \t\nB='y'\n \tA='x'\nA='z'\n", "x", ""},
		{"A='' # nothing\nA='z'", "", ""},
		{"B='1'\r\nA='x'\r\n", "x", ""},
		{"A='two\n # lines = \"\" $(B) \\n' # and a word", "two\n # lines = \"\" $(B) \\n", ""},
		{"B='two\nlines'\nA='x'", "x", ""},
		{"A= 'x'", "", ""},
		{"B= 'x'\nA='x'", "x", ""},
		{"C='y'", "", ""},
		{"A='x=\"'\nB", "x=\"", ""}, // what comes after is nobody's business
		{"A", "", "line 1: there is no ="},
		{"B='1\n2'\n\nA", "", "line 4: there is no ="},
		{"='x'", "", "no name"},
		{" = 'x'", "", "no name"},
		{"A ='x'", "", "blank before the ="},
		{"A=", "", "single quotes"},
		{"A=x", "", "single quotes"},
		{"A=\"x\"", "", "single quotes"},
		{"export A='x'", "", ""},
		{"A='x", "", "not closed"},
		{"B='\nA='x'", "", "follows the closing quote"},
		{"A='x'y", "", "follows the closing quote"},
		{"A='x'\x00", "", "NUL"},
	} {
		got, err := envFileValue(c.text, "A")
		switch {
		case c.wrong == "" && err != nil, c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%q: %v, want %q", c.text, err, c.wrong)
		case got != c.want:
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// FuzzEnvFile: what can be written in the syntax comes back, and nothing breaks the reader.
func FuzzEnvFile(f *testing.F) {
	f.Add("value", "B='1\n2' # x\n")
	f.Add("a\nb = c#", "B= 1\n\n")
	f.Add("", "A='")
	f.Fuzz(func(t *testing.T, value, anything string) {
		_, _ = envFileValue(anything, "A")
		if strings.ContainsAny(value, "'\x00\r") {
			return
		}
		text := "B='" + value + "' # one\n\n# two\n\tA='" + value + "'\n"
		if got, err := envFileValue(text, "A"); err != nil || got != value {
			t.Errorf("%q comes back as %q, %v", text, got, err)
		}
	})
}

func TestEnvFileKeys(t *testing.T) {
	maker := envMaker{from: played{files: map[string]string{"v/d/f": "A='x'\nE=''\nbroken"}}}
	yes := true
	for _, c := range []struct {
		ref   corev1.FileKeySelector
		want  string
		wrong string
	}{
		{corev1.FileKeySelector{VolumeName: "v", Path: "d/f", Key: "A"}, "V=x", ""},
		{corev1.FileKeySelector{VolumeName: "v", Path: "d/f", Key: "E"}, "", `"E" not found in file d/f in volume v`},
		{corev1.FileKeySelector{VolumeName: "v", Path: "d/f", Key: "E", Optional: &yes}, "", ""},
		{corev1.FileKeySelector{VolumeName: "v", Path: "d/f", Key: "N", Optional: &yes}, "", "line 3"},
		{corev1.FileKeySelector{VolumeName: "v", Path: "g", Key: "A"}, "", "couldn't read env file"},
		{corev1.FileKeySelector{VolumeName: "v", Path: "g", Key: "A", Optional: &yes}, "", ""},
	} {
		env, err := maker.environment(t.Context(), &corev1.Container{Env: []corev1.EnvVar{
			{Name: "V", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &c.ref}}}}, images.Image{})
		got := strings.Join(env.list(), " ")
		switch {
		case c.wrong == "" && err != nil, c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%+v: %v, want %q", c.ref, err, c.wrong)
		case err == nil && strings.Contains(got, "V=") != (c.want != "") || !strings.HasSuffix(got, c.want):
			t.Errorf("%+v: %q, want %q", c.ref, got, c.want)
		}
	}
}
