// Package config reads what a board is told: flags, files and the keys in them, and what they come to together. Flags and files are
// parsed here and nowhere else.
package config

import (
	"errors"
	"flag"
	"fmt"
	"slices"
)

// ErrUsage is an error of the command line itself: exit code 2.
var ErrUsage = errors.New("usage")

// Usagef makes one.
func Usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, args...))
}

// The machine's own node.
const (
	DefaultRunDir  = "/run/ledge"
	DefaultDataDir = "/var/lib/ledge"
)

// doorPort is where a kubelet serves its control plane.
const doorPort = 10250

// safeModeAfter is after how many ends in a row that nobody ordered a node begins in safe mode.
const safeModeAfter = 3

// ParseFlags reads flags anywhere between the words, as people type them, and gives the words. What stands behind -- are words.
func ParseFlags(f *flag.FlagSet, args []string) (words []string, err error) {
	var last []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, last = args[:i], args[i+1:]
	}
	for {
		switch err := f.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, err
		case err != nil:
			return nil, Usagef("%s: %v", f.Name(), err)
		}
		rest := f.Args()
		if len(rest) == 0 {
			return append(words, last...), nil
		}
		words, args = append(words, rest[0]), rest[1:]
	}
}
