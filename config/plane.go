package config

import (
	"flag"
	"fmt"
	"log/slog"
	"math"
	"time"

	"ledge/api/local"
	"ledge/controller"
	"ledge/controller/machines"
	"ledge/lease"
	"ledge/scheduler"
)

// planeOpts are the control plane's flags, under the names of kube-controller-manager, kube-apiserver and kube-scheduler.
type planeOpts struct {
	health lease.Settings

	notReady, unreachable int64
	podEviction           time.Duration
	terminatedPods        int
	scheduleAgainst       string
	noScheduleEvicts      bool
	machineLister         string
	allocateCIDRs         bool
	clusterCIDR, services string
	mask, mask4, mask6    int

	serviceCIDR, nodePorts string
}

// gateOutOfService has been true for good since Kubernetes 1.28; false is still heard (N-4.10).
const gateOutOfService = "NodeOutOfServiceVolumeDetach"

func planeFlags(f *flag.FlagSet, o *planeOpts) {
	h := &o.health
	f.DurationVar(&h.Period, "node-monitor-period", 5*time.Second, "how often the control plane looks at its nodes")
	f.DurationVar(&h.Grace, "node-monitor-grace-period", 40*time.Second, "how long a node may be silent before its state is Unknown")
	f.DurationVar(&h.StartupGrace, "node-startup-grace-period", time.Minute, "the same for a node that has never been heard")
	f.Float64Var(&h.EvictionRate, "node-eviction-rate", 0.1,
		"nodes per second and zone that are given up, when the zone is well or all of it is silent")
	f.Float64Var(&h.SecondaryEvictionRate, "secondary-node-eviction-rate", 0.01,
		"the same in a large zone that is partly down; in a small one it is 0")
	f.IntVar(&h.LargeZone, "large-cluster-size-threshold", 50, "more nodes than this make a zone large; 0: every zone is")
	f.Float64Var(&h.UnhealthyThreshold, "unhealthy-zone-threshold", 0.55,
		"part of a zone's nodes, 0 to 1, that must be silent for it to be partly down, three of them at least")
	f.BoolVar(&h.FullDisruptionEvictions, "full-disruption-evictions", false, "give up nodes although every one of them is silent")
	f.Int64Var(&o.notReady, "default-not-ready-toleration-seconds", 300,
		"how long pods stay on a node that is not ready, unless they say so themselves")
	f.Int64Var(&o.unreachable, "default-unreachable-toleration-seconds", 300, "the same on a node that is not heard")
	f.DurationVar(&o.podEviction, "pod-eviction-timeout", 0, "old name of the two together")
	f.IntVar(&o.terminatedPods, "terminated-pod-gc-threshold", 100, "ended pods that are kept per board; 0 keeps all")
	f.StringVar(&o.scheduleAgainst, "schedule-against", "allocatable", "what the scheduler fills nodes up to: allocatable or capacity")
	f.BoolVar(&o.allocateCIDRs, "allocate-node-cidrs", false, "give every node a part of --cluster-cidr for its pods")
	f.StringVar(&o.clusterCIDR, "cluster-cidr", "", "the network of all pods: one, or one of each family with a comma")
	f.StringVar(&o.services, "service-cluster-ip-range", "", "networks of which nodes get no part")
	f.IntVar(&o.mask, "node-cidr-mask-size", 0, "bits of a node's part, where there is one family; 0: 24, or 64 for IPv6")
	f.IntVar(&o.mask4, "node-cidr-mask-size-ipv4", 0, "bits of a node's IPv4 part; 0: 24")
	f.IntVar(&o.mask6, "node-cidr-mask-size-ipv6", 0, "bits of a node's IPv6 part; 0: 64")
	f.StringVar(&o.serviceCIDR, "service-cidr", "",
		"addresses of services: one network, or one of each family with a comma; 10.43.0.0/16 or the next that is free, if there is none")
	f.StringVar(&o.nodePorts, "service-node-port-range", "", "ports of the boards that services may have; empty: 30000-32767")
	f.StringVar(&o.machineLister, "machine-lister", "",
		"who knows the machines behind the nodes: a URL, or a program with arguments, such as 'ledge machines FILE'; empty: nobody")
	f.BoolVar(&o.noScheduleEvicts, "out-of-service-noschedule-evicts", false,
		"the taint node.kubernetes.io/out-of-service evicts with the effect NoSchedule too")
}

