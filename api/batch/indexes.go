package batch

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Indexes is a set of the indexes of a Job, as its status writes it: "1,3-5,7". The ranges are in order and do not touch.
type Indexes []Range

// Range is the indexes from First to Last.
type Range struct{ First, Last int }

// One is the set of a single index.
func One(i int) Indexes { return Indexes{{i, i}} }

// ParseIndexes reads what String writes. Neighbours that are written apart, as String writes two of them, become one range.
func ParseIndexes(text string) (Indexes, error) {
	if text == "" {
		return nil, nil
	}
	var out Indexes
	for part := range strings.SplitSeq(text, ",") {
		r, err := parseRange(part)
		if err != nil {
			return nil, err
		}
		if n := len(out); n > 0 {
			if out[n-1].Last >= r.First {
				return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", out[n-1].Last, r.First)
			}
			if out[n-1].Last+1 == r.First {
				out[n-1].Last = r.Last
				continue
			}
		}
		out = append(out, r)
	}
	return out, nil
}

func parseRange(text string) (Range, error) {
	first, last, two := strings.Cut(text, "-")
	if !two {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 31)
	b, errB := strconv.ParseUint(last, 10, 31)
	switch {
	case errA != nil || errB != nil:
		return Range{}, fmt.Errorf("%q is neither an index nor a range of them", text)
	case two && a >= b:
		return Range{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", a, b)
	}
	return Range{int(a), int(b)}, nil
}

func (s Indexes) String() string {
	var out strings.Builder
	for i, r := range s {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Itoa(r.First))
		switch {
		case r.Last == r.First+1:
			out.WriteByte(',')
		case r.Last > r.First:
			out.WriteByte('-')
		default:
			continue
		}
		out.WriteString(strconv.Itoa(r.Last))
	}
	return out.String()
}

// Len is how many indexes there are.
func (s Indexes) Len() int {
	n := 0
	for _, r := range s {
		n += r.Last - r.First + 1
	}
	return n
}

// Has says whether an index is one of them.
func (s Indexes) Has(i int) bool {
	_, ok := slices.BinarySearchFunc(s, i, func(r Range, i int) int {
		switch {
		case r.Last < i:
			return -1
		case r.First > i:
			return 1
		}
		return 0
	})
	return ok
}

// With has those of both sets.
func (s Indexes) With(t Indexes) Indexes {
	all := slices.Concat(s, t)
	sort.Slice(all, func(i, j int) bool { return all[i].First < all[j].First })
	var out Indexes
	for _, r := range all {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// Common has those that are in both sets.
func (s Indexes) Common(t Indexes) Indexes {
	var out Indexes
	for i, j := 0, 0; i < len(s) && j < len(t); {
		if r := (Range{max(s[i].First, t[j].First), min(s[i].Last, t[j].Last)}); r.First <= r.Last {
			out = append(out, r)
		}
		if s[i].Last < t[j].Last {
			i++
		} else {
			j++
		}
	}
	return out
}

// Below has those that are less than n.
func (s Indexes) Below(n int) Indexes { return s.Common(Indexes{{0, n - 1}}) }

// Missing are the first count indexes below n that are not in the set.
func (s Indexes) Missing(count, n int) []int {
	var out []int
	next := 0
	for _, r := range append(slices.Clone(s), Range{n, n}) {
		for ; next < min(r.First, n) && len(out) < count; next++ {
			out = append(out, next)
		}
		next = max(next, r.Last+1)
	}
	return out
}

// SetOf makes a set of indexes in any order.
func SetOf(indexes []int) Indexes {
	sorted := slices.Sorted(slices.Values(indexes))
	var out Indexes
	for _, i := range sorted {
		if n := len(out); n > 0 && i <= out[n-1].Last+1 {
			out[n-1].Last = i
			continue
		}
		out = append(out, Range{i, i})
	}
	return out
}
