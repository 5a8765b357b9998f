package boot

import (
	"cmp"
	"log/slog"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/brain/place"
	"ledge/config"
	"ledge/upgrade"
)

// The program that the machine starts runs the version that an upgrade has chosen in its own place (docs/decisions/0057).

const (
	// launchedBy names the launcher to the version that it has become, and to what that one starts.
	launchedBy = "LEDGE_BASE"
)

// role is what a launch is for.
type role int

const (
	roleNone   role = iota // this program itself is asked for
	roleTool               // any version will do that is known to be well
	roleBrain              // may be on trial
	roleKeeper             // follows the brain
)

// launchWords are the flags that a launcher reads from a command line. Only another version may understand the rest.
type launchWords struct {
	verb, runDir, dataDir string
}

func readLaunchWords(args []string) (w launchWords) {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") {
			if w.verb == "" {
				w.verb = args[i]
			}
			continue
		}
		to := map[string]*string{"run-dir": &w.runDir, "data-dir": &w.dataDir}[name]
		if to == nil {
			continue
		}
		if !given && i+1 < len(args) {
			i++
			value = args[i]
		}
		*to = value
	}
	return w
}

func (w launchWords) role() role {
	switch w.verb {
	case "serve", "agent":
		return roleBrain
	case "keeper":
		return roleKeeper
	case "check-db": // a part of the version that has started it
		return roleNone
	}
	return roleTool
}

// where is the data directory of the node that is meant; empty when nobody can tell.
func (w launchWords) where() string {
	if w.dataDir != "" {
		return w.dataDir
	}
	runDir := cmp.Or(w.runDir, os.Getenv("LEDGE_RUN_DIR"), config.DefaultRunDir)
	if w.role() != roleBrain {
		if info, err := place.ReadInfo(runDir); err == nil && info.DataDir != "" {
			return info.DataDir
		}
		if runDir != config.DefaultRunDir {
			return ""
		}
	}
	return config.DefaultDataDir
}

// Launch turns this process into the version that the board has chosen. It comes back when that is this program.
func Launch(build config.Build, args []string) {
	w := readLaunchWords(args)
	dataDir := w.where()
	exe, err := os.Executable()
	if err != nil || w.role() == roleNone || dataDir == "" || os.Getenv(upgrade.LaunchNot) == "no" {
		return
	}
	dir := upgrade.Open(dataDir)
	if dir.Self(exe) != upgrade.Base {
		return // it has been launched
	}
	env := append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, launchedBy+"=") }), launchedBy+"="+exe)
	for name := chooseVersion(dir, build, w.role()); name != upgrade.Base; {
		err := unix.Exec(dir.Program(name), os.Args, env)
		slog.Error("a version cannot be started", "version", name, "err", err)
		if w.role() == roleTool {
			return // whoever starts the node notes it
		}
		next := upgrade.Base
		if _, err := dir.Change(func(s upgrade.State) (upgrade.State, error) {
			s, next = s.Cannot(name, "it cannot be started: "+err.Error())
			return s, nil
		}); err != nil {
			slog.Error("that a version cannot be started is not noted", "err", err)
		}
		if next == name {
			return
		}
		name = next
	}
}

// chooseVersion says which version to become, once that is durable.
func chooseVersion(dir *upgrade.Dir, build config.Build, as role) string {
	s, err := dir.Load()
	if err != nil {
		if as != roleBrain { // the brain reports this itself, after its start-up checks
			slog.Error("which version is to run is not known; this one does", "err", err)
		}
		return upgrade.Base
	}
	if s.Pending == nil && s.Current == "" || as == roleTool { // most boards; reading is enough
		return s.Running()
	}
	run := s.Running()
	_, err = dir.Change(func(s upgrade.State) (upgrade.State, error) {
		if as == roleKeeper {
			s, run = s.LaunchKeeper()
		} else {
			s, run = s.Launch(build.Stamp())
		}
		return s, nil
	})
	if err == nil {
		return run
	}
	// A start that is not counted is not one of a new version.
	slog.Error("this start of a version is not noted", "err", err)
	if as == roleKeeper {
		return cmp.Or(s.Keeper.Proven, upgrade.Base)
	}
	return s.Running()
}

// Launcher is the program that the machine starts.
func Launcher() (string, error) {
	if base := os.Getenv(launchedBy); base != "" {
		return base, nil
	}
	return os.Executable()
}
