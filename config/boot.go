package config

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// BootStateDir is where the brain finds what was made of it. It ends with the boot.
const BootStateDir = "/run/ledge-boot"

// In it:
const (
	BootFile           = "config.yaml"
	BootWhereFile      = "partition"  // where the boot partition is
	BootPlacesFile     = "places"     // a bootPlaces
	BootKubeconfigFile = "kubeconfig" // is there when one is to lie on it
	BootEmptyDir       = "manifests"  // stands for a folder that is not there
)

// BootFiles is the configuration of the boot partition, if there is one.
func BootFiles(state string) []string {
	file := filepath.Join(state, BootFile)
	if _, err := os.Stat(file); state == "" || err != nil {
		return nil
	}
	return []string{file}
}

// ReadBrain reads flags and files as a brain does. args are a command line of serve or agent.
func ReadBrain(args []string) (*Options, error) {
	before := flag.NewFlagSet("ledge", flag.ContinueOnError)
	before.SetOutput(io.Discard)
	before.String("run-dir", "", "")
	if err := before.Parse(args); err != nil {
		return nil, Usagef("%v", err)
	}
	verb := before.Arg(0)
	make := map[string]func(*flag.FlagSet) *Options{"serve": ServeFlags, "agent": AgentFlags}[verb]
	if make == nil {
		return nil, fmt.Errorf("%q is no brain", verb)
	}
	f := flag.NewFlagSet(verb, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.String("run-dir", "", "")
	o := make(f)
	if _, err := ParseFlags(f, before.Args()[1:]); err != nil {
		return nil, err
	}
	set, err := o.Resolve(f)
	return set.Options, err
}

// AsAgent makes agent's arguments of serve's: what only a control plane has is left out.
func AsAgent(args []string) (out []string) {
	serve, known := flag.NewFlagSet("serve", flag.ContinueOnError), flag.NewFlagSet("agent", flag.ContinueOnError)
	for _, f := range []*flag.FlagSet{serve, known} {
		f.String("run-dir", "", "")
	}
	ServeFlags(serve)
	AgentFlags(known)
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		f := serve.Lookup(name)
		switch {
		case args[i] == "serve":
			out = append(out, "agent")
			continue
		case !strings.HasPrefix(args[i], "-") || f == nil:
			out = append(out, args[i])
			continue
		}
		with := 1
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !joined && !(ok && b.IsBoolFlag()) {
			with = 2
		}
		if end := min(i+with, len(args)); known.Lookup(name) != nil {
			out = append(out, args[i:end]...)
		}
		i += with - 1
	}
	return out
}

// FirmwareDir is where the partition is mounted that the machine's firmware reads and people write.
const FirmwareDir = "/boot/firmware"
