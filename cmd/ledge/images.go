package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
)

// imageRow is one image as the node lists it at /ledge/v1/images.
type imageRow struct {
	ID     string   `json:"id"`
	Names  []string `json:"names"`
	Size   int64    `json:"size"`
	Pinned bool     `json:"pinned"`
}

const imagesPath = "/ledge/v1/images"

func imagesVerb(ctx context.Context, c *command) error {
	if len(c.args) == 0 {
		return usagef("images: ls, import FILE|- or rm NAME")
	}
	switch sub, args := c.args[0], c.args[1:]; {
	case sub == "ls" && len(args) == 0:
		resp, err := c.raw(ctx, "GET", imagesPath, nil, "", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return c.printImages(resp.Body)
	case sub == "import" && len(args) == 1:
		return c.importImages(ctx, args[0])
	case sub == "rm" && len(args) == 1:
		resp, err := c.raw(ctx, "DELETE", imagesPath, url.Values{"name": {args[0]}}, "", nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s removed\n", args[0])
		return resp.Body.Close()
	}
	return usagef("images: ls, import FILE|- or rm NAME")
}

func (c *command) importImages(ctx context.Context, file string) error {
	in := os.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("import images: %w", err)
		}
		defer f.Close()
		in = f
	}
	resp, err := c.raw(ctx, "POST", imagesPath, nil, "", in)
	if err != nil {
		return fmt.Errorf("import images from %s: %w", file, err)
	}
	defer resp.Body.Close()
	return c.printImages(resp.Body)
}

func (c *command) printImages(body io.Reader) error {
	var rows []imageRow
	if err := json.NewDecoder(body).Decode(&rows); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tID\tSIZE\tPINNED")
	for _, r := range rows {
		id := strings.TrimPrefix(r.ID, "sha256:")
		for _, n := range r.Names {
			fmt.Fprintf(w, "%s\t%.12s\t%.1f MB\t%v\n", n, id, float64(r.Size)/1e6, r.Pinned)
		}
	}
	return w.Flush()
}
