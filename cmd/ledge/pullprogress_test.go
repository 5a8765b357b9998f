package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"ledge/images"
)

func aPull(fetched ...int64) images.PullStatus {
	st := images.PullStatus{Ref: "registry.example/app:1"}
	for i, n := range fetched {
		st.Layers = append(st.Layers, images.LayerStatus{Digest: fmt.Sprintf("sha256:%064d", i), Size: 10e6, Fetched: n, Ready: n > 10e6})
	}
	return st
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
	p.end("app:1", pullNews{Image: &imageRow{ID: "sha256:0123456789abcdef", Size: 30e6}, Bytes: 20e6, Took: 25 * time.Second})
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
