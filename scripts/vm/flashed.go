package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// flashedPods are what a person would put on the boot partition: two that answer on ports of the board, and one of them is to end last.
const flashedPods = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - name: main
    image: ledge.local/self
    args: [httpd, -p, "8080"]
    ports: [{containerPort: 8080, hostPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: last, namespace: kube-system}
spec:
  priorityClassName: system-node-critical
  containers:
  - name: main
    image: ledge.local/self
    args: [httpd, -p, "8080"]
    ports: [{containerPort: 8080, hostPort: 8081}]
`

// flashedReport is what is known of one image under one firmware.
type flashedReport struct {
	Board    string        `json:"board"`
	Image    string        `json:"image"`
	Bytes    int64         `json:"bytes"` // packed
	Firmware string        `json:"firmware"`
	Memory   int           `json:"memoryMiB"`
	Boots    []flashedBoot `json:"boots"`
}

type flashedBoot struct {
	MountedMillis int64 `json:"mountedMillis,omitempty"` // process 1 has its partitions and listens to the power key
	AddressMillis int64 `json:"addressMillis,omitempty"`
	ServingMillis int64 `json:"servingMillis,omitempty"`
	PodMillis     int64 `json:"podMillis"`             // the pod of manifests/ answers over the network
	LoginMillis   int64 `json:"loginMillis,omitempty"` // somebody has logged in by ssh
	WiFiMillis    int64 `json:"wifiMillis,omitempty"`  // from the beginning of an access point to an address from there
	OffMillis     int64 `json:"offMillis"`             // from the power button to the end of the machine; 0: the plug was pulled
	Idle          *idle `json:"idle,omitempty"`
}

// idle is what a board writes to its card while nobody wants anything of it.
type idle struct {
	Seconds int64 `json:"seconds"`
	Bytes   int64 `json:"bytes"`
}

// flashedFlags say which image is booted, and how.
type flashedFlags struct {
	board, image, firmware string
	to                     string // report
	boots                  int
	idle                   time.Duration // of the last boot; 0: not looked at
	memory                 int
	limit                  time.Duration // of a boot, without idle
}

// runFlashed takes an image as it was made, puts a manifest on its boot partition as a person would, and boots it twice the way a
// board's firmware does: by its own boot loader from its own disk. The pod has to answer over the network, and the power button has
// to end the machine in order; a board without one has its plug pulled.
func runFlashed(ctx context.Context, f flashedFlags) error {
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	disk := filepath.Join(work, "disk.img")
	if err := unpackImage(ctx, f.image, disk, work); err != nil {
		return err
	}
	var key string
	if withDebian(f.image) {
		if key, err = putKey(ctx, disk, work); err != nil {
			return err
		}
	}
	packed, err := os.Stat(f.image)
	if err != nil {
		return err
	}
	r := flashedReport{Board: f.board, Image: filepath.Base(f.image), Bytes: packed.Size(), Firmware: f.firmware, Memory: f.memory}
	g := guest{arch: "amd64", memory: f.memory, firmware: f.firmware, root: "file=" + disk + ",format=raw,cache=unsafe", qmp: filepath.Join(work, "qmp"), dir: work}
	if f.board != "generic-amd64" {
		g.arch = "arm64"
	}
	if f.firmware == "pi" {
		if err := piBoot(ctx, &g, disk); err != nil {
			return err
		}
	}
	node := ""
	for n := range f.boots {
		b := &flashed{guest: g, key: key, began: time.Now()}
		for i, inside := range []int{8080, 8081} {
			port, err := freePort()
			if err != nil {
				return err
			}
			b.urls[i] = fmt.Sprintf("http://127.0.0.1:%d/", port)
			b.guest.forward += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-:%d", port, inside)
		}
		if n == f.boots-1 {
			b.watch = f.idle
		}
		if key != "" {
			if b.ssh, err = freePort(); err != nil {
				return err
			}
			b.guest.forward += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-:22", b.ssh)
		}
		if err := b.run(ctx, f.limit+b.watch+settled); err != nil {
			return fmt.Errorf("%s, boot %d: %w; its console:\n%s", r.Image, n+1, err, strings.Join(b.all, "\n"))
		}
		// Nobody has named it but by the key's ledge.yaml.
		if key == "" && !ownName.MatchString(b.node) || n > 0 && b.node != node {
			return fmt.Errorf("%s, boot %d: the node is %q, and was %q before", r.Image, n+1, b.node, node)
		}
		node = b.node
		r.Boots = append(r.Boots, b.flashedBoot)
		fmt.Printf("vm: %s by %s, boot %d: mounted %d, address %d, serving %d, pod answers %d, login %d, Wi-Fi after %d ms; off %d ms after the button\n", r.Image, f.firmware, n+1,
			b.MountedMillis, b.AddressMillis, b.ServingMillis, b.PodMillis, b.LoginMillis, b.WiFiMillis, b.OffMillis)
		if b.Idle != nil {
			fmt.Printf("vm: it wrote %d bytes in %d s\n", b.Idle.Bytes, b.Idle.Seconds)
		}
	}
	if f.to == "" {
		return nil
	}
	return r.keep(f.to)
}

// ownName is a board's that nobody has named.
var ownName = regexp.MustCompile(`^ledge-[0-9a-f]{6}$`)

// withDebian: an image's name tells its flavour.
func withDebian(image string) bool { return strings.Contains(filepath.Base(image), "-debian-") }

// keep puts the report in the place of an older one of this board, flavour and firmware.
func (r flashedReport) keep(file string) error {
	var all []flashedReport
	old, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(old, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", file, err)
	}
	if i := slices.IndexFunc(all, func(o flashedReport) bool {
		return o.Board == r.Board && o.Firmware == r.Firmware && withDebian(o.Image) == withDebian(r.Image)
	}); i >= 0 {
		all[i] = r
	} else {
		all = append(all, r)
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func unpackImage(ctx context.Context, image, disk, work string) error {
	out, err := os.Create(disk)
	if err != nil {
		return err
	}
	unpack := command(ctx, "xz", "-dc", image)
	unpack.Stdout, unpack.Stderr = out, os.Stderr
	if err := errors.Join(unpack.Run(), out.Close()); err != nil {
		return fmt.Errorf("unpack %s: %w", image, err)
	}
	pod := filepath.Join(work, "web.yaml")
	if err := os.WriteFile(pod, []byte(flashedPods), 0o644); err != nil {
		return err
	}
	if out, err := command(ctx, "mcopy", "-i", disk+"@@1M", pod, "::/manifests/").CombinedOutput(); err != nil {
		return fmt.Errorf("write onto the boot partition: %w: %s", err, out)
	}
	return nil
}

// piBoot does what a Raspberry Pi's firmware would, which QEMU has not: it reads kernel, initramfs, description and command line
// from the card's first partition. QEMU's board wants a card whose size is a power of two.
func piBoot(ctx context.Context, g *guest, disk string) error {
	for _, name := range []string{"vmlinuz", "initrd.img", "bcm2837-rpi-3-b.dtb", "cmdline.txt", "config.txt"} {
		if out, err := command(ctx, "mcopy", "-n", "-i", disk+"@@1M", "::/"+name, g.dir).CombinedOutput(); err != nil {
			return fmt.Errorf("read %s from the boot partition: %w: %s", name, err, out)
		}
	}
	line, err := os.ReadFile(filepath.Join(g.dir, "cmdline.txt"))
	if err != nil {
		return err
	}
	// The board always has four CPUs, and those of no use spin. Of the consoles it has one that can be seen. Its watchdog resets the
	// machine at the moment it is started.
	g.kernel, g.initrd, g.dtb, g.append = filepath.Join(g.dir, "vmlinuz"), filepath.Join(g.dir, "initrd.img"), filepath.Join(g.dir, "bcm2837-rpi-3-b.dtb"),
		"nr_cpus=1 "+strings.NewReplacer("console=tty0", "", "console=ttyS1,115200", "", " --watchdog /dev/watchdog", "", " systemd.watchdog_sec=30", "").Replace(strings.TrimSpace(string(line)))
	return os.Truncate(disk, 1<<30)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// flashed is one boot under way.
type flashed struct {
	flashedBoot
	guest guest
	urls  [2]string
	key   string        // of who may log in; empty: nobody
	ssh   int           // the port to do so
	watch time.Duration // at the end
	began time.Time
	all   []string
	node  string // as it calls itself

	mu      sync.Mutex
	journal chan struct{} // closed when nobody reads it any more; nil: the console says all
	stages                // that are over
	off     time.Time     // of the button, or the plug
	cut     context.CancelFunc
	stop    context.CancelFunc
	failed  error
}

func (b *flashed) run(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b.stop = cancel
	if b.guest.firmware == "pi" {
		b.cut = cancel
	}
	go b.ask(ctx)
	err := b.guest.boot(ctx, limit, b.line)
	b.mu.Lock()
	defer b.mu.Unlock()
	if end := b.journal; end != nil {
		b.mu.Unlock()
		<-end
		b.mu.Lock()
	}
	switch {
	case b.failed != nil:
		return b.failed
	case b.cut != nil && !b.off.IsZero():
		return nil
	case b.off.IsZero() || !errors.Is(err, errGuestEnded) || ctx.Err() != nil:
		return errors.Join(err, errors.New("no pod answered"), ctx.Err())
	case !b.said("reboot: Power down") && !b.said("Power down"):
		return errors.New("the machine ended, and not by switching off")
	case !b.inOrder():
		return fmt.Errorf("the pods did not end in order but as %q", b.stages)
	}
	b.OffMillis = time.Since(b.off).Milliseconds()
	return nil
}

func (b *flashed) said(what string) bool {
	for _, l := range b.all {
		if strings.Contains(l, what) {
			return true
		}
	}
	return false
}

// airName and airPassword are of a wireless network that is only in the board's own air.
const airName, airPassword = "Shed", "not this one"

// putKey has the board know a key, its name and a wireless network, and gives it two radios that hear each other.
func putKey(ctx context.Context, disk, work string) (key string, err error) {
	key = filepath.Join(work, "key")
	if out, err := command(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		return "", fmt.Errorf("ssh-keygen: %w: %s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		return "", err
	}
	file := filepath.Join(work, "ledge.yaml")
	text := fmt.Sprintf("hostname: shed\nwifi:\n  ssid: %s\n  password: %q\n  country: DE\nssh:\n  keys:\n  - %s", airName, airPassword, public)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return "", err
	}
	if out, err := command(ctx, "mcopy", "-i", disk+"@@1M", file, "::/").CombinedOutput(); err != nil {
		return "", fmt.Errorf("write onto the boot partition: %w: %s", err, out)
	}
	return key, tellKernel(ctx, disk, work, "modules_load=mac80211_hwsim")
}

// tellKernel adds a word to the lines that the boot partition has for the kernel.
func tellKernel(ctx context.Context, disk, work, word string) error {
	for _, name := range []string{"grub/grub.cfg", "cmdline.txt"} {
		file := filepath.Join(work, "line")
		if out, err := command(ctx, "mcopy", "-n", "-o", "-i", disk+"@@1M", "::/"+name, file).CombinedOutput(); err != nil {
			if name == "cmdline.txt" { // a Pi's
				continue
			}
			return fmt.Errorf("read %s from the boot partition: %w: %s", name, err, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		more := strings.Replace(string(text), " ledge.disk=", " "+word+" ledge.disk=", 1)
		if more == string(text) {
			return fmt.Errorf("%s has no line for the kernel: %s", name, text)
		}
		if err := os.WriteFile(file, []byte(more), 0o644); err != nil {
			return err
		}
		if out, err := command(ctx, "mcopy", "-o", "-i", disk+"@@1M", file, "::/"+name).CombinedOutput(); err != nil {
			return fmt.Errorf("write %s onto the boot partition: %w: %s", name, err, out)
		}
	}
	return nil
}

// login is a command on the board, as of who has the key. The board is to be known by one key of its own in all boots.
func (b *flashed) login(ctx context.Context, script string) *exec.Cmd {
	return command(ctx, "ssh", "-n", "-i", b.key, "-p", fmt.Sprint(b.ssh), "-o", "BatchMode=yes", "-o", "HostKeyAlias=board", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "UserKnownHostsFile="+b.key+".known", "-o", "ConnectTimeout=30", "root@127.0.0.1", script)
}

func (b *flashed) shell(ctx context.Context, script string) (string, error) {
	out, err := b.login(ctx, script).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// logIn asks the board for its name, what its root is, where it swaps to, whose logs are in memory, and which machine it is.
func (b *flashed) logIn(ctx context.Context) error {
	if b.key == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		out, err := b.shell(ctx, "hostname; stat -f -c %T /; grep -o ^/dev/zram0 /proc/swaps; ls /run/ledge/logs | grep -o ^default_web; cat /etc/machine-id")
		if words := strings.Fields(out); err == nil {
			b.LoginMillis = time.Since(b.began).Milliseconds()
			if n := len(words); n < 5 || !slices.Equal(words[n-5:n-1], []string{"shed", "overlayfs", "/dev/zram0", "default_web"}) {
				return fmt.Errorf("not the machine that it is to be: %s", out)
			}
			return sameMachine(b.key+".machine", words[len(words)-1])
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nobody can log in: %w", err)
		}
		time.Sleep(time.Second)
	}
}

// air makes the board's second radio the access point that its ledge.yaml names, and waits until the first has an address from there.
func (b *flashed) air(ctx context.Context) error {
	if b.key == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
	defer cancel()
	began := time.Now()
	out, err := b.shell(ctx, fmt.Sprintf(airScript, airName, airPassword))
	if err != nil {
		return fmt.Errorf("no Wi-Fi: %w", err)
	}
	if !strings.Contains(out, "10.77.0.") {
		return fmt.Errorf("no Wi-Fi: %s", out)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.WiFiMillis = time.Since(began).Milliseconds()
	return nil
}

const airScript = `end=$(($(cut -d. -f1 /proc/uptime) + 240))
cat >/run/air.conf <<EOF
network={
	ssid="%s"
	mode=2
	frequency=2412
	key_mgmt=WPA-PSK
	proto=RSN
	pairwise=CCMP
	psk="%s"
}
EOF
mkdir -p /run/systemd/network
printf '[Match]\nName=wlan1\n\n[Network]\nAddress=10.77.0.1/24\nDHCPServer=yes\n\n[DHCPServer]\nEmitRouter=no\nEmitDNS=no\n' >/run/systemd/network/04-air.network
networkctl reload
wpa_supplicant -B -i wlan1 -c /run/air.conf >/run/air.log 2>&1
until [ "$(cut -d. -f1 /proc/uptime)" -gt "$end" ]; do
	ip -4 -o addr show dev wlan0 | grep -F 10.77.0. && exit
	sleep 1
done
cat /run/air.log
ip addr
networkctl status wlan0 wlan1 --no-pager
journalctl -q --no-pager -n 40 -u 'wpa_supplicant*' -u systemd-networkd
exit 1
`

// sameMachine: the machine ID is that of the boot before.
func sameMachine(file, id string) error {
	before, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(file, []byte(id), 0o644)
	}
	if err == nil && string(before) != id {
		err = fmt.Errorf("the machine's ID was %s and is %s", before, id)
	}
	return err
}

// settled is how long a board is left alone before it counts as idle.
const settled = time.Minute

// rest counts what a board writes while nobody wants anything of it, its journal's late commits and all.
func (b *flashed) rest(ctx context.Context) error {
	if b.watch == 0 {
		return nil
	}
	var counts [2]int64
	for i, wait := range []time.Duration{settled, b.watch} {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		answer, err := query(b.guest.qmp, `{"execute":"query-blockstats"}`)
		if err == nil {
			counts[i], err = written(answer)
		}
		if err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Idle = &idle{Seconds: int64(b.watch.Seconds()), Bytes: counts[1] - counts[0]}
	return nil
}

// written adds up what a machine has written to its disks.
func written(blockstats json.RawMessage) (total int64, err error) {
	var disks []struct {
		Stats struct {
			Bytes *int64 `json:"wr_bytes"`
		}
	}
	if err := json.Unmarshal(blockstats, &disks); err != nil {
		return 0, err
	}
	for _, d := range disks {
		if d.Stats.Bytes == nil {
			return 0, fmt.Errorf("QEMU does not say what was written: %s", blockstats)
		}
		total += *d.Stats.Bytes
	}
	if len(disks) == 0 {
		return 0, errors.New("QEMU knows no disk")
	}
	return total, nil
}

// follow reads what the node tells the journal from now on, where the console does not have it.
func (b *flashed) follow(ctx context.Context) error {
	if b.key == "" {
		return nil
	}
	cmd := b.login(ctx, "echo follows; exec journalctl -q -f -n 3 -o cat -u ledge.service")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "follows" {
		return fmt.Errorf("the journal cannot be followed: %w", cmd.Wait())
	}
	end := make(chan struct{})
	b.mu.Lock()
	b.journal = end
	b.mu.Unlock()
	go func() {
		defer close(end)
		for lines.Scan() {
			b.stage(lines.Text())
		}
		_ = cmd.Wait() // it is cut off with the machine
	}()
	return nil
}

// stage counts one that is over.
func (b *flashed) stage(text string) {
	if !strings.Contains(text, "shutdown stage over") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.over(text); err != nil {
		b.failed = errors.Join(b.failed, err)
	}
}

func answers(client http.Client, url string) bool {
	resp, err := client.Get(url)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// ask waits until the pods answer, and presses the power button.
func (b *flashed) ask(ctx context.Context) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, url := range b.urls {
		for ctx.Err() == nil && !answers(client, url) {
			time.Sleep(200 * time.Millisecond)
		}
	}
	if ctx.Err() != nil {
		return
	}
	pod := time.Since(b.began).Milliseconds()
	err := b.logIn(ctx)
	if err == nil {
		err = b.air(ctx)
	}
	if err == nil {
		err = b.rest(ctx)
	}
	if err == nil {
		err = b.follow(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.PodMillis, b.off = pod, time.Now(); err != nil {
		b.failed = err
		b.stop()
		return
	}
	if b.cut != nil {
		b.cut()
		return
	}
	b.failed = errors.Join(b.failed, pressPowerButton(b.guest.qmp))
}

func (b *flashed) line(text string) bool {
	b.all = append(b.all, text)
	b.stage(text)
	first := func(at *int64) {
		if *at == 0 {
			*at = time.Since(b.began).Milliseconds()
		}
	}
	switch {
	case strings.Contains(text, "Kernel panic"):
		b.mu.Lock()
		b.failed = errors.New(text)
		b.mu.Unlock()
		return true
	case strings.Contains(text, "listening to the power key"):
		first(&b.MountedMillis)
	case strings.HasPrefix(text, "network: "):
		first(&b.AddressMillis)
	case strings.Contains(text, "msg=serving"):
		first(&b.ServingMillis)
		_, rest, _ := strings.Cut(text, " node=")
		b.node, _, _ = strings.Cut(rest, " ")
	}
	return false
}
