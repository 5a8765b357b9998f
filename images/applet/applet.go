// Package applet is a handful of harmless programs inside the ledge binary, enough to run and look at a first pod
// without any image from outside: echo, httpd, pause, sleep. It imports little, for it runs in every such pod.
package applet

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = "usage: ledge applet {echo ARGS... | httpd [-p PORT] | pause | sleep SECONDS...}"

// Dispatch runs an applet if args, a whole command line, asks for one: by the program's name ("/bin/httpd", a
// link to ledge) or as "ledge applet httpd". ok is false when it does not. more are those that are too large for this package; they are
// run in the second way only.
func Dispatch(args []string, more map[string]func(args []string) error) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	if name := filepath.Base(args[0]); known(name) {
		return Main(append([]string{name}, args[1:]...)), true
	}
	if len(args) > 2 && args[1] == "applet" && more[args[2]] != nil {
		return ended(args[2], more[args[2]](args[3:])), true
	}
	if len(args) > 1 && args[1] == "applet" {
		return Main(args[2:]), true
	}
	return 0, false
}

func known(name string) bool {
	switch name {
	case "echo", "httpd", "pause", "sleep":
		return true
	}
	return false
}

// Main runs the applet args[0] and gives its exit code.
func Main(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, usage)
		return 2
	}
	var code int
	var err error
	switch args[0] {
	case "echo":
		err = echo(os.Stdout, args[1:])
	case "httpd":
		err = httpd(args[1:])
	case "pause":
		pause()
	case "sleep":
		code, err = sleep(args[1:])
	default:
		fmt.Fprintf(os.Stderr, "ledge: there is no applet %q\n%s\n", args[0], usage)
		return 2
	}
	if err != nil {
		return ended(args[0], err)
	}
	return code
}

func ended(name string, err error) (code int) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

func echo(w io.Writer, args []string) error {
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	_, err := io.WriteString(w, strings.Join(args, " ")+end)
	return err
}

// pause waits to be told to go. As the first process of a container it also buries what the others leave.
func pause() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	child := make(chan os.Signal, 1)
	if os.Getpid() == 1 {
		signal.Notify(child, syscall.SIGCHLD)
	}
	for {
		select {
		case <-stop:
			return
		case <-child:
			reap()
		}
	}
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

// sleep takes what coreutils' does: numbers with s, m, h or d behind, which add up, or infinity. It ends on
// SIGTERM even as process 1, where the kernel would not end it by itself.
func sleep(args []string) (code int, err error) {
	total, err := sleepTime(args)
	if err != nil {
		return 0, err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-time.After(total):
		return 0, nil
	case sig := <-stop:
		n, _ := sig.(syscall.Signal)
		return 128 + int(n), nil
	}
}

func sleepTime(args []string) (time.Duration, error) {
	if len(args) == 0 {
		return 0, errors.New("how long?")
	}
	var total float64 // seconds
	for _, a := range args {
		number, unit := a, 1.0
		for suffix, seconds := range map[string]float64{"s": 1, "m": 60, "h": 3600, "d": 86400} {
			if n, ok := strings.CutSuffix(a, suffix); ok {
				number, unit = n, seconds
			}
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || n < 0 || math.IsNaN(n) {
			return 0, fmt.Errorf("%q is no time", a)
		}
		total += n * unit
	}
	if total >= math.MaxInt64/1e9 {
		return math.MaxInt64, nil
	}
	return time.Duration(total * 1e9), nil
}
