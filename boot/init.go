// Package boot starts a board: ledge as process 1, the launcher of versions, and what stands on a boot partition.
package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ledge/boot/ending"
	"ledge/config"
	"ledge/host"
	"ledge/host/disk"
	"ledge/shutdown"
)

// On a board without an init system ledge is process 1: it mounts what programs expect, starts the brain, reaps what
// nobody else does, and ends the machine. It does nothing that could fail later, since its end is the kernel's.

// underInit tells a brain that process 1 started it.
const underInit = "LEDGE_INIT"

// bootWords are ledge's own among the kernel's arguments.
type bootWords struct {
	data string // device of the data partition, or LABEL=...; empty: it is not one of its own
	name string
}

func readBootWords(cmdline string) (w bootWords) {
	for _, word := range strings.Fields(cmdline) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ledge.data":
			w.data = value
		case "ledge.name":
			w.name = value
		}
	}
	return w
}

// AsInit prepares the machine for args. Only a brain is kept going; any other verb is this process's own.
func AsInit(args []string) (code int, done bool) {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	problem := func(err error) {
		if err != nil {
			slog.Error("the machine is not quite set up", "err", err)
		}
	}
	problem(host.MountSystem())
	line, err := os.ReadFile("/proc/cmdline")
	problem(err)
	words := readBootWords(string(line))
	if words.name == "" {
		file, _ := os.ReadFile("/etc/hostname") // most have none
		words.name = cmp.Or(strings.TrimSpace(string(file)), unnamed)
	}
	problem(host.SetUpMachine(words.name))
	loadDrivers()
	problem(host.SwapInMemory())
	if words.data != "" {
		mountDisks(words.data, dataDirOf(args))
	}
	if !slices.Contains(args, "serve") && !slices.Contains(args, "agent") {
		return 0, false
	}
	args, given := firstBoot(args, words.data != "")
	if !given {
		go keepNetwork()
	}
	exe, err := os.Executable()
	if err != nil {
		problem(err)
		return 1, true
	}
	keys, err := newPresses()
	problem(err)
	s := &supervisor{presses: keys, start: func() (int, error) { return startBrain(exe, args, keys) }}
	if keys != nil {
		go func() {
			problem((&shutdown.PowerKey{}).Run(context.Background(), func(shutdown.Event) { keys.press() }))
		}()
	}
	why, data := s.run(), ""
	if words.data != "" {
		data = dataDirOf(args)
	}
	endMachine(why, data, disksDirOf(args))
	return 1, true // only if the machine does not let itself be ended
}

// mountDisks waits for the data partition for as long as it takes: cards and USB disks come late, and a node on an empty
// directory would be another node. Without the firmware's partition, which comes before it on the same disk, it can do.
func mountDisks(data, at string) {
	for tries := 0; ; tries++ {
		device, firmware, err := host.Disks(data)
		if err == nil {
			err = mountData(device, at)
		}
		if err == nil {
			if firmware != "" {
				err = host.MountFirmware(firmware, config.FirmwareDir)
			}
			if err != nil {
				slog.Error("nothing is read from the firmware's partition", "err", err)
			}
			return
		}
		if tries%60 == 20 {
			slog.Error("waiting for the data partition", "err", err)
		}
		time.Sleep(100 * time.Millisecond << min(tries/20, 3))
	}
}

// mountData mounts the data partition; one whose superblock or journal a power cut has torn is made whole first. There is nobody to do
// it by hand.
func mountData(device, at string) error {
	err := host.MountData(device, at)
	// What ext4 says of a wrong checksum of its superblock, and of one in its journal.
	if !errors.Is(err, unix.EBADMSG) && !errors.Is(err, unix.EUCLEAN) {
		return err
	}
	mended, merr := disk.Mend(device)
	if merr != nil {
		return fmt.Errorf("%w; %w", err, merr)
	}
	if !mended {
		return err
	}
	slog.Warn("the power was cut in the middle of a block of the data partition's file system; what that was to be has been completed",
		"device", device)
	return host.MountData(device, at)
}

