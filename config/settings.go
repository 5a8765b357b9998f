package config

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

	"ledge/api/local/allocate"
	"ledge/controller"
	"ledge/host"
	"ledge/network/bridge"
	"ledge/network/plan"
	"ledge/node/join"
	"ledge/node/podspec"
	"ledge/node/poster"
	"ledge/node/static"
	"ledge/pki"
	"ledge/shutdown"
)

// Options are the flags of serve and agent.
type Options struct {
	DataDir, Path, listen, Manifests string
	configDir, BootState             string
	staticPods                       string
	Bridge, PodCIDR, CgroupRoot      string
	OnTerm, powerOff, WatchdogDevice string
	StartKeeper, Verbose, MDNS       bool
	SafeAfter                        int

	// Kubernetes' own names (node-semantics 1.2). A flag beats the file.
	registerNode       bool
	Kubeconfig         string
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
	Shortfall          string
	CancelStopsKill    bool
	PodReason          string
	unsafeSysctls      string
	evict              evictionOpts
	planeOpts

	// Of agent: where the control plane is.
	Servers   []string
	Token     string
	caHash    string
	TokenFile string // that the token is from, and is no more in once the board has joined; empty: it is from elsewhere
	DoorPort  int
	// ClientCAFile has the CA of those who may use the port, on a board that has joined by Kubeconfig; empty: the control plane says it.
	ClientCAFile string

	Joins bool // the control plane is elsewhere

	// Where services get their addresses and ports from; no ranges: one is chosen.
	ServiceRanges []netip.Prefix
	ServicePorts  allocate.Ports

	set map[string]bool

	Notes []func() // warnings, for when it is known that the board can start
}

// note keeps a warning until nothing is wrong: what is has a line of its own.
func (o *Options) note(message string, args ...any) {
	o.Notes = append(o.Notes, func() { slog.Warn(message, args...) })
}

// ServeFlags are those of serve.
func ServeFlags(f *flag.FlagSet) *Options {
	o := boardFlags(f)
	f.StringVar(&o.listen, "listen", "127.0.0.1:6443", "address of the TLS API for kubectl and other boards; empty for none")
	f.StringVar(&o.Manifests, "manifests", "", "directory of YAML: pods in it are static pods, other objects are kept applied")
	planeFlags(f, &o.planeOpts)
	return o
}

