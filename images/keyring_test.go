package images_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ledge/images"
)

// Where a credential is good for follows Kubernetes: * inside a label of the host, a path of whole parts, the most
// specific first.
func TestKeyring(t *testing.T) {
	ring, err := images.ParseKeyring([]byte(`{"auths":{
		"https://index.docker.io/v1/": {"auth": "aHViOnB3"},
		"registry.example":            {"username": "host", "password": "pw"},
		"registry.example/team":       {"username": "team", "password": "pw"},
		"registry.example/team/app":   {"username": "app", "password": "p:w"},
		"*.wild.example":              {"username": "wild", "password": "pw"},
		"b.wild.example":              {"username": "tame", "password": "pw"},
		"registry.example:5000":       {"identitytoken": "token"},
		"http://[::1]:5000/v2/":       {"username": "six", "password": "pw"}
	}}`), false)
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{
		"docker.io library/x":           "hub",
		"index.docker.io library/x":     "hub",
		"registry.example other":        "host",
		"registry.example team":         "team host",
		"registry.example team/app":     "app team host",
		"registry.example team/app/sub": "app team host",
		"registry.example teamster/app": "host",
		"registry.example:5000 x":       "",
		"a.wild.example x":              "wild",
		"b.wild.example x":              "tame wild",
		"a.b.wild.example x":            "",
		"wild.example x":                "",
		"xregistry.example x":           "",
		"[::1]:5000 x":                  "six",
	} {
		host, repo, _ := strings.Cut(where, " ")
		var got []string
		for _, c := range ring.For(host, repo) {
			got = append(got, c.Username)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %q, want %q", where, s, want)
		}
	}
	if c := ring.For("registry.example:5000", "x"); len(c) != 1 || c[0].Token != "token" {
		t.Error("no identity token")
	}
	if c := ring.For("registry.example", "team/app")[0]; c.Password != "p:w" {
		t.Error("a password with a colon")
	}
	old, err := images.ParseKeyring([]byte(`{"registry.example":{"auth":"dTpw"}}`), true)
	if err != nil || !slices.Equal(old.For("registry.example", "x"), []images.Credential{{Username: "u", Password: "p"}}) {
		t.Errorf("old kind: %v", err)
	}
	if s := fmt.Sprintf("%v %+v %#v %s", ring[0], ring, ring[0].Credential, old); strings.Contains(s, "pw") || strings.Contains(s, "hub") {
		t.Errorf("a credential can be printed: %s", s)
	}
}

// What cannot be read is an error that does not show it.
func TestKeyringRefused(t *testing.T) {
	for _, text := range []string{"", "secret", `{"auths":"secret"}`, `{"auths":{"r.example":{"auth":"secret!"}}}`,
		`{"auths":{"r.example":{"auth":"c2VjcmV0"}}}`, `{"auths":{"http://%zz":{}}}`, `[]`} {
		if _, err := images.ParseKeyring([]byte(text), false); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzKeyring(f *testing.F) {
	f.Add([]byte(`{"auths":{"a.example":{"auth":"dTpw"}}}`), "a.example", "x")
	f.Fuzz(func(t *testing.T, data []byte, host, repo string) {
		for _, legacy := range []bool{false, true} {
			ring, err := images.ParseKeyring(data, legacy)
			if err == nil {
				ring.For(host, repo)
			}
		}
	})
}
