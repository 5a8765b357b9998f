package main

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"time"
)

// orderPrefix begins the names of the pods whose end is watched: order-<priority>-<number>.
const orderPrefix = "order-"

// order fills the node with pods of four priorities and lets the machine go down: argument ledge.by says how.
func (g *guest) order() error {
	if err := errors.Join(g.importProgram(), g.permanent(), g.removePods(orderPrefix)); err != nil {
		return err
	}
	for _, p := range []int{10, 100, 1000} {
		body := fmt.Sprintf(`{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"p%d"},"value":%d}`, p, p)
		if _, err := g.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", []byte(body)); err != nil && !refused(err, http.StatusConflict) {
			return err
		}
	}
	for i := range 20 {
		p := []int{1000, 0, 100, 10}[i%4]
		spec := `"restartPolicy":"Never","terminationGracePeriodSeconds":30`
		if p > 0 {
			spec += fmt.Sprintf(`,"priorityClassName":"p%d"`, p)
		}
		args := []string{"/pod", "obey", "1000"}
		if i == 1 {
			args = []string{"/pod", "ignore"}
			spec = `"restartPolicy":"Never","terminationGracePeriodSeconds":3`
		}
		if err := g.create(fmt.Sprintf("%s%d-%d", orderPrefix, p, i), program, args, spec); err != nil {
			return err
		}
	}
	err := wait(8*time.Minute, func() error {
		l, err := g.list(objects + "pods")
		for _, p := range l.Items {
			if p.Status.Phase != "Running" {
				err = fmt.Errorf("%s is %s %s", p.Metadata.Name, p.Status.Phase, p.Status.Reason)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	g.host.at("full")
	g.host.say("down")
	if by := argument("ledge.by"); by != "button" {
		if out, err := exec.Command("systemctl", by).CombinedOutput(); err != nil {
			return fmt.Errorf("systemctl %s: %w: %s", by, err, out)
		}
	}
	time.Sleep(5 * time.Minute)
	return errors.New("the machine does not go down")
}