// boardFlags are those of every board, wherever its control plane is.
func boardFlags(f *flag.FlagSet) *Options {
	o := &Options{}
	f.StringVar(&o.DataDir, "data-dir", DefaultDataDir, "everything that must survive a power cut")
	f.StringVar(&o.Path, "config", DefaultPath, "configuration file; it has to be there, but for the usual one, which the first start writes")
	f.StringVar(&o.configDir, "config-dir", DefaultDir, "directory of .conf files that override the configuration; empty for none")
	f.StringVar(&o.BootState, "boot-state", "", "what 'ledge firstboot' made of a boot partition; its configuration overrides all other")
	f.StringVar(&o.Bridge, "bridge", "ledge0", "network bridge of the pods; 'none' gives every pod the host's network")
	f.StringVar(&o.PodCIDR, "pod-cidr", "",
		"pod addresses: an IPv4 network, an IPv6 one, or both with a comma; a free IPv4 /24 is chosen and remembered if there is none")
	f.StringVar(&o.CgroupRoot, "cgroup-root", "", "cgroup below which kubepods stands; empty: the top")
	f.StringVar(&o.OnTerm, "on-term", "detach",
		"on SIGTERM or SIGINT: detach leaves the pods running, drain stops them first (pods that nobody owns come back at the next boot)")
	f.StringVar(&o.powerOff, "power-backend", "",
		"how a requested shutdown ends: logind, direct (reboot(2)) or none; empty: logind where it answers, else direct")
	f.BoolVar(&o.StartKeeper, "start-keeper", true,
		"start a keeper when none answers; false where a service of its own does (with systemd that is known)")
	f.StringVar(&o.WatchdogDevice, "watchdog", "",
		"device such as /dev/watchdog that resets the machine when this process hangs or dies; not beside systemd's RuntimeWatchdogSec")
	f.IntVar(&o.SafeAfter, "safe-mode-after", safeModeAfter,
		"after so many ends in a row that nobody ordered, the API answers and pods are left as they are for a while; 0: never")
	f.BoolVar(&o.MDNS, "mdns", false, "have the board found on its own networks: as NAME.local, and by 'ledge find'")
	f.BoolVar(&o.Verbose, "v", false, "log more")

	f.StringVar(&o.staticPods, "pod-manifest-path", "", "directory of static pods")
	f.BoolVar(&o.registerNode, "register-node", true, "make the Node object")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "agent: join the control plane of this file, such as a kube-apiserver")
	f.StringVar(&o.cloudProvider, "cloud-provider", "", "empty or external")
	f.StringVar(&o.hostnameOverride, "hostname-override", "", "name of the Node instead of the host's")
	f.StringVar(&o.registerWithTaints, "register-with-taints", "", "key=value:effect,...")
	f.StringVar(&o.nodeIP, "node-ip", "", "address, or one IPv4 and one IPv6")
	f.StringVar(&o.nodeExternalIP, "node-external-ip", "", "address to report as ExternalIP")
	f.StringVar(&o.nodeLabels, "node-labels", "", "key=value,...")
	f.DurationVar(&o.nodeStatusUpdate, "node-status-update-frequency", 10*time.Second, "how often the Node's status is computed")
	f.BoolVar(&o.failSwapOn, "fail-swap-on", true, "refuse to start while swap is on")
	f.StringVar(&o.swapCompat, "swap-compat", "current", "what memorySwap.swapBehavior means: as in Kubernetes 1.24, 1.28 or current")
	f.StringVar(&o.unsafeSysctls, "allowed-unsafe-sysctls", "",
		"sysctls that pods may set besides the safe ones: names or patterns that end in *, separated by commas")
	f.BoolVar(&o.reregister, "reregister-on-delete", false, "make the Node again when somebody deletes it")
	f.DurationVar(&o.shutdownGrace, "shutdown-grace-period", 0, "time for all pods to stop when the machine goes down")
	f.DurationVar(&o.shutdownCritical, "shutdown-grace-period-critical-pods", 0, "the part of it that is kept for critical pods")
	f.StringVar(&o.Shortfall, "inhibit-shortfall", "shrink",
		"when logind waits less than the configuration wants: shrink the plan, or fail and hold up nothing, as a kubelet does")
	f.BoolVar(&o.CancelStopsKill, "cancel-stops-kill", true,
		"a cancelled shutdown stops no further pod; false: the stopping is finished first, as a kubelet does")
	f.StringVar(&o.PodReason, "shutdown-pod-reason", shutdown.StopReason,
		"reason in the status of pods that a shutdown stopped: Terminated, or Shutdown as in Kubernetes 1.21")
	evictionFlags(f, &o.evict)
	return o
}

// Settings are flags and file together, checked: everything that can be wrong is said before anything is made.
type Settings struct {
	*Options
	File     File
	Name     string
	Reg      poster.Registration
	Status   poster.StatusConfig
	Bounds   podspec.ResourceConfig
	Sysctls  podspec.Sysctls
	ListenAt string
	Statics  []static.Dir
	machines controller.Lister // nil: nobody knows
	CIDRs    controller.NodeCIDRs

	JoinToken *pki.JoinToken // nil: none was given
	Ticket    *join.Ticket   // of a Kubernetes; nil likewise
	JoinDir   string         // what is kept of the Kubernetes that Kubeconfig leads to; empty: the file is somebody else's

	PowerBackend shutdown.Backend
	CIDR         netip.Prefix // zero: to be chosen
	CIDR6        netip.Prefix // zero: pods have no IPv6 addresses
}

// Resolve gives what these flags, parsed in f, and the files that they name come to.
func (o *Options) Resolve(f *flag.FlagSet) (Settings, error) {
	s := Settings{Options: o}
	o.set = map[string]bool{}
	f.Visit(func(f *flag.Flag) { o.set[f.Name] = true })
	if o.Joins = f.Name() == "agent"; !o.Joins && o.Kubeconfig != "" {
		return s, Usagef("--kubeconfig: 'ledge agent' joins another control plane; serve brings its own")
	}
	if o.OnTerm != "detach" && o.OnTerm != "drain" {
		return s, Usagef("--on-term: %q is neither detach nor drain", o.OnTerm)
	}
	if o.SafeAfter < 0 {
		return s, Usagef("--safe-mode-after: %d is no number of ends: say 0 or more", o.SafeAfter)
	}
	var err error
	if s.File, err = Load(o.Path, o.configDir, BootFiles(o.BootState)...); err != nil {
		return s, err
	}
	if s.File.MDNS != nil && !o.set["mdns"] {
		o.MDNS = *s.File.MDNS
	}
	if err := s.place(f); err != nil {
		return s, err
	}
	if s.File.Page.Listen != "" && s.Joins {
		s.note("page has no effect here: this board has joined another one; the page of that one shows all boards")
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
			return s, Usagef("--listen: %v", err)
		}
		s.ListenAt = o.listen
	}
	if o.PodCIDR != "" {
		if s.CIDR, s.CIDR6, err = plan.ParseCIDRs(o.PodCIDR); err != nil {
			return s, Usagef("--pod-cidr: %v", err)
		}
	}
	if err := bridge.CheckName(o.Bridge); err != nil {
		return s, Usagef("--bridge: %v", err)
	}
	if o.CgroupRoot == "" {
		o.CgroupRoot = "/"
	}
	if !path.IsAbs(o.CgroupRoot) {
		return s, Usagef("--cgroup-root: %q must begin with /", o.CgroupRoot)
	}
	o.CgroupRoot = path.Clean(o.CgroupRoot)
	return s, nil
}

