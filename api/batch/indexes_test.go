package batch

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestIndexes(t *testing.T) {
	for text, want := range map[string]Indexes{
		"":           nil,
		"0":          {{0, 0}},
		"1,3-5,7":    {{1, 1}, {3, 5}, {7, 7}},
		"1,2":        {{1, 2}},
		"2147483647": {{2147483647, 2147483647}},
	} {
		if got, err := ParseIndexes(text); err != nil || !reflect.DeepEqual(got, want) || got.String() != text {
			t.Errorf("%q: %v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{",", "1,", "-1", "1-", "1-1", "2-1", "1-2-3", "2,1", "1,1", "1-3,3", "a", " 1", "+1", "2147483648", "1e3"} {
		if got, err := ParseIndexes(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// FuzzIndexes: the operations are those of sets of numbers, and what is written is read as the same.
func FuzzIndexes(f *testing.F) {
	f.Add([]byte{1, 3, 4, 5, 7}, []byte{0, 2, 3}, byte(5))
	f.Add([]byte{}, []byte{255, 255}, byte(0))
	f.Fuzz(func(t *testing.T, a, b []byte, n byte) {
		s, u := setOf(a), setOf(b)
		var both, either, below, missing int
		for i := range 256 {
			in, inU := slices.Contains(a, byte(i)), slices.Contains(b, byte(i))
			if s.Has(i) != in {
				t.Fatalf("%s has %d: %v", s, i, !in)
			}
			both, either, below, missing = both+one(in && inU), either+one(in || inU), below+one(in && i < int(n)), missing+one(!in && i < int(n))
		}
		if s.Common(u).Len() != both || s.With(u).Len() != either || s.Below(int(n)).Len() != below || len(s.Missing(300, int(n))) != missing {
			t.Errorf("%s and %s: common %s, either %s, below %d %s", s, u, s.Common(u), s.With(u), n, s.Below(int(n)))
		}
		for _, i := range s.Missing(3, int(n)) {
			if s.Has(i) || i >= int(n) {
				t.Errorf("%d is missing in %s below %d", i, s, n)
			}
		}
		if again, err := ParseIndexes(s.String()); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%s is read as %s, %v", s, again, err)
		}
	})
}

func setOf(b []byte) Indexes {
	var list []int
	for _, i := range b {
		list = append(list, int(i))
	}
	return SetOf(list)
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// A list of indexes of any length is read in a time that grows with it.
func TestManyIndexes(t *testing.T) {
	text := strings.TrimSuffix(strings.Repeat("1,", 1<<20), ",")
	if _, err := ParseIndexes(text); err == nil {
		t.Error("the same index again and again")
	}
}
