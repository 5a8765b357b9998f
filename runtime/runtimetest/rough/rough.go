// Package rough is what the containers of ledge's runtime tests do: things that no one should do on a host. It is a
// package so that a static test binary can stand in for the program (testprog) where there is no Go to build it.
package rough

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const usage = `testprog VERB [ARG...]
  run [CODE]            run until SIGTERM, then exit with CODE
  ignore                run and ignore SIGTERM
  exit CODE [AFTER]     exit with CODE after a time
  kill SIGNAL           end by a signal (not as PID 1)
  eat MIB               allocate and touch memory, then run
  eatchild MIB          have a child do that, report its end, exit 0
  forkbomb              start children until it fails; report how many
  bomb                  start children that do the same, for ever, and leave the CPU to nobody
  leak MIB [deaf]       take so much more memory each second; deaf: and ignore SIGTERM
  crowd                 have as many children that sleep as there can be
  reread FILE MIB       write a file and read it for ever
  orphan FILE           leave a child behind in the background that touches FILE for ever, and exit
  lines N [EVERY]       print N numbered lines
  flood                 print numbered lines for ever
  long N                print one line of N bytes and one without an end
  both                  print to standard output and standard error
  facts [stay]          print what this process is and may do, and stay
  links DIR             print where the links in a directory lead
  calls                 try system calls and print what came of it
  read PATH...          print what came of reading each
  write PATH...         print what came of writing each
  env                   print the environment
  stdin                 print how standard input ends
  cat [CODE]            copy standard input to standard output, say "end" on standard error, exit with CODE
  daemon FILE CODE      leave two children behind, one in a session of its own, that touch FILE; exit with CODE
  daemons FILE          leave the same children, and run
  size                  print the size of the terminal at each change, for ever
  openexe               try for ever to open the programs of others for writing
  swap A B              exchange two names for ever
  device PATH           make a block device and open it
  asksocket PATH        connect to a unix socket and say what came of it`

// end is how the program ends.
var end func(code int)

// Main does what the arguments say and exits or runs for ever, as the verb has it. Only a program may end itself, so
// it brings os.Exit.
func Main(args []string, exit func(code int)) {
	end = exit
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, usage)
		end(2)
	}
	do, ok := verbs[args[0]]
	if !ok {
		fmt.Fprintln(os.Stderr, usage)
		end(2)
	}
	do(func(i int, otherwise string) string {
		if i < len(args) {
			return args[i]
		}
		return otherwise
	}, args[1:])
}

// argument gives the i-th word after the program's name, the verb being the 0-th.
type argument func(i int, otherwise string) string

var verbs = map[string]func(arg argument, rest []string){
	"run":       run,
	"ignore":    func(argument, []string) { ignore() },
	"exit":      exit,
	"kill":      kill,
	"eat":       func(arg argument, _ []string) { eat(number(arg(1, "1"))) },
	"fill":      func(arg argument, _ []string) { fill(arg(1, "/tmp"), arg(2, "bytes")) },
	"eatchild":  func(arg argument, _ []string) { say("child:", self("eat", arg(1, "1")).Run()) },
	"forkbomb":  func(argument, []string) { forkbomb() },
	"bomb":      func(argument, []string) { bomb() },
	"leak":      func(arg argument, _ []string) { leak(number(arg(1, "1")), arg(2, "") == "deaf") },
	"crowd":     func(argument, []string) { crowd() },
	"reread":    func(arg argument, _ []string) { reread(arg(1, "/tmp/file"), number(arg(2, "1"))) },
	"orphan":    orphan,
	"touch":     func(arg argument, _ []string) { touch(arg(1, "")) },
	"lines":     func(arg argument, _ []string) { output("lines", arg) },
	"flood":     func(arg argument, _ []string) { output("flood", arg) },
	"long":      func(arg argument, _ []string) { output("long", arg) },
	"both":      func(arg argument, _ []string) { output("both", arg) },
	"facts":     whatIs,
	"links":     func(arg argument, _ []string) { links(arg(1, "")) },
	"calls":     func(argument, []string) { calls() },
	"calls32":   func(argument, []string) { calls32() },
	"read":      func(_ argument, paths []string) { read(paths) },
	"write":     func(_ argument, paths []string) { write(paths) },
	"env":       func(argument, []string) { say(strings.Join(os.Environ(), "\n")) },
	"stdin":     func(argument, []string) { stdin() },
	"cat":       cat,
	"daemon":    func(arg argument, _ []string) { daemons(arg(1, "")); end(number(arg(2, "0"))) },
	"daemons":   func(arg argument, _ []string) { daemons(arg(1, "")); forever() },
	"size":      func(argument, []string) { size() },
	"openexe":   func(argument, []string) { openExecutables() },
	"swap":      func(arg argument, _ []string) { swap(arg(1, ""), arg(2, "")) },
	"still":     func(argument, []string) { still() },
	"device":    func(arg argument, _ []string) { device(arg(1, "")) },
	"opennodes": func(_ argument, args []string) { openNodes(args) },
	"asksocket": func(arg argument, _ []string) { askSocket(arg(1, "")) },
}

