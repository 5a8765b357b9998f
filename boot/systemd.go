package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"ledge/config"
	"ledge/firstboot"
	"ledge/host"
	"ledge/host/disk"
	"ledge/internal/durable"
)

// With systemd a unit runs this before the node's and before the network's. What lasts for a boot goes below /run, where the
// next boot finds nothing of it.

// Mend is for who mounts the data before there is a systemd (packaging/image/debian/start.sh).
func Mend(device string) error {
	mended, err := disk.Mend(device)
	if err == nil && !mended {
		err = fmt.Errorf("superblock and journal of %s are whole: something else is wrong with it", device)
	}
	if err == nil {
		fmt.Fprintf(os.Stderr, "ledge: the power was cut in the middle of a block of the file system on %s; what that was to be has been completed\n", device)
	}
	return err
}

// bootSystemd does on a systemd machine what a plan says.
type bootSystemd struct {
	root, exe, sys string
	patience       time.Duration // with a wired interface that is not there yet
	setup          *boardSetup
	reload         func(ctx context.Context, start string) error // has systemd read its units again, and start one ("": none)
}

func newBootSystemd(bootDir, data string) (*bootSystemd, error) {
	exe, err := Launcher() // this process may be of a version that is chosen now; the brain's is chosen at each of its starts
	if err != nil {
		return nil, err
	}
	return &bootSystemd{root: "/", exe: exe, reload: reloadUnits, sys: "/sys/class/net", patience: 10 * time.Second,
		setup: &boardSetup{boot: bootDir, data: data, state: config.BootStateDir, args: []string{"serve", "--data-dir", data}}}, nil
}

const (
	sshdProgram     = "usr/sbin/sshd"
	networkdProgram = "lib/systemd/systemd-networkd"
	wifiProgram     = "sbin/wpa_supplicant"
	bootWiFi        = "run/systemd/network/06-ledge-boot-wifi.network" // of two units for an interface the first by name counts
	wifiConf        = "etc/wpa_supplicant/wpa_supplicant-%s.conf"
	bootUnit        = "run/systemd/system/ledge.service.d/50-boot.conf"
	bootNetwork     = "run/systemd/network/05-ledge-boot.network"
	rootKeys        = "root/.ssh/authorized_keys"
)

func (y *bootSystemd) has(program string) bool {
	_, err := os.Stat(filepath.Join(y.root, program))
	return err == nil
}

func (y *bootSystemd) run(ctx context.Context) error {
	s := y.setup
	if !y.has(sshdProgram) {
		s.noSSH = "there is no sshd"
	}
	if !y.has(wifiProgram) || !y.has(networkdProgram) {
		s.noWiFi = "there is no wpa_supplicant, or no systemd-networkd"
	}
	if err := s.read(); err != nil {
		return err
	}
	var errs []error
	if name := s.plan.Hostname; name != "" {
		errs = append(errs, s.hostname(), y.write("etc/hostname", []byte(name+"\n"), 0o644))
	}
	if s.plan.Network.Static() && !y.has(networkdProgram) {
		s.plan.Network = firstboot.Network{}
		s.useless("network.address", "the address has no effect here: there is no systemd-networkd", "Remove network:, or install it")
	}
	if n := &s.plan.Network; n.Static() && n.Interface == "" {
		n.Interface = y.wired(ctx)
	}
	errs = append(errs, y.write(bootNetwork, networkUnit(s.plan.Network), 0o644), y.keys(), y.write(bootUnit, y.unit(), 0o600))
	radio, err := y.wifi()
	s.apply()
	return errors.Join(append(errs, err, y.reload(ctx, radio))...)
}

// wifi leaves the unit of the Wi-Fi's supplicant what it needs; "" without one.
func (y *bootSystemd) wifi() (unit string, err error) {
	w, on := y.setup.plan.WiFi, "wlan0" // a radio's driver may come later
	if found, _ := filepath.Glob(filepath.Join(y.sys, "*", "wireless")); len(found) > 0 {
		on = filepath.Base(filepath.Dir(found[0]))
	}
	if w.SSID == "" {
		return "", errors.Join(y.write(bootWiFi, nil, 0), y.write(fmt.Sprintf(wifiConf, on), nil, 0))
	}
	y.setup.radio = on
	return "wpa_supplicant@" + on + ".service", errors.Join(y.write(fmt.Sprintf(wifiConf, on), supplicant(w), 0o600),
		y.write(bootWiFi, []byte("[Match]\nName="+on+"\n\n[Network]\nDHCP=yes\n"), 0o644))
}

// supplicant is the configuration of wpa_supplicant. The name is written in hexadecimal digits, as it may have any bytes.
func supplicant(w firstboot.WiFi) []byte {
	out := "ctrl_interface=/run/wpa_supplicant\n"
	if w.Country != "" {
		out += "country=" + w.Country + "\n"
	}
	out += fmt.Sprintf("network={\n\tssid=%x\n\tscan_ssid=1\n", w.SSID)
	switch len(w.Password) {
	case 0:
		out += "\tkey_mgmt=NONE\n"
	case 64:
		out += "\tpsk=" + w.Password + "\n"
	default:
		out += "\tpsk=\"" + w.Password + "\"\n"
	}
	return []byte(out + "}\n")
}

