package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"ledge/api/board"
	"ledge/images"
)

func aPull(fetched ...int64) images.PullStatus {
	st := images.PullStatus{Ref: "registry.example/app:1"}
	for i, n := range fetched {
		st.Layers = append(st.Layers, images.LayerStatus{Digest: fmt.Sprintf("sha256:%064d", i), Size: 10e6, Fetched: n, Ready: n > 10e6})
	}
	return st
}

// What `ledge images ls` shows of images, and of pulls that go on.
func TestImageTable(t *testing.T) {
	const id, digest = "sha256:0123456789abcdef0123456789abcdef", "docker.io/library/app@sha256:fedcba9876543210fedcba9876543210"
	list := board.Images{Images: []board.Image{
		{ID: id, Names: []string{"docker.io/library/app:1", "docker.io/library/app:2"}, Digests: []string{digest}, Size: 12_300_000,
			Shared: 4_000_000,
			Pinned: true, InUse: []string{"default/web", "default/db"}},
		{ID: id, Size: 1_000_000},
	}, Pulls: []images.PullStatus{{Ref: "docker.io/library/next:1", Layers: []images.LayerStatus{{Size: 2_000_000, Fetched: 1_000_000}}}}}
	text, err := json.Marshal(list)
	must(t, err)
	var out bytes.Buffer
	must(t, printImages(&out, bytes.NewReader(text)))
	want := `NAME                      DIGEST         ID             SIZE      SHARED   PINNED   IN USE BY
docker.io/library/app:1   fedcba987654   0123456789ab   12.3 MB   4.0 MB   true     default/web,default/db
docker.io/library/app:2   fedcba987654   0123456789ab   12.3 MB   4.0 MB   true     default/web,default/db
<none>                    <none>         0123456789ab   1.0 MB    0.0 MB   false    |
docker.io/library/next:1: 1.0 MB of 2.0 MB downloaded, 0 of 1 layers unpacked
`
	if got := out.String(); got != strings.ReplaceAll(want, "|", "") {
		t.Errorf("got:\n%s", got)
	}
}

// Without a terminal a pull is a line now and then, never a control character.
func TestPullLines(t *testing.T) {
	var out bytes.Buffer
	p := &pullView{out: &out}
	now := time.Unix(1_000_000, 0)
	p.show(images.PullStatus{Ref: "registry.example/app:1", Waiting: true}, now)
	for i := range 100 { // 25 seconds
		p.show(aPull(int64(i)*1e5, 5e6), now.Add(time.Duration(i)*250*time.Millisecond))
	}
	p.clear()
	p.end("app:1", board.PullNews{Image: &board.Image{ID: "sha256:0123456789abcdef", Size: 30e6}, Bytes: 20e6, Took: 25 * time.Second})
	want := "registry.example/app:1: waiting for another pull to end\n" +
		"registry.example/app:1: 9.0 MB of 20.0 MB downloaded, 0 of 2 layers unpacked\n" +
		"registry.example/app:1: 13.0 MB of 20.0 MB downloaded, 0 of 2 layers unpacked\n" +
		"app:1 pulled (0123456789ab): 20.0 MB downloaded, 30.0 MB on disk, 25s\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// On a terminal the bars fit its width, are drawn over each other, and are gone at the end.
func TestPullBars(t *testing.T) {
	var out bytes.Buffer
	p := &pullView{out: &out, bars: true, width: 80}
	now := time.Unix(1_000_000, 0)
	st := aPull(0, 2e6, 10e6)
	st.Layers[1].Trouble = "dial tcp: connection refused, and " + strings.Repeat("a long story ", 20)
	p.show(st, now)
	first := out.String()
	st.Layers[1].Fetched = 6e6
	p.show(st, now.Add(2*time.Second))
	for _, line := range strings.Split(strings.ReplaceAll(out.String(), "\x1b[2K", ""), "\n") {
		line = strings.TrimPrefix(line, "\x1b[3A")
		if n := len([]rune(line)); n >= 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	second := out.String()[len(first):]
	for _, want := range []string{"\x1b[3A", "6.0 MB of 10.0 MB 2.0 MB/s", "10.0 MB of 10.0 MB unpacking", "==="} {
		if !strings.Contains(second, want) {
			t.Errorf("no %q in %q", want, second)
		}
	}
	out.Reset()
	p.clear()
	p.clear()
	if out.String() != "\x1b[3A\x1b[J" {
		t.Errorf("%q", out.String())
	}
}
