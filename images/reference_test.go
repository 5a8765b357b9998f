package images_test

import (
	"errors"
	"strings"
	"testing"

	"ledge/images"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseReference(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"busybox", "docker.io/library/busybox:latest"},
		{"busybox:1.37", "docker.io/library/busybox:1.37"},
		{"docker.io/busybox", "docker.io/library/busybox:latest"},
		{"index.docker.io/busybox", "docker.io/library/busybox:latest"},
		{"team/app", "docker.io/team/app:latest"},
		{"quay.io/team/sub/app:v1_2.3-x", "quay.io/team/sub/app:v1_2.3-x"},
		{"localhost/app", "localhost/app:latest"},
		{"localhost:5000/app:2", "localhost:5000/app:2"},
		{"HOST/app", "HOST/app:latest"},
		{"192.168.1.10:5000/a/b", "192.168.1.10:5000/a/b:latest"},
		{"[::1]:5000/app", "[::1]:5000/app:latest"},
		{"[fe80::1]/app", "[fe80::1]/app:latest"},
		{"app@" + someDigest, "docker.io/library/app@" + someDigest},
		{"app:1@" + someDigest, "docker.io/library/app:1@" + someDigest},
		{"a.b/c.d_e__f---g:" + strings.Repeat("t", 128), "a.b/c.d_e__f---g:" + strings.Repeat("t", 128)},
		{"ledge.local/self", images.SelfName},
		{"r.io/" + strings.Repeat("a", 250), "r.io/" + strings.Repeat("a", 250) + ":latest"},
	} {
		ref, err := images.ParseReference(c.in)
		if err != nil || ref.String() != c.want {
			t.Errorf("%q: %q, %v; want %q", c.in, ref, err, c.want)
		}
	}
	for _, in := range []string{
		"", ":", "@", "/", "app:", "app@", ":tag", "UPPER", "docker.io/UPPER", "a//b", "/a", "a/", "a b", "a\nb", "a\x00", "é",
		"-a", "a-", ".a", "a.", "_a", "a_", "a..b", "a___b", "a._b", "a:b:c", "app:.t", "app:-t", "app:t t", "app:" + strings.Repeat("t", 129),
		"../x", "a/../b", "./a", "~/a", "a?b", "a%2fb", "app@sha256:12", "app@md5:" + strings.Repeat("a", 32),
		"app@" + strings.ToUpper(someDigest),
		"app@" + someDigest + "0", "app@" + someDigest + "@" + someDigest, "host:/app", "host:port/app", "host:123456/app", "-host.io/app",
		"host-.io/app", "a..b/app", "[::1/app", "[]/app", "[x]/app", "[::1]x/app", "[::1]:/app", "http://host/app",
		"r.io/" + strings.Repeat("a", 251),
		strings.TrimPrefix(someDigest, "sha256:"), strings.Repeat("a/", 5000) + "a",
	} {
		ref, err := images.ParseReference(in)
		if !errors.Is(err, images.ErrInvalidName) {
			t.Errorf("%.60q: %q, %v", in, ref, err)
		}
		if err != nil && len(err.Error()) > 600 {
			t.Errorf("%.60q: error of %d bytes", in, len(err.Error()))
		}
	}
}

// FuzzReference: what is taken has a canonical form that means the same, fits the bounds, and holds nothing that
// a path or a log line would trip over.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"busybox", "localhost:5000/a/b:t@" + someDigest, "[::1]:5/a", "a.b/c__d-e", "", "A/b", "x@y:z", "../..",
		"a:b/c", "0:0.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := images.ParseReference(s)
		if err != nil {
			if !errors.Is(err, images.ErrInvalidName) {
				t.Fatal(err)
			}
			return
		}
		again, err := images.ParseReference(ref.String())
		if err != nil || again != ref {
			t.Fatalf("%q became %q, then %q, %v", s, ref, again, err)
		}
		if ref.Domain == "" || ref.Path == "" || ref.Tag == "" && ref.Digest == "" || len(ref.Name()) > 255 || len(ref.Tag) > 128 {
			t.Errorf("%q gave %+v", s, ref)
		}
		if strings.ContainsAny(ref.String(), " \n\x00\\%?#") || strings.Contains(ref.Name(), "..") || strings.HasPrefix(ref.Tag, ".") ||
			strings.Contains(ref.Path, "//") {
			t.Errorf("%q gave %q", s, ref)
		}
	})
}
