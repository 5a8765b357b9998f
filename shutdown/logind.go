package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
)

// LogindDropIn is where ledge raises logind's delay: under /run, so that it dies with the boot (N-5.12 has it in /etc,
// which outlives the program that needed it).
const LogindDropIn = "/run/systemd/logind.conf.d/99-ledge.conf"

// logindSource is its name among sources.
const logindSource = "logind"

// Names of N-5.11.
const (
	login1Name  = "org.freedesktop.login1"
	login1Path  = dbus.ObjectPath("/org/freedesktop/login1")
	login1Iface = "org.freedesktop.login1.Manager"
	systemdName = "org.freedesktop.systemd1"
	systemdPath = dbus.ObjectPath("/org/freedesktop/systemd1")
	busName     = "org.freedesktop.DBus"
)

// Logind hears of shutdowns from systemd-logind and holds them up with a delay inhibitor lock while pods stop. It goes
// on trying when the bus or logind is not there, or goes away: upstream's silent failures are the reason for Status.
type Logind struct {
	// Want is how long a shutdown may have to be held up: Config.Total(). Zero or less means not at all (N-5.1). Tail is asked
	// for besides, and not missed where it is not granted.
	Want time.Duration
	// DropIn is the file that raises logind's maximum; empty is LogindDropIn.
	DropIn string
	// Strict takes no lock when logind will not wait as long as is wanted, as a kubelet does; else the plan shrinks
	// (N-5.14).
	Strict bool

	mu     sync.Mutex
	lock   *os.File // the inhibitor: closing it lets the shutdown go on
	status LogindStatus
}

// LogindStatus is what a person must be able to see of it (N-5.39).
type LogindStatus struct {
	Tried   bool          // it has been found, or found missing
	Held    bool          // the lock is held
	Granted time.Duration // how long logind will really wait
	Err     error         // why there is no lock
}

// Status is how things stand.
func (l *Logind) Status() LogindStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Live implements Liver.
func (l *Logind) Live() string {
	if s := l.Status(); s.Held && s.Err == nil {
		return logindSource
	}
	return ""
}

// Granted is how long logind would wait if it were less than is wanted; ok is false where it is enough, or not known.
func (l *Logind) Granted() (d time.Duration, ok bool) {
	s := l.Status()
	return s.Granted, s.Held && s.Err == nil && s.Granted < l.Want
}

// Run follows logind until ctx ends, and lets go of the lock then.
func (l *Logind) Run(ctx context.Context, tell func(Event)) error {
	defer l.release(nil)
	if l.Want <= 0 {
		<-ctx.Done()
		return nil
	}
	began, worked, told := time.Now(), false, false
	for ctx.Err() == nil {
		err := l.session(ctx, tell, func() { worked, told = true, false })
		if ctx.Err() != nil {
			break
		}
		l.failed(err)
		if !told {
			slog.Warn("no logind, so a shutdown is only noticed by SIGTERM; trying again", "err", err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryWait(worked, time.Since(began))):
		}
	}
	return nil
}

// retryWait: a connection that was lost is missed every second (N-5.20); one that never was is looked for every second
// at boot, when logind may come later than ledge, and then now and then (N-5.21).
func retryWait(worked bool, trying time.Duration) time.Duration {
	if worked || trying < time.Minute {
		return time.Second
	}
	return time.Minute
}

// setUpWithin bounds what a session begins with: a bus or a logind that hangs is to be seen as one.
const setUpWithin = time.Minute

// lookAgain is how often the delay is read while nothing happens: files that change it come without a word.
const lookAgain = 5 * time.Minute

var errSilent = fmt.Errorf("the bus or logind does not answer within %s", setUpWithin)

var errLogindRestarted = errors.New("logind went away")

// session is one connection: raise the delay, take the lock, listen. It ends with an error.
func (l *Logind) session(ctx context.Context, tell func(Event), up func()) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(setUpWithin, func() { cancel(errSilent) })
	defer slow.Stop()
	defer func() { // a connection that was given up tells of that only
		if errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
		}
	}()
	// By uid, not by name: a static binary has no business with the user database.
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx), dbus.WithAuth(dbus.AuthExternal(strconv.Itoa(os.Geteuid()))))
	if err != nil {
		return fmt.Errorf("connect to the system bus: %w", err)
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals) // closed with the connection
	if err := listen(ctx, conn); err != nil {
		return err
	}
	granted, err := l.raise(ctx, conn)
	if err != nil {
		return err
	}
	if l.Strict && granted < l.Want { // N-5.13
		return fmt.Errorf("node shutdown manager was timed out after %d attempts waiting for logind InhibitDelayMaxSec to update to %s "+
			"(ShutdownGracePeriod), current value is %s", raiseLooks, l.Want, granted)
	}
	if err := l.inhibit(ctx, conn, granted); err != nil {
		return err
	}
	if !slow.Stop() {
		return errSilent
	}
	up()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			granted = l.grantedNow(ctx, conn, granted)
		case sig, ok := <-signals:
			if !ok {
				return errors.New("the bus connection broke")
			}
			if err := l.heard(ctx, conn, sig, granted, tell); err != nil {
				return err
			}
		}
	}
}

func listen(ctx context.Context, conn *dbus.Conn) error {
	// By sender: anybody on the bus may send a signal of that name.
	err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(login1Name), dbus.WithMatchObjectPath(login1Path),
		dbus.WithMatchInterface(login1Iface), dbus.WithMatchMember("PrepareForShutdown"))
	if err == nil {
		err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(busName), dbus.WithMatchInterface(busName),
			dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, login1Name))
	}
	if err != nil {
		return fmt.Errorf("listen for PrepareForShutdown: %w", err)
	}
	return nil
}

