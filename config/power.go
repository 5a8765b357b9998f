package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/shutdown"
)

// powerKeys are the keys of the configuration file about going down.
type powerKeys struct {
	ShutdownGracePeriod              metav1.Duration  `json:"shutdownGracePeriod,omitempty"`
	ShutdownGracePeriodCriticalPods  metav1.Duration  `json:"shutdownGracePeriodCriticalPods,omitempty"`
	ShutdownGracePeriodByPodPriority []shutdownPeriod `json:"shutdownGracePeriodByPodPriority,omitempty"`
	Power                            powerConfig      `json:"power,omitempty"`
	// ResumePods starts pods again that a power-off stopped; ledge's own word. Default true.
	ResumePods *bool `json:"resumePods,omitempty"`
}

// The gates of N-5.3, both on unless said otherwise.
const (
	gateShutdown = "GracefulNodeShutdown"
	gatePriority = "GracefulNodeShutdownBasedOnPodPriority"
)

// shutdownGates reads the gates: the second needs the first, and follows it where nothing is said.
func shutdownGates(gates map[string]bool) (graceful, byPriority bool, err error) {
	graceful, said := gates[gateShutdown]
	graceful = graceful || !said
	byPriority, said = gates[gatePriority]
	if byPriority && !graceful {
		return false, false, fmt.Errorf("featureGates: %s needs %s", gatePriority, gateShutdown)
	}
	return graceful, byPriority || !said && graceful, nil
}

func (c powerKeys) check(gates map[string]bool) error {
	graceful, byPriority, err := shutdownGates(gates)
	switch {
	case err != nil:
		return err
	case !graceful && (c.ShutdownGracePeriod.Duration != 0 || c.ShutdownGracePeriodCriticalPods.Duration != 0): // N-5.2
		return fmt.Errorf("invalid configuration: specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate %s",
			gateShutdown)
	case !byPriority && len(c.ShutdownGracePeriodByPodPriority) > 0:
		return fmt.Errorf("invalid configuration: specifying shutdownGracePeriodByPodPriority requires feature gate %s", gatePriority)
	}
	if err := c.Shutdown().Validate(); err != nil {
		return err
	}
	return c.Power.check()
}

// power reads how the board goes down (N-5.7).
func (s *Settings) power() (err error) {
	if s.PowerBackend, err = shutdown.ParseBackend(s.powerOff); err != nil {
		return Usagef("--power-backend: %v", err)
	}
	if s.Shortfall != "shrink" && s.Shortfall != "fail" {
		return Usagef("--inhibit-shortfall: %q is neither shrink nor fail", s.Shortfall)
	}
	if s.PodReason != shutdown.StopReason && s.PodReason != shutdown.StopReasonOld {
		return Usagef("--shutdown-pod-reason: %q is neither %s nor %s", s.PodReason, shutdown.StopReason, shutdown.StopReasonOld)
	}
	if s.set["shutdown-grace-period"] {
		s.File.ShutdownGracePeriod.Duration = s.shutdownGrace
	}
	if s.set["shutdown-grace-period-critical-pods"] {
		s.File.ShutdownGracePeriodCriticalPods.Duration = s.shutdownCritical
	}
	return s.File.powerKeys.check(s.File.FeatureGates)
}

// powerConfig is ledge's own: what keeps the board alive without mains, and when to give in.
type powerConfig struct {
	UPS         string          `json:"ups,omitempty"` // ups@host, at a server of Network UPS Tools
	UPSUser     string          `json:"upsUser,omitempty"`
	UPSPassword string          `json:"upsPassword,omitempty"`
	Supplies    string          `json:"supplies,omitempty"`   // instead of /sys/class/power_supply
	Sensors     string          `json:"sensors,omitempty"`    // instead of /sys/class/hwmon
	BatteryLow  int             `json:"batteryLow,omitempty"` // percent
	Reserve     metav1.Duration `json:"reserve,omitempty"`
}

func (c powerConfig) check() error {
	if c.UPS != "" {
		if _, err := shutdown.ParseUPS(c.UPS); err != nil {
			return fmt.Errorf("power.ups: %w", err)
		}
	}
	if (c.UPSUser == "") != (c.UPSPassword == "") || c.UPSUser != "" && c.UPS == "" {
		return errors.New("power: upsUser and upsPassword go together, and with ups")
	}
	if strings.ContainsAny(c.UPSUser+c.UPSPassword, " \t\n\"\\") {
		return errors.New("power: upsUser and upsPassword cannot have spaces, quotes or backslashes")
	}
	if c.BatteryLow < 0 || c.BatteryLow > 99 {
		return fmt.Errorf("power.batteryLow: %d is not a percentage from 1 to 99 (0: the default, 10)", c.BatteryLow)
	}
	if c.Reserve.Duration < 0 {
		return fmt.Errorf("power.reserve: %s must not be negative", c.Reserve.Duration)
	}
	return nil
}

// shutdownPeriod is an entry of shutdownGracePeriodByPodPriority (N-5.4).
type shutdownPeriod struct {
	Priority                   int32 `json:"priority"`
	ShutdownGracePeriodSeconds int64 `json:"shutdownGracePeriodSeconds"`
}

func (c powerKeys) Shutdown() shutdown.Config {
	out := shutdown.Config{GracePeriod: c.ShutdownGracePeriod.Duration, GracePeriodCriticalPods: c.ShutdownGracePeriodCriticalPods.Duration}
	for _, p := range c.ShutdownGracePeriodByPodPriority {
		out.ByPodPriority = append(out.ByPodPriority,
			shutdown.Period{Priority: p.Priority, Grace: time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	return out
}