// checkPlane checks what the flags say together.
func (s *Settings) checkPlane() error {
	h := s.health
	for name, d := range map[string]time.Duration{"node-monitor-period": h.Period, "node-monitor-grace-period": h.Grace,
		"node-startup-grace-period": h.StartupGrace} {
		if d < time.Second {
			return Usagef("--%s: %s is less than a second", name, d)
		}
	}
	for name, v := range map[string]float64{"node-eviction-rate": h.EvictionRate, "secondary-node-eviction-rate": h.SecondaryEvictionRate} {
		if !(v >= 0 && v <= math.MaxFloat64) { // nor NaN
			return Usagef("--%s: %g is no rate: say how many nodes a second, 0 or more", name, v)
		}
	}
	if v := h.UnhealthyThreshold; !(v >= 0 && v <= 1) {
		return Usagef("--unhealthy-zone-threshold: %g is no part of a zone: say 0 to 1", v)
	}
	if h.LargeZone < 0 {
		return Usagef("--large-cluster-size-threshold: %d is no number of nodes: say 0 or more", h.LargeZone)
	}
	if s.scheduleAgainst != "allocatable" && s.scheduleAgainst != "capacity" {
		return Usagef("--schedule-against: %q is neither allocatable nor capacity", s.scheduleAgainst)
	}
	if s.set["pod-eviction-timeout"] { // N-3.30
		s.note("--pod-eviction-timeout is an old name: say --default-not-ready-toleration-seconds and --default-unreachable-toleration-seconds")
		s.notReady, s.unreachable = int64(s.podEviction.Seconds()), int64(s.podEviction.Seconds())
	}
	for name, n := range map[string]int64{"pod-eviction-timeout": int64(s.podEviction.Seconds()),
		"default-not-ready-toleration-seconds":   s.notReady,
		"default-unreachable-toleration-seconds": s.unreachable} {
		if n < 0 && s.set[name] {
			return Usagef("--%s: %d s is negative", name, n)
		}
	}
	var err error
	if s.machines, err = machines.New(s.planeOpts.machineLister); err != nil {
		return Usagef("--machine-lister: %v", err)
	}
	if s.CIDRs, err = s.planeOpts.nodeCIDRs(); err != nil {
		return err
	}
	return s.checkServices()
}

// said makes a flag's number one of a Config: there zero is the default, and what is meant by zero is negative.
func said[T int | float64](flag T) T {
	if flag == 0 {
		return -1
	}
	return flag
}

// Controllers is the control plane's loops as configured.
func (s *Settings) Controllers() controller.Config {
	h := s.health
	h.EvictionRate, h.SecondaryEvictionRate = said(h.EvictionRate), said(h.SecondaryEvictionRate)
	h.LargeZone, h.UnhealthyThreshold = said(h.LargeZone), said(h.UnhealthyThreshold)
	on, named := s.File.FeatureGates[gateOutOfService]
	if named && !on {
		slog.Warn(fmt.Sprintf("featureGates: %s=false: pods on nodes that are out of service stay until their node is deleted", gateOutOfService))
	}
	return controller.Config{Health: h, TerminatedPods: said(s.terminatedPods), Machines: s.machines, NodeCIDRs: s.CIDRs,
		Metrics:      controller.NewMetrics(),
		Schedule:     scheduler.Config{AgainstCapacity: s.scheduleAgainst == "capacity"},
		OutOfService: controller.OutOfService{Ignored: named && !on, NoScheduleEvicts: s.noScheduleEvicts}}
}

// Admission is what the API does to pods as configured.
func (s *Settings) Admission(cfg local.Config) local.Config {
	cfg.NotReadySeconds, cfg.UnreachableSeconds = &s.notReady, &s.unreachable
	return cfg
}