func (l *Logind) heard(ctx context.Context, conn *dbus.Conn, sig *dbus.Signal, granted time.Duration, tell func(Event)) error {
	switch sig.Name {
	case busName + ".NameOwnerChanged":
		var name, before, after string
		if err := dbus.Store(sig.Body, &name, &before, &after); err == nil && before == "" {
			return nil // it has just come, because we asked for it
		}
		return errLogindRestarted
	case login1Iface + ".PrepareForShutdown":
	default:
		return nil
	}
	var begins bool
	if err := dbus.Store(sig.Body, &begins); err != nil {
		slog.Warn("malformed PrepareForShutdown from logind", "err", err) // N-5.16
		return nil
	}
	if begins {
		granted = l.grantedNow(ctx, conn, granted)
		e := Event{Kind: Down, Source: logindSource, Done: func() { l.release(nil) }}
		if granted < l.Want {
			e.Budget = granted
		}
		tell(e)
		return nil
	}
	tell(Event{Kind: Cancelled, Source: logindSource})
	return l.inhibit(ctx, conn, granted) // N-5.18
}

// grantedNow: a file that came to logind.conf.d after the lock was taken counts as well, and nobody tells of it.
func (l *Logind) grantedNow(ctx context.Context, conn *dbus.Conn, before time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // of the time that is granted
	defer cancel()
	now, err := maxDelay(ctx, conn)
	if err != nil || now == before {
		return before
	}
	slog.Warn("logind's delay has been changed since the lock was taken", "granted", now, "before", before)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Granted = now
	return now
}

// inhibit takes the lock (N-5.15); one that is still held is let go only then.
func (l *Logind) inhibit(ctx context.Context, conn *dbus.Conn, granted time.Duration) error {
	var fd dbus.UnixFD
	err := conn.Object(login1Name, login1Path).CallWithContext(ctx, login1Iface+".Inhibit", 0,
		"shutdown", "ledge", "Pods are stopped in order before the machine goes down", "delay").Store(&fd)
	if err != nil {
		return fmt.Errorf("take the inhibitor lock: %w", err)
	}
	syscall.CloseOnExec(int(fd)) // a container that inherits it would hold up every shutdown
	l.release(os.NewFile(uintptr(fd), "inhibitor"))
	l.mu.Lock()
	l.status = LogindStatus{Tried: true, Held: true, Granted: granted}
	l.mu.Unlock()
	slog.Info("a shutdown will wait for the pods", "granted", granted)
	return nil
}

// release lets go of the lock; next takes its place.
func (l *Logind) release(next *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil {
		_ = l.lock.Close()
	}
	l.lock = next
	l.status.Held = next != nil
}

// failed notes why there is no session. A lock that we have stays: a bus that restarts is no reason to let the machine
// go down without us.
func (l *Logind) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Tried, l.status.Err = true, err
}

// raise sees to it that logind waits as long as is wanted, and says how long it really will (N-5.12, N-5.13). Less than
// wanted is not an error: the plan shrinks.
func (l *Logind) raise(ctx context.Context, conn *dbus.Conn) (time.Duration, error) {
	granted, err := maxDelay(ctx, conn)
	if err != nil || granted >= l.Want+Tail {
		return granted, err
	}
	if err := l.writeDropIn(); err != nil {
		slog.Warn("cannot raise logind's delay", "granted", granted, "wanted", l.Want, "err", err)
		return granted, nil
	}
	err = conn.Object(systemdName, systemdPath).CallWithContext(ctx, systemdName+".Manager.KillUnit", 0,
		"systemd-logind.service", "all", int32(syscall.SIGHUP)).Err
	if err != nil {
		slog.Warn("cannot make logind read its configuration", "granted", granted, "wanted", l.Want, "err", err)
		return granted, nil
	}
	wait := 100 * time.Millisecond
	for range raiseLooks { // reloading takes its time
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(wait):
		}
		wait *= 2
		if granted, err = maxDelay(ctx, conn); err != nil || granted >= l.Want+Tail {
			return granted, err
		}
	}
	if granted >= l.Want {
		return granted, nil
	}
	slog.Warn("logind waits less than the configuration wants, does a later file in logind.conf.d win?", "granted", granted, "wanted", l.Want)
	return granted, nil
}

// raiseLooks is how often the delay is read again after it was raised, at doubling intervals (N-5.13).
const raiseLooks = 5

// AskLogind is how long logind would hold up a shutdown as it is set up now.
func AskLogind(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx), dbus.WithAuth(dbus.AuthExternal(strconv.Itoa(os.Geteuid()))))
	if err != nil {
		return 0, fmt.Errorf("connect to the system bus: %w", err)
	}
	defer conn.Close()
	return maxDelay(ctx, conn)
}

func maxDelay(ctx context.Context, conn *dbus.Conn) (time.Duration, error) {
	var v dbus.Variant
	err := conn.Object(login1Name, login1Path).CallWithContext(ctx, busName+".Properties.Get", 0, login1Iface, "InhibitDelayMaxUSec").Store(&v)
	if err != nil {
		return 0, fmt.Errorf("read InhibitDelayMaxUSec: %w", err)
	}
	micros, ok := v.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("InhibitDelayMaxUSec is a %s", v.Signature())
	}
	return time.Duration(min(micros, uint64(Unlimited/time.Microsecond))) * time.Microsecond, nil
}

// writeDropIn: whole seconds, and not executable (N-5.12, N-5.42).
func (l *Logind) writeDropIn() error {
	path := l.DropIn
	if path == "" {
		path = LogindDropIn
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	seconds := (l.Want + Tail + time.Second - 1) / time.Second
	return os.WriteFile(path, fmt.Appendf(nil, "[Login]\nInhibitDelayMaxSec=%d\n", seconds), 0o644)
}
