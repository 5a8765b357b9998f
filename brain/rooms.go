package brain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ledge/api"
	"ledge/api/board"
	"ledge/api/httpd"
	"ledge/api/kinds"
	"ledge/brain/place"
	"ledge/config"
	"ledge/host"
	"ledge/images"
	"ledge/internal/durable"
	"ledge/network"
	"ledge/network/given"
	"ledge/network/hostnet"
	"ledge/network/plan"
	"ledge/node"
	"ledge/node/claims"
	"ledge/node/devices"
	"ledge/node/plugins"
	"ledge/node/static"
)

func (b *Brain) openStore(ctx context.Context) (err error) {
	b.store, err = b.rims.Store(ctx, filepath.Join(b.DataDir, "store"))
	return err
}

func (b *Brain) openImages(ctx context.Context) (err error) {
	reg, err := b.File.Registry(b.Build.Version)
	if err != nil {
		return err
	}
	b.images, err = b.rims.Images(ctx, images.StoreConfig{Root: filepath.Join(b.DataDir, "images"), RunDir: filepath.Join(b.RunDir, "images"),
		Index: b.store.Table("images"), Log: slog.Default(), Registry: reg, MaxPulls: b.File.Pulls(), KeepBlobs: b.File.Keep(), GC: b.File.Gc()})
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return b.debts.orOwe(ctx, "make the built-in image", func(ctx context.Context) error {
		_, err := b.images.Self(ctx, exe)
		return err
	})
}

// verifyImages reads every layer again after a power cut, when nobody else wants the disk; those that pods stand on were
// looked at before they started. What cannot be repaired from the card is pulled again, if there is somebody to ask.
func (b *Brain) verifyImages(ctx context.Context) error {
	if b.rims.Idle != nil {
		if err := b.rims.Idle(); err != nil {
			slog.Debug("images are checked at ordinary priority", "err", err)
		}
	}
	r, err := b.images.Verify(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		slog.Warn("cannot check the images after an unclean stop", "err", err)
	case len(r.Damaged) > 0:
		slog.Error("images were damaged", "damaged", r.Damaged, "repaired", r.Repaired, "lost", r.Lost)
	default:
		slog.Debug("images are whole", "layers", r.Layers)
	}
	for _, name := range r.Names {
		if _, err := b.images.Pull(ctx, images.PullRequest{Ref: name, IfMissing: true}); err != nil {
			slog.Warn("cannot bring back a damaged image", "err", err)
			continue
		}
		slog.Info("damaged image pulled again", "image", name)
	}
	b.agent.ImagesChanged()
	return nil
}

// networkPatience is how long a board waits for others on the same machine that choose their networks.
const networkPatience = 5 * time.Second

// openNetwork chooses how pods are connected. A network chosen once is kept: pods' addresses are known elsewhere.
func (b *Brain) openNetwork(ctx context.Context) (err error) {
	if b.Bridge == place.NoBridge {
		b.network, err = hostnet.New(hostnet.Config{Addresses: func() ([]netip.Addr, error) { return b.rims.Host.Addresses() }})
		return err
	}
	if b.Bridge == config.PluginNetwork {
		b.network, err = b.rims.Network.Open(b.Bridge, netip.Prefix{}, netip.Prefix{})
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, networkPatience)
	defer cancel()
	release, err := b.rims.Network.Hold(waiting)
	if err != nil {
		slog.Warn("another node that starts now may choose the same pod network", "err", err)
		release = func() {}
	}
	defer release()
	cidr, cidr6, chosen, err := b.podNetwork()
	if err != nil {
		return err
	}
	open := func(cidr, cidr6 netip.Prefix) (network.Setup, error) {
		n, err := b.rims.Network.Open(b.Bridge, cidr, cidr6)
		if err == nil {
			b.fences.guard(n)
		}
		return n, err
	}
	first, err := open(cidr, cidr6)
	if err != nil {
		return err
	}
	if chosen { // from now on others see it
		if err := first.Ready(ctx); err != nil {
			slog.Debug("the bridge is not ready yet", "err", err) // the Node's condition says it until it is, and the log
		}
	}
	b.giveNetwork(first, cidrText(cidr, cidr6), open)
	if b.plane != nil {
		b.plane.podsAt = b.plane.podsDoorAt(cidr)
	}
	return nil
}

func cidrText(cidr, cidr6 netip.Prefix) string {
	if !cidr6.IsValid() {
		return cidr.String()
	}
	return cidr.String() + "," + cidr6.String()
}

const podCIDRKey = "podCIDR"

