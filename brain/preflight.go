package brain

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"ledge/brain/place"
	"ledge/config"
	"ledge/host"
	"ledge/node/claims"
)

// preflight refuses to start on a machine that cannot run a pod, in one line and before anything is made.
func (b *Brain) preflight() error {
	if err := place.Check(b.RunDir, b.DataDir); err != nil {
		return err
	}
	if err := place.CheckRunDir(b.RunDir); err != nil {
		return err
	}
	if err := claims.NewShelf(filepath.Join(b.DataDir, "claims"), nil).Restoring(); err != nil {
		return err
	}
	for _, c := range b.rims.Host.Essentials(b.DataDir) {
		if c.Verdict == host.Fail {
			return fmt.Errorf("this machine cannot run pods: %s: %s; %s", c.Name, c.Detail, c.Remedy)
		}
	}
	if b.Bridge != place.NoBridge && b.Bridge != config.PluginNetwork {
		if err := b.rims.Network.Check(b.Bridge); err != nil {
			return fmt.Errorf("--bridge %s: %w", b.Bridge, err)
		}
	}
	b.holds = b.rims.Host.Controllers()
	if b.WatchdogDevice != "" { // it is armed last
		if _, err := os.Stat(b.WatchdogDevice); err != nil {
			return fmt.Errorf("--watchdog: %w; load the driver of the machine's watchdog, or softdog", err)
		}
	}
	return nil
}

// unboundedPods is a condition of the Node of a board whose kernel cannot hold pods to their limits.
const unboundedPods corev1.NodeConditionType = "UnboundedPods"

func unboundedCondition(controllers host.Check) corev1.NodeCondition {
	if controllers.Verdict == host.Fail {
		return corev1.NodeCondition{Type: unboundedPods, Status: corev1.ConditionTrue, Reason: "NoController",
			Message: controllers.Detail + "; " + controllers.Remedy}
	}
	return corev1.NodeCondition{Type: unboundedPods} // nothing is said
}

func warnUnbounded(controllers host.Check) {
	if c := unboundedCondition(controllers); c.Status == corev1.ConditionTrue {
		slog.Warn("the kernel cannot hold pods to all their limits", "why", c.Message)
	}
}