// dataDirOf is where the brain will have its data.
func dataDirOf(args []string) string {
	for i, a := range args {
		name, value, given := strings.Cut(strings.TrimLeft(a, "-"), "=")
		switch {
		case name != "data-dir" || !strings.HasPrefix(a, "-"):
		case given:
			return filepath.Clean(value)
		case i+1 < len(args):
			return filepath.Clean(args[i+1])
		}
	}
	return config.DefaultDataDir
}

func startBrain(exe string, args []string, keys *presses) (int, error) {
	files := []uintptr{0, 1, 2}
	if keys != nil {
		files = append(files, keys.fd) // pressesFD
	}
	env := append(os.Environ(), underInit+"=1")
	return syscall.ForkExec(exe, append([]string{exe}, args...), &syscall.ProcAttr{Dir: "/", Env: env,
		Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
}

// presses are those of the power key, and what else asks for an orderly end while there is no brain. They wait in a pipe,
// a byte each, so that a brain finds what came before it.
type presses struct {
	in    *os.File
	fd    uintptr       // of the end that brains read
	heard chan struct{} // there has been one
}

// pressesFD is where a brain finds them.
const pressesFD = 3

func newPresses() (*presses, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("no brain will hear of the power key: %w", err)
	}
	// A descriptor of its own, which no finalizer closes.
	fd, err := unix.FcntlInt(out.Fd(), unix.F_DUPFD_CLOEXEC, pressesFD+1)
	if err = errors.Join(err, out.Close()); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &presses{in: in, fd: uintptr(fd), heard: make(chan struct{}, 1)}, nil
}

func (p *presses) press() {
	if _, err := p.in.Write([]byte("p")); err != nil {
		slog.Error("a press of the power key is lost", "err", err)
	}
	select {
	case p.heard <- struct{}{}:
	default: // told already
	}
}

// waiting says whether there are any that no brain has read.
func (p *presses) waiting() bool {
	if p == nil {
		return false
	}
	n, err := unix.IoctlGetInt(int(p.fd), unix.TIOCINQ)
	return err == nil && n > 0
}

// PressesFromInit is the brain's end; nil if process 1 has given none.
func PressesFromInit() *os.File {
	var st unix.Stat_t
	if err := unix.Fstat(pressesFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	unix.CloseOnExec(pressesFD)
	if err := unix.SetNonblock(pressesFD, true); err != nil { // for deadlines
		return nil
	}
	return os.NewFile(pressesFD, "power key")
}

// StartedByInit says once whether this process is the brain of a machine whose process 1 is ledge; children do not
// inherit the word.
func StartedByInit() bool {
	yes := os.Getenv(underInit) != "" && os.Getppid() == 1
	_ = os.Unsetenv(underInit) // it fails for impossible names only
	return yes
}

// supervisor keeps a brain going until the machine is to end.
type supervisor struct {
	start   func() (pid int, err error)
	presses *presses // nil: of the power key nothing is heard here

	pid     int // of the brain; 0: none
	begun   time.Time
	wait    time.Duration // before the next start
	restart <-chan time.Time
	asked   ending.Why // by a signal; 0: not
}

// What signals to process 1 mean: as with busybox's init, and SIGPWR as with every other.
var initSignals = map[os.Signal]ending.Why{
	syscall.SIGPWR: ending.PowerOff, syscall.SIGUSR1: ending.PowerOff, syscall.SIGUSR2: ending.PowerOff,
	syscall.SIGINT: ending.Reboot, syscall.SIGTERM: ending.Reboot, // Ctrl-Alt-Del is SIGINT
}

func (s *supervisor) run() ending.Why {
	children, signals := make(chan os.Signal, 1), make(chan os.Signal, 4)
	signal.Notify(children, syscall.SIGCHLD)
	signal.Notify(signals, slices.Collect(maps.Keys(initSignals))...)
	var pressed chan struct{}
	if s.presses != nil {
		pressed = s.presses.heard
	}
	why := s.launch()
	for why == 0 {
		select {
		case <-s.restart:
			why = s.launch()
		case <-pressed:
			if s.pid == 0 && s.presses.waiting() {
				s.asked = ending.PowerOff
				why = s.launch()
			}
		case <-children:
			why = s.reap()
		case sig := <-signals:
			s.asked = initSignals[sig]
			why = s.end()
		}
	}
	return why
}

// end has the pods stopped by the brain, or by another one if there is none now. Whatever was meant, they stop first.
func (s *supervisor) end() ending.Why {
	switch {
	case s.pid != 0:
		_ = unix.Kill(s.pid, unix.SIGPWR)
		return 0
	case s.presses == nil:
		return s.asked
	}
	s.presses.press()
	return s.launch()
}

// launch starts a brain. One that does not let itself be started is tried again, unless it is only to end the machine.
func (s *supervisor) launch() ending.Why {
	s.begun, s.restart = time.Now(), nil
	pid, err := s.start()
	if err != nil {
		slog.Error("cannot start the node", "err", err)
		s.again()
		return s.asked
	}
	s.pid = pid
	return 0
}

// Between starts of a brain that ends by itself.
const (
	firstRestart = time.Second
	lastRestart  = time.Minute
	steady       = 10 * time.Minute // one that ran for so long was no failure of the start
)

// again has the brain started after a while, a longer one each time.
func (s *supervisor) again() {
	s.wait = nextWait(s.wait, time.Since(s.begun))
	s.restart = time.After(s.wait)
}

func nextWait(last, ran time.Duration) time.Duration {
	if last == 0 || ran >= steady {
		return firstRestart
	}
	return min(2*last, lastRestart)
}

// reap takes every process that has ended and says, when the brain was one, whether that ends the machine.
func (s *supervisor) reap() ending.Why {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid <= 0:
			return 0
		case pid != s.pid:
			continue // an orphan
		}
		s.pid = 0
		if why := verdict(status, s.asked); why != 0 {
			return why
		}
		if s.presses.waiting() { // it has not heard of that
			s.asked = ending.PowerOff
			return s.launch()
		}
		s.again()
		slog.Error("the node ended; it is started again, its pods run on", "code", status.ExitStatus(), "signal", status.Signal(), "in", s.wait)
	}
}