// write replaces a file, or removes it (nil), and the directories it is in are made.
func (y *bootSystemd) write(name string, data []byte, perm os.FileMode) error {
	path := filepath.Join(y.root, name)
	if data == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.Replace(path, data, perm)
}

// networkUnit is for systemd-networkd; nil: its own units ask by DHCP.
func networkUnit(n firstboot.Network) []byte {
	if !n.Static() {
		return nil
	}
	out := fmt.Sprintf("[Match]\nName=%s\n\n[Network]\nAddress=%s\n", n.Interface, n.Address)
	if n.Gateway.IsValid() {
		out += "Gateway=" + n.Gateway.String() + "\n"
	}
	for _, a := range n.DNS {
		out += "DNS=" + a.String() + "\n"
	}
	return []byte(out)
}

// wired is the interface that an address is for which names none: the first, and no other that is plugged in later. It is waited
// for, and until udev has given it the name that it will have.
func (y *bootSystemd) wired(ctx context.Context) string {
	for end := time.Now().Add(y.patience); ; {
		name, err := host.FirstWired(y.sys)
		if err == nil && y.named(name) {
			return name
		}
		if !time.Now().Before(end) || ctx.Err() != nil {
			if err == nil {
				return name
			}
			slog.Warn("the address is for what is plugged in, whatever that is called", "err", err)
			return "en* eth*" // as Debian's own for wired ones
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// named says whether udev has done with an interface. Without udev nobody else names it.
func (y *bootSystemd) named(name string) bool {
	index, err := os.ReadFile(filepath.Join(y.sys, name, "ifindex"))
	return err == nil && (!y.has("run/udev") || y.has("run/udev/data/n"+strings.TrimSpace(string(index))))
}

// unit has the node started as the plan says.
func (y *bootSystemd) unit() []byte {
	out := "[Service]\nExecStart=\nExecStart=" + unitWord(y.exe)
	for _, a := range y.setup.args {
		out += " " + unitWord(a)
	}
	return []byte(out + "\n")
}

// unitWord is a word of a command line in a unit.
func unitWord(text string) string {
	return strings.NewReplacer("%", "%%", "$", "$$").Replace(strconv.Quote(text))
}

// The keys of the card stand between these lines; others are left alone.
const (
	keysBegin = "# from ledge.yaml on the boot partition"
	keysEnd   = "# end of ledge.yaml"
)

func (y *bootSystemd) keys() error {
	old, err := os.ReadFile(filepath.Join(y.root, rootKeys))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := withKeys(string(old), y.setup.plan.SSHKeys)
	if text == string(old) {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(y.root, filepath.Dir(rootKeys)), 0o700); err != nil {
		return err
	}
	return y.write(rootKeys, []byte(text), 0o600)
}

// withKeys replaces the block of keys in a file.
func withKeys(old string, keys []string) string {
	if before, rest, found := strings.Cut(old, keysBegin+"\n"); found {
		_, after, _ := strings.Cut(rest, keysEnd+"\n")
		old = before + after
	}
	if len(keys) == 0 {
		return old
	}
	if old != "" && !strings.HasSuffix(old, "\n") {
		old += "\n"
	}
	return old + keysBegin + "\n" + strings.Join(keys, "\n") + "\n" + keysEnd + "\n"
}

// reloadUnits asks systemd at its own socket: the bus may not be up yet. In the middle of a boot a slow board has other things to do
// first; half a minute was not enough for one that was emulated, and it went without Wi-Fi.
func reloadUnits(ctx context.Context, start string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	conn, err := dbus.Dial("unix:path=/run/systemd/private", dbus.WithContext(ctx))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is no systemd to ask
	}
	if err != nil {
		return fmt.Errorf("reload units: %w", err)
	}
	defer conn.Close()
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	systemd := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	if err == nil {
		err = knock(ctx, systemd)
	}
	if err == nil {
		err = systemd.CallWithContext(ctx, "org.freedesktop.systemd1.Manager.Reload", 0).Err
	}
	if err == nil && start != "" { // a job of its own, which is not waited for
		err = systemd.CallWithContext(ctx, "org.freedesktop.systemd1.Manager.StartUnit", 0, start, "replace").Err
	}
	if err != nil {
		return fmt.Errorf("reload units: %w", err)
	}
	return nil
}

// knock waits for an answer. What comes in one piece with the end of the handshake systemd 252 has read and does not look at
// before there is more.
func knock(ctx context.Context, at dbus.BusObject) error {
	answers := make(chan *dbus.Call, 1000)
	for {
		at.GoWithContext(ctx, "org.freedesktop.DBus.Peer.Ping", 0, answers)
		select {
		case a := <-answers:
			return a.Err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// SetUpSystemd has what stands on the boot partition hold, on a machine with systemd, before the node starts.
func SetUpSystemd(ctx context.Context, bootDir, data string) error {
	y, err := newBootSystemd(bootDir, data)
	if err != nil {
		return err
	}
	if mounted, err := host.Mounted(data); err == nil && mounted {
		if _, err := disk.Grow(data); err != nil {
			y.setup.mistake("data partition", err)
		}
	}
	return y.run(ctx)
}
