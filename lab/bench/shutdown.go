package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"ledge/api/board"
	"ledge/shutdown"
)

// shutdown is how long a board takes from the power event to the moment the lock would be released, when all pods obey at
// once: what ledge itself needs. The machine stays on (--power-backend=none), and each time the shutdown is taken back.
func (n *node) shutdown(ctx context.Context) error {
	for _, pods := range []int{1, 10, 50} {
		for i := range pods {
			if _, err := n.runPod(ctx, fmt.Sprintf("down-%d", i), false); err != nil {
				return err
			}
		}
		var cpu float64
		ms, err := median(3, func(int) (took time.Duration, err error) {
			took, cpu, err = n.downAndBack(ctx, pods)
			return took, err
		})
		if err != nil {
			return err
		}
		n.b.add("power event to lock released", fmt.Sprintf("ledge, %d pods", pods), ms, "ms",
			fmt.Sprintf("pods that obey at once; %.0f ms of CPU in brain and keeper", 1000*cpu))
		for i := range pods {
			if err := n.deletePod(ctx, fmt.Sprintf("down-%d", i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *node) downAndBack(ctx context.Context, pods int) (took time.Duration, cpu float64, err error) {
	before, err := n.effort()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if _, err := n.call(ctx, "POST", board.ShutdownPath+"?in=0s&reboot=false", nil); err != nil {
		return 0, 0, err
	}
	err = wait(ctx, time.Minute, func() error {
		last, err := shutdown.LoadRecord(filepath.Join(n.data, shutdown.RecordName)) // asking would cost the node something
		if err == nil && (last.Begun.Before(begin) || last.Ended.IsZero()) {
			err = errors.New("pods are still being stopped")
		}
		return err
	})
	took = time.Since(begin)
	after, efforts := n.effort()
	if err := errors.Join(err, efforts); err != nil {
		return 0, 0, err
	}
	if _, err := n.call(ctx, "DELETE", board.ShutdownPath, nil); err != nil {
		return 0, 0, err
	}
	return took, after.cpu - before.cpu, wait(ctx, time.Minute, func() error { return n.allRun(ctx, pods) })
}

// allRun: a shutdown that does not happen costs no pod.
func (n *node) allRun(ctx context.Context, pods int) error {
	text, err := n.call(ctx, "GET", podsPath, nil)
	if err != nil {
		return err
	}
	var list struct {
		Items []struct{ Status struct{ Phase string } }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, p := range list.Items {
		if p.Status.Phase == "Running" {
			pods--
		}
	}
	if pods != 0 {
		return fmt.Errorf("%d pods do not run again", pods)
	}
	return nil
}
