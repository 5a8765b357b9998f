package brain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/api/board"
	"ledge/boot/ending"
	"ledge/brain/place"
	"ledge/host/alive"
	"ledge/upgrade"
)

// A version on trial shows that it is well, within a time, or ends and is counted as a failed start.

const (
	// wellFor is how long all has to be well without a break.
	wellFor   = 5 * time.Second
	lookEvery = 250 * time.Millisecond
	// endsWithin is what a version that was not well in time has for an orderly end.
	endsWithin = 30 * time.Second
)

// Trial is what this process knows of its version's standing.
type Trial struct {
	dir    *upgrade.Dir
	self   string
	on     bool             // not found well yet
	within time.Duration    // of this start
	came   *upgrade.Outcome // not nil: this version runs because another was not well, which nobody has been told yet
	backup *time.Timer      // ends a process that hangs
	lost   error            // why all that is not known
	start  int              // of those that a trial has
}

// OpenTrial never fails: a board whose versions cannot be read runs what it has. exit ends this process where it hangs.
func OpenTrial(dataDir string, exit func(code int)) *Trial {
	t := &Trial{dir: upgrade.Open(dataDir), self: upgrade.Base}
	exe, err := os.Executable()
	if err != nil {
		t.lost = fmt.Errorf("find this program: %w", err)
		return t
	}
	t.self = t.dir.Self(exe)
	s, err := t.dir.Load()
	if err != nil {
		t.lost = err
		return t
	}
	if s.Last != nil && s.Last.Back != "" && !s.Last.Told {
		t.came = s.Last
	}
	if t.on = s.OnTrial(t.self); t.on {
		t.within, t.start = s.Pending.Within, s.Pending.Tries
		t.backup = time.AfterFunc(t.within+endsWithin, func() {
			slog.Error("this version is on trial, was not well in time, and does not end")
			exit(1)
		})
	}
	return t
}

// tell says how this version stands, once it is known that the board can start: what else is wrong is one line.
func (t *Trial) tell() {
	if t.lost != nil {
		slog.Error("it is not known which version is to run, and whether this one is on trial; it runs", "err", t.lost)
	}
	if t.on {
		slog.Info("this version is on trial", "version", t.self, "start", t.start, "of", upgrade.MostTries, "within", t.within)
	}
}

// change notes something of this version.
func (t *Trial) change(f func(upgrade.State) upgrade.State) error {
	_, err := t.dir.Change(func(s upgrade.State) (upgrade.State, error) { return f(s), nil })
	return err
}

// Ended notes what a start on trial lacked, or that it does not count.
func (t *Trial) Ended(err error) error {
	if t.backup != nil {
		t.backup.Stop()
	}
	if !t.on {
		return err
	}
	var word ending.Code
	var noted error
	if err == nil || errors.As(err, &word) {
		noted = t.change(func(s upgrade.State) upgrade.State { return s.Ended(t.self) })
	} else {
		noted = t.change(func(s upgrade.State) upgrade.State { return s.Lacked(t.self, err.Error()) })
	}
	if noted != nil {
		slog.Error("how this start on trial ended is not noted", "err", noted)
	}
	return err
}

// SafeAfter is the limit of safe mode: what another version died of says nothing of this one, and in safe mode none could
// show that it is well.
func (t *Trial) safeAfter(limit int) int {
	if t.on || t.came != nil {
		return 0
	}
	return limit
}

// prove waits until look has found nothing missing for a while, and commits that.
func (t *Trial) prove(ctx context.Context, look func(context.Context) error, commit func() error) error {
	end := time.Now().Add(t.within)
	var since time.Time // all is well
	for {
		err := look(ctx)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= wellFor:
			if err = commit(); err == nil {
				return nil
			}
		}
		if !now.Before(end) {
			if err == nil {
				err = errors.New("it has not been well for long enough")
			}
			return fmt.Errorf("version %s was not well within %s: %w", t.self, t.within, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
	}
}

// proveWell is this board's trial: the store commits, the loop of the pods turns, the keeper answers, so does the API, and
// that has taken from this process that the Node is ready.
func (b *Brain) proveWell(ctx context.Context) error {
	signs := []alive.Sign{commits(b.store), Answers(b.keeper), {Name: "the pods' loop", Look: b.agent.Turn},
		{Name: "the API", Look: func(ctx context.Context) error { return askAPI(ctx, b.RunDir) }},
		{Name: "the Node", Look: func(context.Context) error {
			if !b.agent.Ready() {
				return errors.New("is not ready")
			}
			return nil
		}}}
	look := func(ctx context.Context) error { return alive.Missing(ctx, signs) }
	return b.Trial.prove(ctx, look, func() error {
		s, err := b.Trial.dir.Change(func(s upgrade.State) (upgrade.State, error) { return s.Commit(b.Trial.self), nil })
		if err != nil {
			return err
		}
		b.Trial.on = false
		b.Trial.backup.Stop()
		if s.Running() != b.Trial.self {
			return nil // another upgrade is to take its place
		}
		slog.Info("this version is well and stays", "version", b.Trial.self)
		b.events.EventOn(b.ref(), corev1.EventTypeNormal, "Upgraded", fmt.Sprintf("%s (%s) is well and stays", b.Build.Version, b.Trial.self))
		return b.guard.inOrder() // what died before was not this one
	})
}

// askAPI asks as a client on this board does.
func askAPI(ctx context.Context, runDir string) error {
	resp, err := place.Ask(ctx, runDir, http.MethodGet, board.SafeModePath, nil, "", nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// tellReturn tells that another version was not well.
func (t *Trial) tellReturn(events *api.Recorder, ref corev1.ObjectReference, version string) {
	o := t.came
	if o == nil {
		return
	}
	slog.Error("an upgrade was not well; this version runs again", "upgrade", o.Name, "why", o.Why, "version", t.self)
	events.EventOn(ref, corev1.EventTypeWarning, "UpgradeFailed",
		fmt.Sprintf("%s does not stay: %s; %s runs", o.Name, o.Why, version))
	if err := t.change(upgrade.State.Told); err != nil {
		slog.Error("that this was told is not noted", "err", err)
	}
}

// renew has the brain start anew, as the version that is chosen.
func (b *boardAPI) renew(w http.ResponseWriter, _ *http.Request) error {
	if err := b.power.renew(); err != nil {
		return apierrors.NewConflict(schema.GroupResource{Group: "ledge", Resource: "upgrade"}, "", err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (p *power) renew() error {
	if st := p.manager.Status(); st.Running || st.Stopped {
		return errors.New("the board is shutting down; the upgrade takes place at its next start")
	}
	p.tell(ending.Renew)
	return nil
}

// becomeAnother ends a brain that is to be another version: the launcher takes its place, and its number with it.
func (t *Trial) becomeAnother(launcher func() (string, error), err error) error {
	if err != nil {
		slog.Error("the node did not end well", "err", err)
	}
	if err = t.Ended(nil); err != nil {
		return err
	}
	exe, err := launcher()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	alive.TellManager(daemon.SdNotifyWatchdog) // its patience begins anew with the other
	return fmt.Errorf("start %s: %w", exe, unix.Exec(exe, os.Args, os.Environ()))
}
