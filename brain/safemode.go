package brain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/board"
)

// A node that dies again and again may die of a pod. After a few such ends in a row it begins in safe mode: the API
// answers, so that the pod can be deleted, and pods are left as they are.

const (
	safeModeFor  = 10 * time.Minute // the first time, and twice as long each further time
	safeModeMost = time.Hour
	soundAfter   = 10 * time.Minute // what runs for so long does not count
)

// holdFor is how long pods are held at a start after so many bad ends in a row.
func holdFor(failed, limit int) time.Duration {
	if limit <= 0 || failed < limit {
		return 0
	}
	return min(safeModeFor<<min(failed-limit, 8), safeModeMost)
}

// starts counts, in a file of the run directory, how often in a row a brain has begun and not ended in order. Every boot
// begins at 0: that the machine went down says nothing of the node, a power cut looks the same.
type starts struct{ file string }

func (s starts) count() (int, error) {
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count starts: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || n < 0 {
		return 0, nil // damage must not keep a board down
	}
	return n, nil
}

func (s starts) set(n int) error {
	if err := os.WriteFile(s.file, []byte(strconv.Itoa(n)+"\n"), 0o600); err != nil {
		return fmt.Errorf("count starts: %w", err)
	}
	return nil
}

// guard holds the pods of a node that keeps dying.
type guard struct {
	starts starts
	failed int // bad ends in a row before this start
	held   time.Duration

	once  sync.Once
	leave chan struct{} // closed when the pods are let go
	until time.Time     // zero: nothing is held
}

func newGuard(runDir string, limit int) (*guard, error) {
	g := &guard{starts: starts{filepath.Join(runDir, "starts")}, leave: make(chan struct{})}
	var err error
	if g.failed, err = g.starts.count(); err != nil {
		return nil, err
	}
	if g.held = holdFor(g.failed, limit); g.held > 0 {
		g.until = time.Now().Add(g.held)
	}
	return g, nil
}

// begun counts this start. It ends badly unless it is told to be in order or runs for long.
func (g *guard) begun() error { return g.starts.set(g.failed + 1) }

func (g *guard) inOrder() error { return g.starts.set(0) }

// holding says why pods are held; "" when they are not.
func (g *guard) holding() string {
	select {
	case <-g.leave:
		return ""
	default:
	}
	if g.held == 0 {
		return ""
	}
	return fmt.Sprintf("safe mode: the node has died %d times in a row soon after its start; pods are left as they are until %s, or until 'ledge resume'",
		g.failed, g.until.UTC().Format(time.RFC3339))
}

// resume lets the pods go.
func (g *guard) resume() { g.once.Do(func() { close(g.leave) }) }

// run lets the pods go when it is time, tells so, and takes the node for sound when it has gone on for long after that.
func (g *guard) run(ctx context.Context, told func()) error {
	if g.held > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(g.held):
			g.resume()
		case <-g.leave:
		}
		told()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(soundAfter):
		return g.inOrder()
	}
}

// guardPods is the guard's part in the life of a board.
func (b *Brain) guardPods(ctx context.Context) error {
	return b.guard.run(ctx, func() {
		slog.Info("safe mode is over")
		b.agent.Release()
		b.events.EventOn(b.ref(), corev1.EventTypeNormal, "SafeModeLeft", "The pods are looked after again")
	})
}

// ref names the Node in events.
func (c Config) ref() corev1.ObjectReference {
	return corev1.ObjectReference{Kind: api.Nodes.Name, APIVersion: api.Nodes.APIVersion(), Name: c.Name, UID: types.UID(c.Name)}
}

const safeMode corev1.NodeConditionType = "SafeMode"

func (g *guard) condition() corev1.NodeCondition {
	if why := g.holding(); why != "" {
		return corev1.NodeCondition{Type: safeMode, Status: corev1.ConditionTrue, Reason: "KeepsDying", Message: why}
	}
	return corev1.NodeCondition{Type: safeMode} // nothing is said
}

// Over the API.

func (b *boardAPI) showSafeMode(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, board.SafeMode{Why: b.guard.holding(), Authority: b.plane.lost()})
}

func (b *boardAPI) endSafeMode(w http.ResponseWriter, _ *http.Request) error {
	b.guard.resume()
	if err := b.plane.acceptCA(); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
