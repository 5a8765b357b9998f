package sim

import (
	"context"
	"strconv"
	"strings"
	"time"

	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

// Script reads from a container's command what the container will do. The words may be combined:
//
//	run            run until told to stop
//	exit=30s:1     end by itself after that time, with that code
//	start=2s       take that long to start
//	stop=5s        take that long to stop after SIGTERM
//	deaf           not hear SIGTERM
//	eats=1000:9000 take so many bytes of memory a second, until it is so many
//	forks=10:90    the same with processes
//
// It stands in the pod's spec, so that it outlives brains and boots.
func Script(c runtime.Container) enginefake.Behaviour {
	does := enginefake.Behaviour{Exec: command}
	for _, word := range c.Args {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "exit":
			after, code, _ := strings.Cut(value, ":")
			d := duration(after)
			n, err := strconv.Atoi(code)
			if err != nil {
				panic("sim: bad word in a command: " + word)
			}
			does.ExitAfter, does.Exit = &d, runtime.Exit{Code: n}
		case "start":
			does.StartTakes = duration(value)
		case "stop":
			does.TermTakes = duration(value)
		case "deaf":
			does.IgnoreTERM = true
		case "run", "eats", "forks": // which the kernel counts
		default:
			panic("sim: unknown word in a command: " + word)
		}
	}
	return does
}

// command does what a probe or a hook says: it takes a time and ends with a code.
func command(ctx context.Context, x runtime.Exec) (int, error) {
	takes, code, _ := strings.Cut(x.Args[0], ":")
	n, err := strconv.Atoi(code)
	if err != nil {
		panic("sim: bad command: " + x.Args[0])
	}
	t := time.NewTimer(duration(takes))
	defer t.Stop()
	select {
	case <-t.C:
		return n, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic("sim: bad duration in a command: " + s)
	}
	return d
}
