package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	out := "ok  \tledge/a\t0.1s\n" +
		"chatter\n--- FAIL: TestX (0.00s)\n    x_test.go:1: late\nFAIL\nFAIL\tledge/b\t0.2s\n" +
		"?   \tledge/n\t[no test files]\n" +
		"FAIL\tledge/c [build failed]\n" +
		"--- FAIL: TestY (0.00s)\nWARNING: DATA RACE\nFAIL\nFAIL\tledge/d\t1s\n" +
		"ok  \tledge/e\t(cached)\nFAIL\n"
	got, err := read(strings.NewReader(out))
	want := []failure{{"ledge/b", []string{"TestX"}}, {"ledge/c", nil}, {"ledge/d", nil}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
}

func TestSplit(t *testing.T) {
	flags, packages := split([]string{"-race", "-tags", "a b", "ledge/x", "ledge/y/z"})
	if !reflect.DeepEqual(flags, []string{"-race", "-tags", "a b"}) || !reflect.DeepEqual(packages, []string{"ledge/x", "ledge/y/z"}) {
		t.Errorf("%q %q", flags, packages)
	}
}