// self is this program with other words.
func self(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0] // a test binary that stands in for the program goes by its name
	return cmd
}

func run(arg argument, _ []string) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	say("ready")
	<-term
	end(number(arg(1, "0")))
}

func ignore() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	say("ready")
	forever()
}

func exit(arg argument, _ []string) {
	d, err := time.ParseDuration(arg(2, "0s"))
	check(err)
	time.Sleep(d)
	end(number(arg(1, "0")))
}

func kill(arg argument, _ []string) {
	sig := syscall.Signal(number(arg(1, "9")))
	signal.Reset(sig)
	check(syscall.Kill(os.Getpid(), sig))
	forever()
}

func orphan(arg argument, _ []string) {
	cmd := self("touch", arg(1, ""))
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	check(cmd.Start())
	say("left", cmd.Process.Pid)
	time.Sleep(50 * time.Millisecond)
}

func daemons(path string) {
	for i, setsid := range []bool{false, true} {
		cmd := self("touch", path+strconv.Itoa(i))
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		check(cmd.Start())
	}
	say("left")
}

func whatIs(arg argument, _ []string) {
	facts()
	if arg(1, "") == "stay" {
		forever()
	}
}

func links(dir string) {
	entries, err := os.ReadDir(dir)
	check(err)
	for _, e := range entries {
		to, _ := os.Readlink(dir + "/" + e.Name())
		say(e.Name(), to)
	}
}

func cat(arg argument, _ []string) {
	if greeting := arg(2, ""); greeting != "" {
		say(greeting)
	}
	_, err := io.Copy(os.Stdout, os.Stdin)
	check(err)
	fmt.Fprintln(os.Stderr, "end")
	end(number(arg(1, "0")))
}

func size() {
	change := make(chan os.Signal, 1)
	signal.Notify(change, syscall.SIGWINCH)
	for {
		var s [4]uint16
		_, _, e := syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&s)))
		say("size", s[1], s[0], e == 0)
		<-change
	}
}

func touch(path string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	for {
		check(os.WriteFile(path, []byte(time.Now().String()), 0o644))
		time.Sleep(10 * time.Millisecond)
	}
}

func read(paths []string) {
	for _, p := range paths {
		n, err := readSome(p)
		fmt.Fprintf(os.Stdout, "%s %d %s\n", p, n, word(err))
	}
}

func write(paths []string) {
	for _, p := range paths {
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE, 0o644)
		if err == nil {
			_, err = f.WriteString("x")
		}
		say(p, word(err))
	}
}

func stdin() {
	n, err := os.Stdin.Read(make([]byte, 1))
	say("stdin", n, word(err))
	forever()
}

func askSocket(path string) {
	c, err := net.Dial("unix", path)
	check(err)
	_, _ = c.Write([]byte("\x00\x00\x00\x17{\"Proto\":1,\"Op\":\"info\"}"))
	if n, err := c.Read(make([]byte, 1)); n == 0 && err != nil {
		say("hung up")
	} else {
		say("answered")
	}
}

