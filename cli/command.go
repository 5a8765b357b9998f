// Package cli is what people type: verbs on objects and on the board, one file each. They ask a running node over its socket.
package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"ledge/boot/ending"
	"ledge/config"
)

// Verb is one thing ledge can be told to do.
type Verb struct {
	name, args, help string
	hidden           bool
	words            string // what its words are, for completion: themselves, or one of the below
	run              func(ctx context.Context, c *Command) error
	flags            func(c *Command)
}

// What a verb's words may be.
const (
	wordsObject = "KIND NAME"
	wordsPod    = "POD"
	wordsNode   = "NODE"
)

// verbs lists all verbs, in the order in which help shows them. Those without a function are the program's own.
func verbs() []Verb {
	return []Verb{
		{name: "serve", help: "run this board: control plane and agent, or the agent alone if the configuration names a server",
			flags: func(c *Command) { c.Opts = config.ServeFlags(c.Flags) }},
		{name: "agent", help: "run this board for a control plane elsewhere", flags: func(c *Command) { c.Opts = config.AgentFlags(c.Flags) }},
		{name: "join", args: "--kubeconfig FILE", help: "make this board a node of a Kubernetes, with an administrator's file", run: joinVerb,
			flags: joinFlags},
		{name: "token", args: "create | list | delete ID", help: "what boards join this control plane with", words: "create list delete",
			run: tokenVerb, flags: tokenFlags},
		{name: "node", args: "ls | revoke NAME", help: "boards that have joined, and letting one in no more that was stolen", words: "ls revoke",
			run: nodeVerb},
		{name: "get", args: "KIND [NAME]", help: "list or show objects", words: wordsObject, run: get, flags: getFlags},
		{name: "describe", args: "KIND NAME", help: "tell all about an object, with its events", words: wordsObject, run: describe,
			flags: describeFlags},
		{name: "apply", args: "-f FILE", help: "create or change objects from YAML or JSON", run: apply, flags: applyFlags},
		{name: "delete", args: "KIND NAME... | -f FILE", help: "delete objects", words: wordsObject, run: del, flags: deleteFlags},
		{name: "scale", args: "KIND NAME --replicas N", help: "set how many pods there are to be", words: wordsObject, run: scale,
			flags: scaleFlags},
		{name: "rollout", args: "status | history | undo | pause | resume | restart KIND NAME",
			help: "follow and steer how the pods of a Deployment are replaced", words: "status history undo pause resume restart", run: rollout,
			flags: rolloutFlags},
		{name: "logs", args: "POD", help: "show what a container wrote", words: wordsPod, run: logs, flags: logsFlags},
		{name: "exec", args: "POD -- COMMAND", help: "run a command in a container", words: wordsPod, run: execVerb, flags: execFlags},
		{name: "attach", args: "POD", help: "join what a container reads and writes", words: wordsPod, run: attach, flags: execFlags},
		{name: "top", args: "nodes | pods [NAME]", help: "show what nodes or pods use", words: "nodes pods", run: top, flags: topFlags},
		{name: "cordon", args: "[NODE]", help: "let no new pods come to a node", words: wordsNode, run: cordon},
		{name: "uncordon", args: "[NODE]", help: "let pods come again", words: wordsNode, run: uncordon},
		{name: "drain", args: "[NODE]", help: "cordon a node and evict its pods", words: wordsNode, run: drain, flags: drainFlags},
		{name: "images", args: "ls | pull | import | export | verify | prune | rm", help: "images on this board",
			words: "ls pull import export verify prune rm", run: imagesVerb, flags: imagesFlags},
		{name: "status", help: "what the board is short of, and how far from that it is", run: status},
		{name: "doctor", help: "check this board and say what to do", run: doctor, flags: doctorFlags},
		{name: "find", help: "list the boards on this machine's networks; needs no node and no rights", run: find, flags: findFlags},
		{name: "page", help: "show the board's page in a browser on this machine, by a link that opens once", run: pageVerb, flags: pageFlags},
		{name: "kubeconfig", help: "print a kubeconfig for kubectl", run: kubeconfig},
		{name: "backup", args: "save FILE | verify FILE | restore FILE", help: "save and restore the store, and claims", words: "save verify restore",
			run: backup, flags: backupFlags},
		{name: "shutdown", args: "--now | --in 5m | --cancel | --plan", help: "stop the pods in order and switch the board off",
			run: shutdownVerb, flags: shutdownFlags},
		{name: "resume", help: "leave safe mode: look after the pods again", run: resume},
		{name: "upgrade", args: "FILE | URL", help: "run another version of ledge, and the one before it again if that is not well",
			run: upgradeVerb, flags: upgradeFlags},
		{name: "reset", help: "stop every pod and remove all run state", run: reset, flags: resetFlags},
		{name: "firstboot", help: "make what stands on the boot partition hold; before the node starts", flags: firstbootFlags},
		{name: "machines", args: "FILE [NODE]", help: "tell from a file whether a machine exists (for serve --machine-lister)",
			run: machinesVerb},
		{name: "completion", args: "bash | zsh | fish", help: "print a script that completes words for a shell", words: "bash zsh fish",
			run: completion},
		{name: "version", help: "print versions", run: versionVerb, flags: versionFlags},
		{name: "keeper", hidden: true, help: "hold the containers (started by serve or systemd)", flags: keeperFlags},
		{name: "check-db", args: "FILE", hidden: true, help: "check a store in a process of its own", run: checkDB},
	}
}