// static resolves where static pods come from. Relative paths are where this process was started.
func (s *Settings) static() (err error) {
	if !s.set["pod-manifest-path"] {
		s.staticPods = s.File.StaticPodPath
	}
	for path, mixed := range map[*string]bool{&s.Manifests: true, &s.staticPods: false} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
		s.Statics = append(s.Statics, static.Dir{Path: *path, Mixed: mixed})
	}
	if len(s.Statics) == 2 && s.Manifests == s.staticPods {
		return Usagef("--manifests and --pod-manifest-path are the same directory: give it to one of them")
	}
	return nil
}

// node reads what concerns the Node object.
func (s *Settings) node() error {
	o := s.Options
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host's name: %w", err)
	}
	if s.Name, err = NodeName(hostname, o.hostnameOverride); err != nil {
		return err
	}
	s.Reg.Off, s.Reg.Again = !o.registerNode, o.reregister
	if s.File.RegisterNode != nil && !o.set["register-node"] {
		s.Reg.Off = !*s.File.RegisterNode
	}
	switch o.cloudProvider {
	case "":
	case "external":
		s.Reg.External = true
	default:
		return Usagef("--cloud-provider: %q is not known; it is empty or external", o.cloudProvider) // N-1.15
	}
	if s.Reg.Labels, err = parseLabels(o.nodeLabels); err != nil {
		return Usagef("--node-labels: %v", err)
	}
	s.Reg.Taints = s.File.RegisterWithTaints
	if o.set["register-with-taints"] {
		if s.Reg.Taints, err = parseTaints(o.registerWithTaints); err != nil {
			return Usagef("--register-with-taints: %v", err)
		}
	}
	if s.Reg.NodeIPs, err = parseNodeIPs(o.nodeIP); err != nil {
		return Usagef("--node-ip: %v", err)
	}
	if o.nodeIP != "" && len(s.Reg.NodeIPs) < len(splitList(o.nodeIP)) {
		s.note("some addresses of --node-ip could not be read and are left out", "given", o.nodeIP)
	}
	if o.nodeExternalIP != "" {
		if s.Reg.ExternalIP, err = netip.ParseAddr(o.nodeExternalIP); err != nil {
			return Usagef("--node-external-ip: %q is not an address", o.nodeExternalIP)
		}
	}
	if o.set["node-status-update-frequency"] {
		if o.nodeStatusUpdate < time.Second {
			return Usagef("--node-status-update-frequency: %s is less than 1s, the least", o.nodeStatusUpdate)
		}
		s.File.NodeStatusUpdateFrequency = metav1.Duration{Duration: o.nodeStatusUpdate}
	}
	if s.Status, err = s.File.status(); err != nil {
		return err
	}
	return errors.Join(s.disks(), s.network())
}

// resources reads what bounds pods, and refuses a machine whose swap is not to be used (N-8.4).
func (s *Settings) resources(machine *host.Host) (err error) {
	if s.File.FailSwapOn != nil && !s.set["fail-swap-on"] {
		s.failSwapOn = *s.File.FailSwapOn
	}
	if err := s.checkReserved(machine); err != nil {
		return err
	}
	if s.Bounds, err = s.File.resources(s.swapCompat, machine.Cgroups().Mode); err != nil {
		return err
	}
	unsafe := s.File.AllowedUnsafeSysctls
	if s.set["allowed-unsafe-sysctls"] {
		unsafe = splitList(s.unsafeSysctls)
	}
	if s.Sysctls, err = podspec.NewSysctls(unsafe); err != nil {
		return Usagef("--allowed-unsafe-sysctls: %v", err)
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