// verdict is what the end of the brain means: 0, that another one is needed.
func verdict(status unix.WaitStatus, asked ending.Why) ending.Why {
	switch {
	case asked != 0:
		return asked
	case status.Exited():
		return ending.OfCode(status.ExitStatus())
	}
	return 0
}

// disksDirOf is where the disks beside the card are mounted that hold claims.
func disksDirOf(args []string) string {
	return filepath.Join(cmp.Or(readLaunchWords(args).runDir, os.Getenv("LEDGE_RUN_DIR"), config.DefaultRunDir), "disks")
}

// diskTime is how long the end of a machine waits for the disks beside its card, which may be broken.
const diskTime = 10 * time.Second

// settleDisks makes file systems read-only: what is not written any more needs no repair.
func settleDisks(data, disks string, readOnly func(at string) error) {
	settle := func(at string) {
		if err := readOnly(at); err != nil {
			slog.Warn("a file system cannot be made read-only; its journal is replayed when it is mounted again", "at", at, "err", err)
		}
	}
	if data != "" {
		settle(data)
	}
	list, err := (&host.Labelled{}).Below(disks)
	if err != nil {
		slog.Warn("nobody knows which disks are mounted", "err", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, at := range list {
			settle(at)
		}
	}()
	select {
	case <-done:
	case <-time.After(diskTime):
		slog.Warn("a disk for claims does not answer, and is not waited for")
	}
}

// endMachine ends what is left, puts everything on disk and switches off.
func endMachine(why ending.Why, data, disks string) {
	_ = unix.Kill(-1, unix.SIGTERM) // the keeper; nothing else is left that was not told
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && errors.Is(err, unix.ECHILD) {
			break
		}
	}
	_ = unix.Kill(-1, unix.SIGKILL)
	unix.Sync()
	settleDisks(data, disks, func(at string) error { return unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") })
	cmd := unix.LINUX_REBOOT_CMD_POWER_OFF
	if why == ending.Reboot {
		cmd = unix.LINUX_REBOOT_CMD_RESTART
	}
	DrainConsole()
	if err := unix.Reboot(cmd); err != nil {
		slog.Error("the machine does not let itself be ended", "err", err)
	}
}

// DrainConsole waits until a serial console has sent what was written: when process 1 ends the kernel panics, and what
// still stands in the line's buffer is lost.
func DrainConsole() {
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, 1) // fails for what is no terminal
	}
}
