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

const imagesUsage = "images: ls, pull NAME, import FILE|- or rm NAME"

func imagesVerb(ctx context.Context, c *command) error {
	if len(c.args) == 0 {
		return usagef(imagesUsage)
	}
	switch sub, args := c.args[0], c.args[1:]; {
	case sub == "ls" && len(args) == 0:
		resp, err := c.raw(ctx, "GET", imagesPath, nil, "", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return c.printImages(resp.Body)
	case sub == "pull" && len(args) == 1:
		return c.pullImage(ctx, args[0])
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
	return usagef(imagesUsage)
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
	var list imageList
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tID\tSIZE\tPINNED")
	for _, r := range list.Images {
		id := strings.TrimPrefix(r.ID, "sha256:")
		for _, n := range r.Names {
			fmt.Fprintf(w, "%s\t%.12s\t%.1f MB\t%v\n", n, id, float64(r.Size)/1e6, r.Pinned)
		}
	}
	return w.Flush()
}
