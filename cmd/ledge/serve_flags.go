package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/controller"
	"ledge/host"
	"ledge/network/bridge"
	"ledge/network/plan"
	"ledge/node"
	"ledge/pki"
	"ledge/shutdown"
)

// serveOpts are the flags of serve and agent.
type serveOpts struct {
	dataDir, config, listen, manifests string
	configDir, bootState               string
	staticPods                         string
	bridge, podCIDR, cgroupRoot        string
	onTerm, powerOff, watchdogDevice   string
	startKeeper, verbose               bool
	safeAfter                          int

	// Kubernetes' own names (node-semantics 1.2). A flag beats the file.
	registerNode       bool
	kubeconfig         string
	cloudProvider      string
	hostnameOverride   string
	registerWithTaints string
	nodeIP             string
	nodeExternalIP     string
	nodeLabels         string
	nodeStatusUpdate   time.Duration
	reregister         bool
	failSwapOn         bool
	swapCompat         string
	shutdownGrace      time.Duration
	shutdownCritical   time.Duration
	shortfall          string
	cancelStopsKill    bool
	podReason          string
	unsafeSysctls      string
	evict              evictionOpts
	planeOpts

	// Of agent: where the control plane is.
	servers   []string
	token     string
	tokenFile string // that the token is from, and is no more in once the board has joined; empty: it is from elsewhere
	doorPort  int
	joins     bool // the control plane is elsewhere

	set map[string]bool

	notes []func() // warnings, for when it is known that the board can start
}

// note keeps a warning until nothing is wrong: what is has a line of its own.
func (o *serveOpts) note(message string, args ...any) {
	o.notes = append(o.notes, func() { slog.Warn(message, args...) })
}

func serveFlags(c *command) {
	o := boardFlags(c)
	c.flags.StringVar(&o.listen, "listen", "127.0.0.1:6443", "address of the TLS API for kubectl and other boards; empty for none")
	c.flags.StringVar(&o.manifests, "manifests", "", "directory of YAML: pods in it are static pods, other objects are kept applied")
	planeFlags(c, &o.planeOpts)
	c.opts = o
}

// boardFlags are those of every board, wherever its control plane is.
func boardFlags(c *command) *serveOpts {
	o := &serveOpts{}
	f := c.flags
	f.StringVar(&o.dataDir, "data-dir", defaultDataDir, "everything that must survive a power cut")
	f.StringVar(&o.config, "config", defaultConfigPath, "configuration file; it has to be there, but for the usual one, which the first start writes")
	f.StringVar(&o.configDir, "config-dir", defaultConfigDir, "directory of .conf files that override the configuration; empty for none")
	f.StringVar(&o.bootState, "boot-state", "", "what 'ledge firstboot' made of a boot partition; its configuration overrides all other")
	f.StringVar(&o.bridge, "bridge", "ledge0", "network bridge of the pods; 'none' gives every pod the host's network")
	f.StringVar(&o.podCIDR, "pod-cidr", "", "pod addresses: an IPv4 network, an IPv6 one, or both with a comma; a free IPv4 /24 is chosen and remembered if there is none")
	f.StringVar(&o.cgroupRoot, "cgroup-root", "", "cgroup below which kubepods stands; empty: the top")
	f.StringVar(&o.onTerm, "on-term", "detach", "on SIGTERM or SIGINT: detach leaves the pods running, drain stops them first (pods that nobody owns come back at the next boot)")
	f.StringVar(&o.powerOff, "power-backend", "", "how a requested shutdown ends: logind, direct (reboot(2)) or none; empty: logind where it answers, else direct")
	f.BoolVar(&o.startKeeper, "start-keeper", true, "start a keeper when none answers; false where a service of its own does (with systemd that is known)")
	f.StringVar(&o.watchdogDevice, "watchdog", "", "device such as /dev/watchdog that resets the machine when this process hangs or dies; not beside systemd's RuntimeWatchdogSec")
	f.IntVar(&o.safeAfter, "safe-mode-after", safeModeAfter, "after so many ends in a row that nobody ordered, the API answers and pods are left as they are for a while; 0: never")
	f.BoolVar(&o.verbose, "v", false, "log more")

	f.StringVar(&o.staticPods, "pod-manifest-path", "", "directory of static pods")
	f.BoolVar(&o.registerNode, "register-node", true, "make the Node object")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "agent: join the control plane of this file, such as a kube-apiserver")
	f.StringVar(&o.cloudProvider, "cloud-provider", "", "empty or external")
	f.StringVar(&o.hostnameOverride, "hostname-override", "", "name of the Node instead of the host's")
	f.StringVar(&o.registerWithTaints, "register-with-taints", "", "key=value:effect,...")
	f.StringVar(&o.nodeIP, "node-ip", "", "address, or one IPv4 and one IPv6")
	f.StringVar(&o.nodeExternalIP, "node-external-ip", "", "address to report as ExternalIP")
	f.StringVar(&o.nodeLabels, "node-labels", "", "key=value,...")
	f.DurationVar(&o.nodeStatusUpdate, "node-status-update-frequency", 10*time.Second, "how often the Node's status is computed")
	f.BoolVar(&o.failSwapOn, "fail-swap-on", true, "refuse to start while swap is on")
	f.StringVar(&o.swapCompat, "swap-compat", "current", "what memorySwap.swapBehavior means: as in Kubernetes 1.24, 1.28 or current")
	f.StringVar(&o.unsafeSysctls, "allowed-unsafe-sysctls", "", "sysctls that pods may set besides the safe ones: names or patterns that end in *, separated by commas")
	f.BoolVar(&o.reregister, "reregister-on-delete", false, "make the Node again when somebody deletes it")
	f.DurationVar(&o.shutdownGrace, "shutdown-grace-period", 0, "time for all pods to stop when the machine goes down")
	f.DurationVar(&o.shutdownCritical, "shutdown-grace-period-critical-pods", 0, "the part of it that is kept for critical pods")
	f.StringVar(&o.shortfall, "inhibit-shortfall", "shrink", "when logind waits less than the configuration wants: shrink the plan, or fail and hold up nothing, as a kubelet does")
	f.BoolVar(&o.cancelStopsKill, "cancel-stops-kill", true, "a cancelled shutdown stops no further pod; false: the stopping is finished first, as a kubelet does")
	f.StringVar(&o.podReason, "shutdown-pod-reason", shutdown.StopReason, "reason in the status of pods that a shutdown stopped: Terminated, or Shutdown as in Kubernetes 1.21")
	evictionFlags(c, &o.evict)
	return o
}

