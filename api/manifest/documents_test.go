package manifest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
)

// TestDocuments: lines are counted as people do, and dashes with a comment behind them part documents too.
func TestDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a": "0+0 a", "a\n": "0+0 a\n", "---\na\n": "0+0 ---\na\n", "---\n---\na": "0+0 ---\n|1+2 a",
		"\ufeff# a\r\n---\r\nb\n--- \n\n---\nc: --- d\n": "0+0 # a\n|1+2 b\n|2+4 \n|3+6 c: --- d\n",
		"a\n--- # the next\nb\n---#\n":                   "0+0 a\n|1+2 b\n",
		"a\n---\nb\n--- c\n--- d\n---\ne\n":              "0+0 a\n|1+2 b\n--- c\n--- d\n yaml: line 2: behind --- may stand nothing but a comment|2+6 e\n",
		" ---\n":                                         "0+0  ---\n",
	} {
		var got []string
		for _, d := range Documents([]byte(text)) {
			one := fmt.Sprintf("%d+%d %s", d.Number, d.Above, d.Data)
			if d.Bad != nil {
				one += " " + d.Bad.Error()
			}
			got = append(got, one)
		}
		if got := strings.Join(got, "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzDocuments: of a file that is good each has the number that it has for Kubernetes, and always had here: the UIDs of its pods are made
// of it.
func FuzzDocuments(f *testing.F) {
	f.Add("---\na\n--- #\n\n---\r\nb")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.TrimPrefix(text, "\ufeff")
		var want []string
		for docs := k8syaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
			d, err := docs.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				return
			}
			want = append(want, strings.TrimSpace(string(d)))
		}
		var got []string
		for _, d := range Documents([]byte(text)) {
			if d.Bad != nil || d.Number != len(got) {
				t.Errorf("%q: %+v", text, d)
			}
			got = append(got, strings.TrimSpace(string(d.Data)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	})
}
