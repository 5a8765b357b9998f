package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// airName and airPassword are of a wireless network that is only in the board's own air.
const airName, airPassword = "Shed", "not this one"

// airless is the sentence on the card of a board whose wireless network cannot be found.
const airless = "ledge.yaml, line 2: wifi has no effect yet: that network is out of reach, or has another name or password"

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
	text := fmt.Sprintf("hostname: shed\nwifi:\n  ssid: %s\n  password: %q\n  country: DE\nssh:\n  keys:\n  - %s%s", airName, airPassword,
		public, flashedPage)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return "", err
	}
	if out, err := command(ctx, "mcopy", "-o", "-i", disk+"@@1M", file, "::/").CombinedOutput(); err != nil {
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
		more := strings.Replace(string(text), " ledge.", " "+word+" ledge.", 1) // its first word of ours
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

// login runs a command on the board over SSH, with the user's key. The board must show the same host key in all boots.
func (b *flashed) login(ctx context.Context, script string) *exec.Cmd {
	return command(ctx, "ssh", "-n", "-i", b.key, "-p", fmt.Sprint(b.ssh), "-o", "BatchMode=yes", "-o", "HostKeyAlias=board", "-o",
		"StrictHostKeyChecking=accept-new",
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
// On the first boot the card is to say before that there is no such network, and on each nothing of it afterwards.
func (b *flashed) air(ctx context.Context) error {
	if b.key == "" || b.wired {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
	defer cancel()
	if b.first {
		if _, err := b.shell(ctx, "until grep -q '"+airless+"' /boot/firmware/ledge-errors.txt 2>/dev/null; do sleep 1; done"); err != nil {
			return fmt.Errorf("the card does not say that there is no Wi-Fi: %w", err)
		}
	}
	began := time.Now()
	out, err := b.shell(ctx, fmt.Sprintf(airScript, airName, airPassword))
	if err != nil {
		return fmt.Errorf("no Wi-Fi: %w", err)
	}
	if !strings.Contains(out, "10.77.0.") {
		return fmt.Errorf("no Wi-Fi: %s", out)
	}
	b.mu.Lock()
	b.WiFiMillis = time.Since(began).Milliseconds()
	b.mu.Unlock()
	if _, err := b.shell(ctx, "while [ -e /boot/firmware/ledge-errors.txt ]; do sleep 1; done"); err != nil {
		return fmt.Errorf("the card goes on saying that there is no Wi-Fi: %w", err)
	}
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
systemctl status --no-pager -n 30 'wpa_supplicant*'
journalctl -q --no-pager -n 20 -u systemd-networkd
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