// Network chooses the networks of the pods. What was chosen once is kept: pods' addresses are known elsewhere.
// chosen: it is new, and nobody asked for it.
func (b *Brain) podNetwork() (cidr, cidr6 netip.Prefix, chosen bool, err error) {
	table := b.store.Table("settings")
	rows, _, err := table.All()
	if err != nil {
		return cidr, cidr6, false, err
	}
	cidr, cidr6 = b.CIDR, b.CIDR6
	old, old6, oldErr := plan.ParseCIDRs(string(rows[podCIDRKey]))
	if b.PodCIDR == "" && oldErr == nil {
		cidr6 = old6
	}
	if !cidr.IsValid() && oldErr == nil {
		cidr = old
	}
	if !cidr.IsValid() {
		used, err := b.rims.Host.Prefixes()
		if err != nil {
			return cidr, cidr6, false, fmt.Errorf("look for a free pod network: %w", err)
		}
		if cidr = plan.ChooseCIDR(used); !cidr.IsValid() {
			return cidr, cidr6, false, errors.New("no free network for pods was found; choose one with --pod-cidr")
		}
		chosen = true
	}
	text := cidrText(cidr, cidr6)
	if string(rows[podCIDRKey]) == text {
		return cidr, cidr6, chosen, nil
	}
	slog.Info("pod network", "cidr", text)
	return cidr, cidr6, chosen, table.Put(podCIDRKey, []byte(text))
}

// keeperCommand starts a keeper for this board when none answers; under systemd its unit does, elsewhere maybe another service.
func (c Config) keeperCommand() ([]string, error) {
	if underSystemd() || !c.StartKeeper {
		return nil, nil
	}
	exe, err := c.Launcher() // it chooses the keeper's version, which need not be this one
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{exe, "--run-dir", c.RunDir, "keeper", "--cgroup-root", c.CgroupRoot}, nil
}

func underSystemd() bool { return os.Getenv("NOTIFY_SOCKET") != "" && os.Getenv("INVOCATION_ID") != "" }

// OwnFiles is far more than any program writes to /etc/hosts, and some pages for each container: they have 64 KB on some boards.
const OwnFiles = 1 << 20

func (b *Brain) openAgent() error {
	cmd, err := b.keeperCommand()
	if err != nil {
		return err
	}
	logs, err := b.File.Logs()
	if err != nil {
		return err
	}
	b.keeper = b.rims.Keeper.Open(cmd)
	b.writes = newWritesMeter(b.rims.Host, b.RunDir, b.DataDir, b.keeper.Process)
	cfg := node.Config{Name: b.Name, Version: api.VersionOf(b.Build.Version), Client: b.client, Engine: b.keeper, Images: b.images,
		Network: b.network,
		Machine: b.rims.Machine, Reclaim: b.File.Reclaims(), Events: b.events, DataDir: b.DataDir, RunDir: b.RunDir, OwnFiles: OwnFiles,
		Logs:     logs,
		Static:   static.Config{Dirs: b.Statics, Changed: b.staticsChanged},
		Believed: b.clock.believed,
		Shrink:   b.shrink, Stats: b.rims.Stats, Written: b.images.Written,
		ResolvConf: cmp.Or(b.File.ResolvConf, b.rims.Host.ResolvConf()),
		APIServer:  b.podsAPI(), ClusterDNS: func() []string { return b.names.servers(b.File.ClusterDNS) },
		ClusterDomain: b.File.ClusterDomain, Registration: b.Reg, Status: b.Status,
		Resources: b.Bounds, Sysctls: b.Sysctls,
		Hold: b.guard.holding(), Conditions: b.conditions, Shutdowns: func() (begun, ended time.Time) { return b.power.last() },
		NoPodNetwork: b.Bridge == place.NoBridge,
		Unconfined:   b.File.SeccompDefault != nil && !*b.File.SeccompDefault}
	if b.rims.Disks != nil { // also without the key: what an earlier configuration has mounted is unmounted
		list := make([]claims.Disk, len(b.File.Disks))
		for i, d := range b.File.Disks {
			list[i] = claims.Disk(d)
		}
		if cfg.Disks = claims.NewDisks(list, b.RunDir, b.Name, b.rims.Disks, nil); len(list) > 0 {
			cfg.DiskGone = b.rims.DiskGone
		}
	}
	cfg.Sizes = b.rims.Sizes
	if b.rims.Devices != nil {
		b.devices = devices.New(devices.Config{Machine: givenDevices{b.rims.Devices}, Classes: b.File.DeviceClasses(),
			File: filepath.Join(b.DataDir, "devices.json")})
		cfg.Devices = b.devices
	}
	cfg.Plugins = openPlugins(b)
	cfg.Handed = b.fences.handed
	cfg.Questions, cfg.ClaimWrites = b.questions, b.writes.eachClaim
	cfg.Seen, cfg.Services = b.found.shown(b.forwarding.shown(b.given)), b.forwarding.of()
	if b.plane != nil {
		cfg.Lineage, cfg.Restore = b.store.Lineage(), b.plane.client.Restore
		cfg.Deleted = func(namespace, name string) bool { return b.store.LogDeleted(api.Pods, namespace, name) }
	}
	if b.agent, err = node.New(cfg); err != nil {
		return err
	}
	// At a Kubernetes nobody selects boards for this class.
	if (b.Kubeconfig == "" || b.rims.Uplink != nil) && slices.Contains(kinds.All.Kept, api.PersistentVolumeClaims) {
		b.claims = claims.New(claims.Config{Client: b.client, Node: b.Name, Shelf: b.agent.Shelf(), Events: b.events,
			Disks: cfg.Disks})
		if host.CountsWrites(b.rims.Host) {
			b.writes.claims = &claimWriters{host: b.rims.Host, loop: b.claims, pods: b.agent.Pods, card: b.writes.disk, root: b.CgroupRoot}
		}
	}
	return nil
}