// Command is one invocation: its flags, its words, and where it writes.
type Command struct {
	Flags  *flag.FlagSet
	args   []string
	out    io.Writer
	Err    io.Writer
	RunDir string
	Opts   any // the verb's own flags
	app    App
}

// App is what the program tells this package: its build, and the verbs that are its own.
type App struct {
	Build config.Build
	// Own are the verbs that are the program itself, by name.
	Own map[string]func(context.Context, *Command) error
}

// Run is main without the process: arguments in, exit code out.
func Run(a App, args []string, stdout, stderr io.Writer) int {
	ctx := context.Background()
	stdout, stderr = visible{stdout}, visible{stderr}
	c := &Command{app: a, out: stdout, Err: stderr, RunDir: cmp.Or(os.Getenv("LEDGE_RUN_DIR"), config.DefaultRunDir)}
	if len(args) > 0 && args[0] == "__complete" {
		c.complete(ctx, args[1:])
		return 0
	}
	name, rest, err := c.globals(args)
	if err == nil {
		err = c.dispatch(ctx, name, rest)
	}
	var code exitCode
	var word ending.Code
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &word):
		return int(word)
	case errors.As(err, &code):
		fmt.Fprintln(stderr, code)
		return int(code)
	case errors.Is(err, config.ErrUsage):
		fmt.Fprintf(stderr, "ledge: %s\n", indented(strings.TrimPrefix(err.Error(), "usage: ")))
		return 2
	}
	fmt.Fprintf(stderr, "ledge: %s\n", indented(err.Error()))
	return 1
}

// globals reads what may stand before the verb.
func (c *Command) globals(args []string) (name string, rest []string, err error) {
	fs := flag.NewFlagSet("ledge", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.RunDir, "run-dir", c.RunDir, "")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		c.usage(c.out)
		return "", nil, flag.ErrHelp
	case err != nil:
		return "", nil, config.Usagef("%v", err)
	}
	if fs.NArg() == 0 {
		c.usage(c.Err)
		return "", nil, config.Usagef("say what to do")
	}
	return fs.Arg(0), fs.Args()[1:], nil
}

func (c *Command) usage(w io.Writer) {
	fmt.Fprintln(w, "ledge [--run-dir DIR] VERB ...")
	for _, v := range verbs() {
		if !v.hidden {
			fmt.Fprintf(w, "  %-42s %s\n", strings.TrimSpace(v.name+" "+v.args), v.help)
		}
	}
}

func (c *Command) dispatch(ctx context.Context, name string, args []string) error {
	all := verbs()
	i := slices.IndexFunc(all, func(v Verb) bool { return v.name == name })
	if name == "help" {
		c.usage(c.out)
		return nil
	}
	if i < 0 {
		return config.Usagef("there is no verb %q; 'ledge help' lists them", name)
	}
	v := all[i]
	c.prepare(v)
	if err := c.parse(v, args); err != nil {
		return err
	}
	if v.args == "" && len(c.args) > 0 {
		return config.Usagef("%s: unexpected %q", v.name, c.args[0])
	}
	if err := c.absolute(); err != nil {
		return err
	}
	if v.run == nil {
		return c.app.Own[v.name](ctx, c)
	}
	return v.run(ctx, c)
}

// prepare makes the flags of a verb.
func (c *Command) prepare(v Verb) {
	c.Flags = flag.NewFlagSet(v.name, flag.ContinueOnError)
	c.Flags.SetOutput(io.Discard)
	c.Flags.StringVar(&c.RunDir, "run-dir", c.RunDir, "where the node's sockets and run state are (or LEDGE_RUN_DIR)")
	if v.flags != nil {
		v.flags(c)
	}
}

// parse reads flags anywhere between the words, as people type them. What stands behind -- are words.
func (c *Command) parse(v Verb, args []string) error {
	words, err := config.ParseFlags(c.Flags, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(c.out, "ledge %s\n", strings.TrimSpace(v.name+" [flags] "+v.args))
		c.Flags.SetOutput(c.out)
		c.Flags.PrintDefaults()
		return flag.ErrHelp
	}
	c.args = append(c.args, words...)
	return err
}