// say is how the program talks to the test: through its container's log.
func say(words ...any) { _, _ = fmt.Fprintln(os.Stdout, words...) }

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		end(99)
	}
}

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// word is an error in one word.
func word(err error) string {
	if err == nil {
		return "ok"
	}
	for _, known := range []struct {
		errno syscall.Errno
		name  string
	}{{syscall.EPERM, "EPERM"}, {syscall.EACCES, "EACCES"}, {syscall.ENOSYS, "ENOSYS"}, {syscall.ENOENT, "ENOENT"},
		{syscall.EROFS, "EROFS"}, {syscall.EINVAL, "EINVAL"}, {syscall.EBADF, "EBADF"}, {syscall.EFAULT, "EFAULT"}} {
		if e, ok := errno(err); ok && e == known.errno {
			return known.name
		}
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

func errno(err error) (syscall.Errno, bool) {
	for err != nil {
		if e, ok := err.(syscall.Errno); ok {
			return e, true
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return 0, false
		}
		err = u.Unwrap()
	}
	return 0, false
}

func eat(mib int) {
	var hold [][]byte
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		hold = append(hold, b)
	}
	held <- hold
	say("ready")
	forever()
}

var held = make(chan [][]byte, 1) // never read: what was eaten stays eaten

func forkbomb() {
	var children []*exec.Cmd
	for len(children) < 500 {
		cmd := self("ignore")
		if err := cmd.Start(); err != nil {
			say("stopped after", len(children), word(err))
			break
		}
		children = append(children, cmd)
	}
	if len(children) == 500 {
		say("never stopped")
	}
	for _, c := range children {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

func output(verb string, arg func(int, string) string) {
	switch verb {
	case "lines":
		every, err := time.ParseDuration(arg(2, "0s"))
		check(err)
		for i := range number(arg(1, "1")) {
			say("line", i)
			time.Sleep(every)
		}
	case "flood":
		w := bufio.NewWriterSize(os.Stdout, 4096)
		for i := 0; ; i++ {
			if _, err := fmt.Fprintln(w, "line", i, strings.Repeat("x", 80)); err != nil {
				end(98)
			}
			if i%20 == 0 { // a few MB a second
				time.Sleep(time.Millisecond)
			}
		}
	case "long":
		n := number(arg(1, "1"))
		say(strings.Repeat("y", n))
		fmt.Fprint(os.Stdout, "no end")
	case "both":
		say("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
	}
}

func facts() {
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	for _, line := range strings.Split(string(status), "\n") {
		for _, key := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups"} {
			if v, ok := strings.CutPrefix(line, key+":"); ok {
				say(key, strings.TrimSpace(v))
			}
		}
	}
	host, _ := os.Hostname()
	wd, _ := os.Getwd()
	say("pid", os.Getpid(), "uid", os.Getuid(), "gid", os.Getgid(), "host", host, "cwd", wd)
	for _, ns := range []string{"net", "ipc", "uts", "pid", "mnt", "cgroup"} {
		l, _ := os.Readlink("/proc/self/ns/" + ns)
		say("ns", ns, l)
	}
	adj, _ := os.ReadFile("/proc/self/oom_score_adj")
	say("oom_score_adj", strings.TrimSpace(string(adj)))
	var lim syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_CORE, &lim)
	say("rlimit_core", lim.Cur, lim.Max)
	for fd := range 3 {
		fl, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
		tty := syscall.Errno(0)
		var termios [64]byte
		_, _, tty = syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TCGETS, uintptrOf(&termios))
		say("fd", fd, "nonblock", fl&syscall.O_NONBLOCK != 0, "mode", fl&syscall.O_ACCMODE, "tty", tty == 0, e == 0)
	}
	if ifs, err := net.Interfaces(); err == nil {
		for _, i := range ifs {
			say("if", i.Name, i.Flags&net.FlagUp != 0)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	check(err)
	fmt.Fprint(os.Stdout, "mounts\n", string(mounts))
	listDir("dev", "/dev")
	say("done")
}

func listDir(what, dir string) {
	entries, err := os.ReadDir(dir)
	check(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	say(what, strings.Join(names, " "))
}

// readSome reads a little of a file or counts the entries of a directory.
func readSome(p string) (int, error) {
	st, err := os.Stat(p)
	if err != nil {
		return 0, err
	}
	if st.IsDir() {
		e, err := os.ReadDir(p)
		return len(e), err
	}
	f, err := os.Open(p)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.Read(make([]byte, 64))
	if n == 0 && err != nil && err.Error() == "EOF" {
		return 0, nil
	}
	return n, err
}