// openPlugins serves device plugins, if the configuration says where. What had plugins before is counted, also as gone.
func openPlugins(b *Brain) *plugins.Plugins {
	file := filepath.Join(b.DataDir, "plugins.json")
	if _, err := os.Stat(file); b.File.DevicePlugins == "" && err != nil {
		return nil
	}
	return plugins.New(plugins.Config{Dir: b.File.DevicePlugins, File: file, Agent: "ledge/" + b.Build.Version, Judge: b.devices.Judge})
}

// shrink gives back the room that the store holds for nothing.
func (b *Brain) shrink(context.Context) (freed bool, err error) {
	n, err := b.store.Compact()
	return n > 0, err
}

func (b *Brain) openServer() error {
	extra := &boardAPI{images: b.images, agent: b.agent, store: b.store, power: b.power, guard: b.guard, writes: b.writes,
		devices: b.devices,
		plane:   b.plane, claims: b.claims, found: b.found, machine: func() board.Machine { return machineReport(b) }}
	cfg := httpd.Config{Client: b.client, Streams: b.agent, Exec: b.agent, Forward: b.agent, Metrics: b.agent,
		Version: httpd.Version{Commit: b.Build.Commit, Built: b.Build.Time}, Board: extra.Handler(),
		Checks: []httpd.Check{{Name: "store", Run: func(context.Context) error { return b.store.Health().LastError }}}}
	if p := b.plane; p != nil {
		cfg.Client = p.api
		cfg.DialBoard, cfg.Node, cfg.Calls = p.boards.Dial, b.Name, &p.boards
		cfg.Authenticate, cfg.Join, cfg.Known, cfg.Metrics = p.client.Authenticate, p.join, p.known, pages{b.agent, p.loops.Metrics}
		var err error
		if p.audit, err = b.File.Audit.Log(b.DataDir, b.RunDir); err != nil {
			return err
		}
		if p.audit != nil { // a nil *Log in it would not be nil
			cfg.Audit = p.audit
		}
	}
	h, err := httpd.New(cfg)
	if err != nil {
		return err
	}
	doors, err := b.rims.Doors(place.Socket(b.RunDir))
	if err != nil {
		return err
	}
	b.server = &httpd.Server{Handler: h, Listeners: doors}
	if b.plane == nil {
		return b.uplink.openDoor(b, cfg)
	}
	if b.plane.loops.Usage = b.rims.Usage; b.rims.Usage == nil {
		b.plane.loops.Usage = h
	}
	return b.plane.openServer(b.server)
}

// podsAPI is where pods find the API that their tokens are for.
func (b *Brain) podsAPI() netip.AddrPort {
	if b.plane != nil {
		if b.plane.podsAt.IsValid() {
			return b.plane.podsAt
		}
		return b.plane.listenAddress()
	}
	return b.uplink.address()
}

// giveNetwork makes the board's pod network one that follows its Node.
func (b *Brain) giveNetwork(first network.Setup, uses string, open func(cidr, cidr6 netip.Prefix) (network.Setup, error)) {
	b.given = &given.Network{Open: open, Inner: first, Uses: uses, Expect: b.plane != nil && len(b.CIDRs.Clusters) > 0,
		Keep: func(text string) error {
			b.names.move()
			return b.store.Table("settings").Put(podCIDRKey, []byte(text))
		},
		Busy: b.podsHaveAddresses, Name: b.Name}
	b.network = b.given
}

// podsHaveAddresses: some pod of this board stands in the pods' network.
func (b *Brain) podsHaveAddresses() bool {
	for _, p := range b.agent.Pods() {
		if !p.Spec.HostNetwork {
			return true
		}
	}
	return false
}

// takeDirs makes the directories, as far as they are not there, and takes the run directory for this process alone. What it made comes
// back.
func (b *Brain) takeDirs(ctx context.Context) (made []string, err error) {
	if made, err = place.Make(b.RunDir); err != nil {
		return made, err
	}
	if b.lock, err = place.Hold(ctx, b.RunDir); err != nil {
		return nil, fmt.Errorf("%w; stop it, or give another directory", err) // whoever has it uses what was made
	}
	data, err := place.Make(b.DataDir)
	return append(data, made...), err
}

func (b *Brain) writeRunInfo(context.Context) error {
	data, err := json.Marshal(place.Info{Bridge: b.Bridge, CgroupRoot: b.CgroupRoot, DataDir: b.DataDir, Kubernetes: b.JoinDir != ""})
	if err != nil {
		return err
	}
	path := filepath.Join(b.RunDir, place.InfoFile)
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, data) {
		return nil
	}
	if err := durable.Volatile.Replace(path, data, 0o600); err != nil {
		return fmt.Errorf("write run state: %w", err)
	}
	return nil
}
