package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"ledge/config"
	"ledge/storage"
)

// Versions is what `ledge version -o json` prints.
type Versions struct {
	Version      string `json:"version"`
	Commit       string `json:"commit"`
	BuildTime    string `json:"buildTime"`
	Go           string `json:"go"`
	Libcontainer string `json:"libcontainer"`
	Bbolt        string `json:"bbolt"`
	Store        int    `json:"store"` // the newest layout of the store that this version knows
}

func currentVersions(build config.Build) Versions {
	v := Versions{Version: build.Version, Commit: build.Commit, BuildTime: build.Time, Libcontainer: "unknown", Bbolt: "unknown",
		Store: storage.Schema}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	for _, d := range info.Deps {
		switch d.Path {
		case "github.com/opencontainers/runc":
			v.Libcontainer = d.Version
		case "go.etcd.io/bbolt":
			v.Bbolt = d.Version
		}
	}
	return v
}

func versionFlags(c *Command) {
	var format string
	c.Flags.StringVar(&format, "o", "", "json")
	c.Opts = &format
}

func versionVerb(_ context.Context, c *Command) error {
	v := currentVersions(c.app.Build)
	switch format := *c.Opts.(*string); format {
	case "":
		_, err := fmt.Fprintf(c.out, "ledge %s (%s, %s)\nlibcontainer %s\nbbolt %s\n%s\n",
			v.Version, v.Commit, v.BuildTime, v.Libcontainer, v.Bbolt, v.Go)
		return err
	case "json":
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	default:
		return config.Usagef("version: -o %s is not a format; there is json", format)
	}
}