// settings are flags and file together, checked: everything that can be wrong is said before anything is made.
type settings struct {
	*serveOpts
	file     fileConfig
	name     string
	reg      node.Registration
	status   node.StatusConfig
	bounds   node.ResourceConfig
	sysctls  node.Sysctls
	listenAt string
	statics  []node.StaticDir
	machines controller.Lister // nil: nobody knows
	cidrs    controller.NodeCIDRs

	joinToken *pki.JoinToken // nil: none was given

	powerBackend shutdown.Backend
	cidr         netip.Prefix // zero: to be chosen
	cidr6        netip.Prefix // zero: pods have no IPv6 addresses
}

func (o *serveOpts) settings(c *command) (settings, error) {
	s := settings{serveOpts: o}
	o.set = map[string]bool{}
	c.flags.Visit(func(f *flag.Flag) { o.set[f.Name] = true })
	if o.joins = c.flags.Name() == "agent"; !o.joins && o.kubeconfig != "" {
		return s, usagef("--kubeconfig: 'ledge agent' joins another control plane; serve brings its own")
	}
	if o.onTerm != "detach" && o.onTerm != "drain" {
		return s, usagef("--on-term: %q is neither detach nor drain", o.onTerm)
	}
	if o.safeAfter < 0 {
		return s, usagef("--safe-mode-after: %d is no number of ends: say 0 or more", o.safeAfter)
	}
	var err error
	if s.file, err = loadConfig(o.config, o.configDir, bootConfig(o.bootState)...); err != nil {
		return s, err
	}
	if err := s.place(c); err != nil {
		return s, err
	}
	if err := s.eviction(); err != nil {
		return s, err
	}
	if err := s.node(); err != nil {
		return s, err
	}
	if err := s.power(); err != nil {
		return s, err
	}
	if err := s.static(); err != nil {
		return s, err
	}
	if err := s.resources(host.New(host.Config{})); err != nil {
		return s, err
	}
	if o.listen != "" {
		if err := checkListen(o.listen); err != nil {
			return s, usagef("--listen: %v", err)
		}
		s.listenAt = o.listen
	}
	if o.podCIDR != "" {
		if s.cidr, s.cidr6, err = plan.ParseCIDRs(o.podCIDR); err != nil {
			return s, usagef("--pod-cidr: %v", err)
		}
	}
	if err := bridge.CheckName(o.bridge); err != nil {
		return s, usagef("--bridge: %v", err)
	}
	if o.cgroupRoot == "" {
		o.cgroupRoot = "/"
	}
	if !path.IsAbs(o.cgroupRoot) {
		return s, usagef("--cgroup-root: %q must begin with /", o.cgroupRoot)
	}
	o.cgroupRoot = path.Clean(o.cgroupRoot)
	return s, nil
}

