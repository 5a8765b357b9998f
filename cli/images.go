package cli

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"ledge/api/board"
	"ledge/config"
	"ledge/images"
)

const imagesUsage = "images: ls, pull [--pin] NAME, import FILE|DIRECTORY|-, export NAME... > FILE, verify [--repair], prune or rm NAME"

type imagesOpts struct{ pin, repair bool }

func imagesFlags(c *Command) {
	o := &imagesOpts{}
	c.Flags.BoolVar(&o.pin, "pin", false, "pull: keep the image for good, and its compressed layers for export and repair")
	c.Flags.BoolVar(&o.repair, "repair", false, "verify: mend what is damaged, from what is kept here or else from the registry")
	c.Opts = o
}

func imagesVerb(ctx context.Context, c *Command) error {
	if len(c.args) == 0 {
		return config.Usagef(imagesUsage)
	}
	o := c.Opts.(*imagesOpts)
	sub, args := c.args[0], c.args[1:]
	if o.pin && sub != "pull" || o.repair && sub != "verify" {
		return config.Usagef(imagesUsage)
	}
	switch {
	case sub == "ls" && len(args) == 0:
		return c.ask(ctx, "GET", board.ImagesPath, nil, onto(c.out, printImages))
	case sub == "pull" && len(args) == 1:
		return c.pullImage(ctx, args[0], o.pin)
	case sub == "import" && len(args) == 1:
		return c.importImages(ctx, args[0])
	case sub == "export" && len(args) > 0:
		return c.exportImages(ctx, args)
	case sub == "verify" && len(args) == 0:
		return c.ask(ctx, "POST", board.VerifyPath, url.Values{"repair": {strconv.FormatBool(o.repair)}}, onto(c.out, printVerified))
	case sub == "prune" && len(args) == 0:
		return c.ask(ctx, "POST", board.PrunePath, nil, onto(c.out, printPruned))
	case sub == "rm" && len(args) == 1:
		return c.ask(ctx, "DELETE", board.ImagesPath, url.Values{"name": {args[0]}}, func(io.Reader) error {
			say(c.out, "%s removed\n", args[0])
			return nil
		})
	}
	return config.Usagef(imagesUsage)
}

// ask makes a request and prints the answer.
func (c *Command) ask(ctx context.Context, method, path string, query url.Values, print func(io.Reader) error) error {
	resp, err := c.Raw(ctx, method, path, query, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return print(resp.Body)
}

// onto prints an answer to out.
func onto(out io.Writer, print func(out io.Writer, body io.Reader) error) func(io.Reader) error {
	return func(body io.Reader) error { return print(out, body) }
}

// exportImages writes an archive to standard output, which must lead to a file or another program.
func (c *Command) exportImages(ctx context.Context, names []string) error {
	if _, terminal := terminalWidth(stream(c.out)); terminal {
		return config.Usagef("an archive does not go to a terminal: ledge images export NAME > FILE")
	}
	return c.ask(ctx, "GET", board.ExportPath, url.Values{"name": names}, func(r io.Reader) error {
		if _, err := io.Copy(stream(c.out), r); err != nil {
			return fmt.Errorf("export images: %w", err)
		}
		return nil
	})
}

func decode[T any](r io.Reader) (v T, err error) {
	if err := json.NewDecoder(r).Decode(&v); err != nil {
		return v, fmt.Errorf("read the node's answer: %w", err)
	}
	return v, nil
}

// printVerified fails when something is damaged still.
func printVerified(out io.Writer, body io.Reader) error {
	v, err := decode[board.Verified](body)
	if err != nil {
		return err
	}
	say(out, "%d layers read, %d damaged, %d repaired, %d images pulled again\n", v.Layers, len(v.Damaged), len(v.Repaired), len(v.Pulled))
	for _, f := range v.Failed {
		say(out, "%s\n", f)
	}
	switch {
	case len(v.Failed) > 0:
		return errors.New("images were lost: pull or import them again")
	case len(v.Damaged) > len(v.Repaired) && len(v.Lost) == 0:
		return errors.New("run with --repair to mend what is damaged")
	}
	return nil
}

func printPruned(out io.Writer, body io.Reader) error {
	v, err := decode[images.Collected](body)
	if err == nil {
		say(out, "%d unused images removed, %s freed\n", v.Images, megabytes(v.Bytes+v.Parts))
	}
	return err
}

// openArchive reads an archive. A directory, such as an OCI layout that skopeo or umoci made, becomes one on the way.
func openArchive(file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(os.Stdin), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.IsDir() {
		return f, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc([]string{"index.json", "manifest.json"}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(file, name))
		return err == nil
	}) { // said before all that is below it has been sent
		return nil, fmt.Errorf("directory %s is no image: neither index.json nor manifest.json in it", file)
	}
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		_ = w.CloseWithError(errors.Join(tw.AddFS(os.DirFS(file)), tw.Close()))
	}()
	return r, nil
}

func (c *Command) importImages(ctx context.Context, file string) error {
	in, err := openArchive(file)
	if err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	defer in.Close()
	resp, err := c.Raw(ctx, "POST", board.ImagesPath, nil, "", in)
	if err != nil {
		return fmt.Errorf("import images from %s: %w", file, err)
	}
	defer resp.Body.Close()
	return printImages(c.out, resp.Body)
}

func printImages(out io.Writer, body io.Reader) error {
	list, err := decode[board.Images](body)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tDIGEST\tID\tSIZE\tSHARED\tPINNED\tIN USE BY")
	for _, r := range list.Images {
		names := r.Names
		if len(names) == 0 {
			names = []string{"<none>"}
		}
		for _, n := range names {
			row(w, n, digestOf(r, n), short(r.ID), megabytes(r.Size), megabytes(r.Shared), r.Pinned, strings.Join(r.InUse, ","))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range list.Pulls {
		say(out, "%s\n", summary(p))
	}
	return nil
}

// digestOf is the manifest's that a name stands for, shortened.
func digestOf(r board.Image, name string) string {
	for _, d := range r.Digests {
		if repo, digest, ok := strings.Cut(d, "@"); ok && (strings.HasPrefix(name, repo+":") || name == "<none>") {
			return short(digest)
		}
	}
	return "<none>"
}
