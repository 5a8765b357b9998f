package brain

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api/board"
	"ledge/shutdown"
)

// Conditions of the Node that are ledge's own.
const (
	shutdownInhibited corev1.NodeConditionType = "ShutdownInhibited"
	lowVoltage        corev1.NodeConditionType = "LowVoltage"
)

// conditions say how the board stands with its power: whether a shutdown waits for the pods, and whether the supply sags; and what else
// its owner should know.
func (b *Brain) conditions() []corev1.NodeCondition {
	var out []corev1.NodeCondition
	if b.power.logind == nil || b.power.logind.Status().Tried { // before it is known, what was said last stays
		out = append(out, lockCondition(b.power.report()))
	}
	if b.given != nil {
		if c, ok := b.given.Condition(); ok {
			out = append(out, c)
		}
	}
	if b.fences.loop != nil {
		out = append(out, b.fences.loop.Held())
	}
	if b.forwarding.loop != nil {
		out = append(out, b.forwarding.loop.Forwarded())
	}
	if b.uplink != nil && b.uplink.kept != nil {
		out = append(out, b.uplink.kept.Condition())
	}
	return append(out, voltageCondition(b.power.voltage.Now()), b.guard.condition(), unboundedCondition(b.holds), b.debts.condition(),
		authorityCondition(b.plane.lost()))
}

// lockCondition is the report in a line. Upstream such a lock fails in silence (N-5.39).
func lockCondition(r board.Shutdown) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: shutdownInhibited, Status: corev1.ConditionFalse}
	switch l := r.Lock; {
	case l.WantedSeconds == 0:
		c.Reason, c.Message = "NotConfigured", "shutdownGracePeriod is 0: a shutdown does not wait for the pods"
	case !l.Held || l.Error != "": // a lock that nobody hears logind with holds it up for nothing
		c.Reason, c.Message = "NoLogind", "logind does not hold up a shutdown: "+l.Error
	case l.GrantedSeconds < l.WantedSeconds:
		c.Status, c.Reason = corev1.ConditionTrue, "TooLittleTime"
		c.Message = fmt.Sprintf("logind holds up a shutdown for %d of %d seconds; 'ledge doctor' says why", l.GrantedSeconds, l.WantedSeconds)
	default:
		c.Status, c.Reason = corev1.ConditionTrue, "LogindWaits"
		c.Message = fmt.Sprintf("logind holds up a shutdown for %d seconds", l.GrantedSeconds)
	}
	c.Message += "; shutdowns are heard of from: " + strings.Join(r.Sources, ", ")
	return c
}

func voltageCondition(s shutdown.Sag) corev1.NodeCondition {
	switch s {
	case shutdown.Low:
		return corev1.NodeCondition{Type: lowVoltage, Status: corev1.ConditionTrue, Reason: "SupplySags",
			Message: "the supply voltage was critically low within the last minutes; use a stronger supply or a shorter cable"}
	case shutdown.Steady:
		return corev1.NodeCondition{Type: lowVoltage, Status: corev1.ConditionFalse, Reason: "SupplySteady",
			Message: "the supply voltage is good"}
	}
	return corev1.NodeCondition{Type: lowVoltage} // no sensor: nothing is said
}

func (p *power) voltageChanged(low bool) {
	kind, reason := corev1.EventTypeNormal, "SupplySteady"
	if low {
		kind, reason = corev1.EventTypeWarning, "LowVoltage"
	}
	c := voltageCondition(p.voltage.Now())
	p.events.EventOn(p.cfg.ref(), kind, reason, c.Message)
}

func (p *power) last() (begun, ended time.Time) {
	last := p.manager.Status().Last
	return last.Begun, last.Ended
}
