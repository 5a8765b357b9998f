package main

import "testing"

func TestOwner(t *testing.T) {
	modules := []string{"k8s.io/api", "k8s.io/apimachinery", "gopkg.in/inf.v0", "golang.org/x/sys", "golang.org/x"}
	for symbol, want := range map[string]string{
		"ledge/api/httpd.(*handler).serve":                              "ledge/api/httpd",
		"ledge/api.Define[go.shape.*ledge/api/policy.X]":                "ledge/api",
		"k8s.io/api/core/v1.(*Pod).DeepCopy":                            "k8s.io/api",
		"k8s.io/apimachinery/pkg/labels.Parse.func1":                    "k8s.io/apimachinery",
		"type:.eq.k8s.io/api/core/v1.EnvVar":                            "k8s.io/api",
		"go:itab.*ledge/storage.Store,io.Closer":                        "ledge/storage",
		"gopkg.in/inf%2ev0.(*Dec).Add":                                  "gopkg.in/inf.v0",
		"golang.org/x/sys/unix.Mount":                                   "golang.org/x/sys",
		"net/http.(*Server).Serve":                                      "std net",
		"runtime.mallocgc":                                              "std runtime",
		"slices.SortFunc[go.shape.[]ledge/scheduler.x,go.shape.struct]": "std slices",
		"go:func.*":    tables,
		"seccomp_load": "C, and what the linker adds",
	} {
		if got := owner(symbol, modules); got != want {
			t.Errorf("%s is of %q, want %q", symbol, got, want)
		}
	}
}
