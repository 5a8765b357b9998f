// Command charts counts how much ledge takes of what people install on Kubernetes: it applies every document of rendered charts, each
// chart to an API of its own without a node, and writes a page of what was taken and what not, by kind and field.
//
//	go run ./lab/charts -dir DIRECTORY [-page docs/measured/charts.md]
//
// The directory has a file NAME.yaml for each line of sources.tsv: what `helm template NAME PATH` makes of that repository's chart at that
// commit with its default values.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed sources.tsv
var sourceList string

// source is where a chart is from.
type source struct{ name, repository, commit, path string }

func main() {
	dir := flag.String("dir", "", "directory of the rendered charts")
	page := flag.String("page", "", "file for the page; empty: print it")
	flag.Parse()
	if err := run(context.Background(), *dir, *page); err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, page string) error {
	if dir == "" {
		return errors.New("say where the rendered charts are: -dir DIRECTORY")
	}
	charts, err := tryAll(ctx, dir)
	if err != nil {
		return err
	}
	text := write(charts)
	if page == "" {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	fmt.Println(total(charts))
	return os.WriteFile(page, []byte(text), 0o644)
}

func tryAll(ctx context.Context, dir string) ([]chart, error) {
	var out []chart
	for line := range strings.Lines(sourceList) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("sources.tsv: %q is not NAME, repository, commit, path", line)
		}
		data, err := os.ReadFile(filepath.Join(dir, f[0]+".yaml"))
		if err != nil {
			return nil, fmt.Errorf("read a rendered chart: %w", err)
		}
		c, err := try(ctx, source{f[0], f[1], f[2], f[3]}, data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f[0], err)
		}
		out = append(out, c)
	}
	return out, nil
}
