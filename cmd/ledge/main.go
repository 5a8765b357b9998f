// Command ledge turns a board into a Kubernetes-shaped node with its own control plane.
//
// It says which verb is this program itself, and what of the machine a brain gets. Everything else has a room.
package main

import (
	"context"
	"os"

	"ledge/boot"
	"ledge/cli"
	"ledge/config"
	"ledge/host"
	"ledge/host/nfs"
	"ledge/images/applet"
	"ledge/network/ingress/door"
)

// Stamped in by the build (scripts/build.sh).
var (
	version   = "v0.0.0-dev"
	commit    = "unknown"
	buildTime = "1970-01-01T00:00:00Z"
)

var build = config.Build{Version: version, Commit: commit, Time: buildTime}

func main() {
	if code, ok := applet.Dispatch(os.Args, applets); ok { // it is a container of ledge.local/self
		os.Exit(code)
	}
	if code, ok := nfs.Child(os.Args); ok {
		os.Exit(code)
	}
	code, done := 0, false
	if host.IsInit() {
		code, done = boot.AsInit(os.Args[1:])
	}
	if !done {
		boot.Launch(build, os.Args[1:])
		code = cli.Run(cli.App{Build: build, Own: own}, os.Args[1:], os.Stdout, os.Stderr)
	}
	if os.Getpid() == 1 {
		boot.DrainConsole()
	}
	os.Exit(code)
}

// applets are those that are rooms of their own.
var applets = map[string]func(args []string) error{"ingress": door.Main}

// own are the verbs that are this program itself: they join what no other package may.
var own = map[string]func(context.Context, *cli.Command) error{"serve": serve, "agent": serve, "keeper": keeperVerb,
	"firstboot": firstbootVerb}
