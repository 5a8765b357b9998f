// Command sbom prints what is in a binary of ledge, as the list of an image does: sbom VERSION EPOCH ARCH BINARY.
package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"ledge/packaging/sbom"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("want VERSION EPOCH ARCH BINARY, have %q", args)
	}
	epoch, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("the time of the commit: %w", err)
	}
	info, err := buildinfo.ReadFile(args[3])
	if err != nil {
		return err
	}
	text, err := sbom.Of(sbom.Thing{Name: filepath.Base(args[3]), Version: args[0], Epoch: epoch, Arch: args[2], Binary: info})
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}