// static settles where static pods come from. Relative paths are where this process was started.
func (s *settings) static() (err error) {
	if !s.set["pod-manifest-path"] {
		s.staticPods = s.file.StaticPodPath
	}
	for path, mixed := range map[*string]bool{&s.manifests: true, &s.staticPods: false} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
		s.statics = append(s.statics, node.StaticDir{Path: *path, Mixed: mixed})
	}
	if len(s.statics) == 2 && s.manifests == s.staticPods {
		return usagef("--manifests and --pod-manifest-path are the same directory: give it to one of them")
	}
	return nil
}

// node reads what concerns the Node object.
func (s *settings) node() error {
	o := s.serveOpts
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host's name: %w", err)
	}
	if s.name, err = nodeName(hostname, o.hostnameOverride); err != nil {
		return err
	}
	s.reg.Off, s.reg.Again = !o.registerNode, o.reregister
	if s.file.RegisterNode != nil && !o.set["register-node"] {
		s.reg.Off = !*s.file.RegisterNode
	}
	switch o.cloudProvider {
	case "":
	case "external":
		s.reg.External = true
	default:
		return usagef("--cloud-provider: %q is not known; it is empty or external", o.cloudProvider) // N-1.15
	}
	if s.reg.Labels, err = parseLabels(o.nodeLabels); err != nil {
		return usagef("--node-labels: %v", err)
	}
	s.reg.Taints = s.file.RegisterWithTaints
	if o.set["register-with-taints"] {
		if s.reg.Taints, err = parseTaints(o.registerWithTaints); err != nil {
			return usagef("--register-with-taints: %v", err)
		}
	}
	if s.reg.NodeIPs, err = parseNodeIPs(o.nodeIP); err != nil {
		return usagef("--node-ip: %v", err)
	}
	if o.nodeIP != "" && len(s.reg.NodeIPs) < len(splitList(o.nodeIP)) {
		s.note("some addresses of --node-ip could not be read and are left out", "given", o.nodeIP)
	}
	if o.nodeExternalIP != "" {
		if s.reg.ExternalIP, err = netip.ParseAddr(o.nodeExternalIP); err != nil {
			return usagef("--node-external-ip: %q is not an address", o.nodeExternalIP)
		}
	}
	if o.set["node-status-update-frequency"] {
		if o.nodeStatusUpdate < time.Second {
			return usagef("--node-status-update-frequency: %s is less than 1s, the least", o.nodeStatusUpdate)
		}
		s.file.NodeStatusUpdateFrequency = metav1.Duration{Duration: o.nodeStatusUpdate}
	}
	s.status, err = s.file.status()
	return err
}

// resources reads what bounds pods, and refuses a machine whose swap is not to be used (N-8.4).
func (s *settings) resources(machine *host.Host) (err error) {
	if s.file.FailSwapOn != nil && !s.set["fail-swap-on"] {
		s.failSwapOn = *s.file.FailSwapOn
	}
	if err := s.checkReserved(machine); err != nil {
		return err
	}
	if s.bounds, err = s.file.resources(s.swapCompat, machine.Cgroups().Mode); err != nil {
		return err
	}
	unsafe := s.file.AllowedUnsafeSysctls
	if s.set["allowed-unsafe-sysctls"] {
		unsafe = splitList(s.unsafeSysctls)
	}
	if s.sysctls, err = node.NewSysctls(unsafe); err != nil {
		return usagef("--allowed-unsafe-sysctls: %v", err)
	}
	swaps, err := machine.Swaps()
	if err != nil {
		return err
	}
	if s.failSwapOn && len(swaps) > 0 {
		return errors.New("running with swap on is not supported, please disable swap or set --fail-swap-on flag to false")
	}
	return nil
}
