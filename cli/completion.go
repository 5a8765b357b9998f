package cli

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/config"
)

// The scripts only ask this binary what may come next: `ledge __complete WORDS...`, the last word unfinished.
var completions = map[string]string{
	"bash": `_ledge() {
    local IFS=$'\n'
    COMPREPLY=($(ledge __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _ledge ledge
`,
	"zsh": `#compdef ledge
_ledge() {
    local -a all
    all=(${(f)"$(ledge __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
    if (( $#all )); then compadd -- $all; else _files; fi
}
if [ "$funcstack[1]" = _ledge ]; then _ledge "$@"; else compdef _ledge ledge; fi
`,
	"fish": `function __ledge_complete
    set -l words (commandline -opc) (commandline -ct)
    ledge __complete $words[2..-1] 2>/dev/null
end
complete -c ledge -a '(__ledge_complete)'
`,
}

func completion(_ context.Context, c *Command) error {
	if len(c.args) == 1 && completions[c.args[0]] != "" {
		_, err := fmt.Fprint(c.out, completions[c.args[0]])
		return err
	}
	return config.Usagef("completion: name a shell: bash, zsh or fish, as in: source <(ledge completion bash)")
}

// complete prints what the last of the words can become. It must see flags as words, so it is no verb.
func (c *Command) complete(ctx context.Context, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	unfinished := words[len(words)-1]
	for _, s := range c.candidates(ctx, words[:len(words)-1], unfinished) {
		if strings.HasPrefix(s, unfinished) {
			say(c.out, "%s\n", s)
		}
	}
}

func (c *Command) candidates(ctx context.Context, words []string, unfinished string) []string {
	name, words, err := c.globals(words)
	if err != nil { // no verb yet
		var names []string
		for _, v := range verbs() {
			if !v.hidden {
				names = append(names, v.name)
			}
		}
		return append(names, "help")
	}
	i := slices.IndexFunc(verbs(), func(v Verb) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	v := verbs()[i]
	c.prepare(v)
	if strings.HasPrefix(unfinished, "-") {
		var out []string
		c.Flags.VisitAll(func(f *flag.Flag) { out = append(out, dashes(f.Name)+f.Name) })
		return out
	}
	if c.parse(v, words) != nil {
		return nil // such as a flag that waits for its value
	}
	return c.completeWord(ctx, v)
}

func dashes(flag string) string {
	if len(flag) == 1 {
		return "-"
	}
	return "--"
}

// completeWord lists what may stand in the place of a verb's next word.
func (c *Command) completeWord(ctx context.Context, v Verb) []string {
	switch {
	case v.words == wordsObject && len(c.args) == 0:
		var all []string
		for _, k := range kinds.All.Kept {
			all = append(all, k.Resource, k.Singular)
		}
		return all
	case v.words == wordsObject:
		return c.namesOf(ctx, kinds.All.Named(c.args[0]))
	case v.words == wordsPod && len(c.args) == 0:
		return c.namesOf(ctx, api.Pods)
	case v.words == wordsNode && len(c.args) == 0:
		return c.namesOf(ctx, api.Nodes)
	case len(c.args) == 0:
		return strings.Fields(v.words)
	}
	return nil
}

func (c *Command) namesOf(ctx context.Context, kind *api.Kind) []string {
	cl, err := c.Client()
	if err != nil || kind == nil {
		return nil
	}
	opts := api.ListOptions{}
	if f := c.Flags.Lookup("n"); f != nil && kind.Namespaced {
		opts.Namespace = f.Value.String()
	}
	list, err := cl.List(ctx, kind, opts)
	if err != nil {
		return nil
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.GetName())
	}
	return names
}
