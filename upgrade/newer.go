package upgrade

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Newer orders versions as people do, and builds of one version by when they were built: that is when their commit was made.
func Newer(a, b Stamp) bool {
	if c := compare(a.Version, b.Version); c != 0 {
		return c > 0
	}
	at, aerr := time.Parse(time.RFC3339, a.Built)
	bt, berr := time.Parse(time.RFC3339, b.Built)
	return aerr == nil && berr == nil && at.After(bt)
}

// compare knows v1.2.3, v1.2.3-rc.1 (before it) and what git describe makes: v1.2.3-4-gabcdef0 (four commits after it). What
// has no number is older than what has.
func compare(a, b string) int {
	x, xpre, xafter := split(a)
	y, ypre, yafter := split(b)
	if c := slices.Compare(x, y); c != 0 {
		return c
	}
	if (xpre == "") != (ypre == "") {
		if xpre == "" {
			return 1
		}
		return -1
	}
	return cmp.Or(comparePre(xpre, ypre), cmp.Compare(xafter, yafter))
}

func split(v string) (numbers []int, pre string, after int) {
	v = strings.TrimSuffix(strings.TrimPrefix(v, "v"), "-dirty")
	if i := strings.LastIndex(v, "-g"); i > 0 {
		if j := strings.LastIndexByte(v[:i], '-'); j > 0 {
			if n, err := strconv.Atoi(v[j+1 : i]); err == nil {
				v, after = v[:j], n
			}
		}
	}
	v, _, _ = strings.Cut(v, "+")
	core, pre, _ := strings.Cut(v, "-")
	for part := range strings.SplitSeq(core, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, pre, after
		}
		numbers = append(numbers, n)
	}
	return numbers, pre, after
}

// comparePre is semantic versioning's order of pre-releases: part by part, numbers as numbers and before words.
func comparePre(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		n, nerr := strconv.Atoi(x)
		m, merr := strconv.Atoi(y)
		switch {
		case nerr == nil && merr == nil:
			return cmp.Compare(n, m)
		case nerr == nil:
			return -1
		case merr == nil:
			return 1
		}
		return strings.Compare(x, y)
	})
}
