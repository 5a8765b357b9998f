package boot

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ledge/config"
	"ledge/firstboot"
	"ledge/firstboot/card"
	"ledge/host"
	"ledge/pki"
)

// cardOf makes a boot partition of files, and the setup of a board that has it.
func cardOf(t *testing.T, files map[string]string) *boardSetup {
	t.Helper()
	top := t.TempDir()
	s := &boardSetup{boot: filepath.Join(top, "boot"), data: filepath.Join(top, "data"), state: filepath.Join(top, "state"),
		args:  []string{"serve", "--watchdog", "/dev/watchdog", "--config", filepath.Join(top, "config.yaml"), "--config-dir", ""},
		noSSH: "there is no login"}
	write(t, filepath.Join(top, "config.yaml"), config.FirstFile)
	write(t, filepath.Join(s.data, "x"), "")
	write(t, filepath.Join(s.boot, "x"), "")
	for name, text := range files {
		write(t, filepath.Join(s.boot, name), text)
	}
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (s *boardSetup) boots(t *testing.T) string {
	t.Helper()
	s.mistakes, s.args = nil, slices.Clone(s.args)
	args := slices.Clone(s.args)
	if err := s.read(); err != nil {
		t.Fatal(err)
	}
	s.apply()
	if err := tryBrain(s.args); err != nil {
		t.Errorf("the brain would not start with %q: %v", s.args, err)
	}
	s.args = args
	text, _ := os.ReadFile(filepath.Join(s.boot, card.FileName))
	return string(text)
}

const goodPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: a, image: ledge.local/self}\n"

// TestBoardComesUp: whatever is wrong, what is right holds, each mistake has its line, and the brain would start.
func TestBoardComesUp(t *testing.T) {
	s := cardOf(t, map[string]string{
		"ledge.yaml.txt": "\ufeffhostname: my board\r\nssh: [x]\r\nserve:\r\n  listen: 0.0.0.0:6443\r\nconfiguration:\r\n  maxPods: 20\r\n" +
			"  maxPodz: 3\r\n  podPidsLimit: many\r\n  podsPerCore: -1\r\n  shutdownGracePeriodCriticalPods: 90s\r\n  shutdownGracePeriod: 120s\r\n",
		"manifests/good.yaml":   goodPod,
		"manifests/._good.yaml": "\x00",
		"manifests/README.txt":  "hello",
		"manifests/other.yml": "# a comment\n--- # and more\n" + goodPod +
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nspec: {}\n",
		"manifests/bad.yaml":        strings.Replace(goodPod, "spec:", "spec:\n  restartPolici: Never", 1),
		"manifests/worse.yaml":      "---\r\n" + strings.Replace(goodPod, "web}", "web", 1),
		"manifests/odd.yaml":        "apiVersion: v1\nkind: Poodle\nmetadata: {name: a}\n",
		"manifests/hidden.yaml.txt": goodPod, "manifests/LOUD.YAML": goodPod,
		"images/web.tar": "", "images/web.zip": "", "images/Thumbs.db": "",
	})
	got := s.boots(t)
	for _, want := range []string{
		`ledge.yaml.txt, line 1: "my board" is no name for a board. Did you mean my-board?`,
		`ledge.yaml.txt, line 2: ssh has no effect here: there is no login. Remove ssh:`,
		`ledge.yaml.txt, line 7: there is no key "maxPodz" below configuration:. Did you mean maxPods?`,
		`ledge.yaml.txt, line 8: podPidsLimit is left out: "many" is no whole number`,
		`ledge.yaml.txt, line 9: podsPerCore is left out: -1 is no number of pods: say 1 to 2147483647, or 0 for no such bound`,
		`manifests/other.yml, line 13: ConfigMap: `,
		`manifests/bad.yaml, line 5: Pod: `,
		`manifests/worse.yaml, line 4: `, `manifests/odd.yaml, line 2: ledge does not know objects of kind "Poodle"`,
		`manifests/hidden.yaml.txt: is not read: its name does not end in .yaml. Call it hidden.yaml`,
		`manifests/LOUD.YAML: is not read: its name does not end in .yaml. Call it loud.yaml`,
		`images/web.zip: is no image archive by its name, and not imported. Names`,
	} {
		if strings.Count(got, "\r\n"+want) != 1 {
			t.Errorf("not once: %s", want)
		}
	}
	if n := strings.Count(strings.Split(got, "\r\n\r\n")[1], "\r\n"); n != 12 || t.Failed() {
		t.Errorf("%d mistakes:\n%s", n, got)
	}
	keys, _ := os.ReadFile(filepath.Join(s.state, config.BootFile))
	for _, want := range []string{"  maxPods: 20\n", "  shutdownGracePeriodCriticalPods: 90s\n", "  shutdownGracePeriod: 120s\n"} {
		if !strings.Contains(string(keys), want) {
			t.Errorf("no %q in the configuration", want)
		}
	}
	if strings.Contains(string(keys), "odz") || strings.Contains(string(keys), "many") {
		t.Errorf("configuration:\n%s", keys)
	}
	if args := strings.Join(s.brainArgs(), " "); !strings.HasPrefix(args, "serve --watchdog /dev/watchdog ") ||
		!strings.HasSuffix(args, "--manifests "+s.boot+"/manifests --listen 0.0.0.0:6443") {
		t.Error(args)
	}
	// Mended, the file is gone; the next boot writes nothing, as a card wears.
	if err := os.RemoveAll(filepath.Join(s.boot, "manifests")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(s.boot, "images")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.boot, "ledge.yaml.txt"), "")
	if got := s.boots(t); got != "" {
		t.Error("still wrong:", got)
	}
	if args := strings.Join(s.brainArgs(), " "); !strings.HasSuffix(args, "--manifests "+s.state+"/manifests") {
		t.Error("objects of a folder that is gone stay:", args)
	}
	if config.BootFiles(s.state) != nil {
		t.Error("the configuration stays")
	}
}

// rows is a pki.Rows in memory.
type rows map[string][]byte

func (r rows) All() (map[string][]byte, []string, error) { return maps.Clone(r), nil, nil }
func (r rows) Put(key string, value []byte) error        { r[key] = value; return nil }
func (r rows) Delete(key string) error                   { delete(r, key); return nil }

// controlPlane makes a token of one, and what takes a board in.
func controlPlane(t *testing.T) (token string, join func(dir, node string)) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := pki.Open(pki.Config{Dir: filepath.Join(t.TempDir(), "pki")})
	must(err)
	j, err := a.Joins(pki.JoinsConfig{Tokens: rows{}, Boards: rows{}, Own: "plane"})
	must(err)
	tok, err := j.Create(pki.TokenTerms{Uses: 1, TTL: time.Hour})
	must(err)
	return tok.String(), func(dir, node string) {
		i, err := pki.OpenIdentity(pki.IdentityConfig{Dir: dir, Node: node})
		must(err)
		req, err := i.Request()
		must(err)
		cert, _, err := j.Sign(req, tok.Proof(), func(string) (is, alive bool, err error) { return false, false, nil })
		must(err)
		block, _ := pem.Decode(a.CA())
		ca, err := x509.ParseCertificate(block.Bytes)
		must(err)
		must(i.Accept(cert, a.Pin(), []*x509.Certificate{ca}))
	}
}

// TestBoardJoins: the arguments of a control plane become those of a board; once joined, a mistake made later does not make
// another board of it, and the token is left alone.
func TestBoardJoins(t *testing.T) {
	s := cardOf(t, map[string]string{"ledge.yaml": "hostname: b\nserver: https://10.0.0.1:6443\ntoken: nonsense\n",
		"manifests/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
	s.args = append(s.args, "--listen=0.0.0.0:6443", "--allocate-node-cidrs", "--cluster-cidr", "10.44.0.0/16", "-v")
	if got := s.boots(t); !strings.Contains(got, "line 3: this is no token to join with") || len(s.plan.Servers) > 0 {
		t.Error(got, s.plan)
	}
	token, join := controlPlane(t)
	write(t, filepath.Join(s.boot, "ledge.yaml"), "hostname: b\nserver: https://10.0.0.1:6443\ntoken: "+token+"\n")
	if got := s.boots(t); !strings.Contains(got, "manifests/a.yaml, line 1: a board of another control plane") ||
		strings.Contains(got, "ledge.yaml") {
		t.Error(got)
	}
	args := strings.Join(s.brainArgs(), " ")
	if !strings.HasPrefix(args, "agent --watchdog /dev/watchdog --config ") ||
		!strings.HasSuffix(args, "--config-dir  -v --boot-state "+s.state+
			" --server https://10.0.0.1:6443 --token "+token+" --pod-manifest-path "+s.boot+"/manifests") {
		t.Error(args)
	}
	join(filepath.Join(s.data, "board"), "b")
	write(t, filepath.Join(s.boot, "ledge.yaml"), "hostname: c\nserver: 10.0.0.1\ntoken: "+token+"\n")
	got := s.boots(t)
	for _, want := range []string{"ledge.yaml, line 1: this board has joined as b and keeps that name", "line 2: \"10.0.0.1\" is no URL"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if args := strings.Join(s.brainArgs(), " "); !strings.Contains(args, "--server https://10.0.0.1:6443") ||
		strings.Contains(args, "--token") || s.plan.Hostname != "b" {
		t.Error(args, s.plan)
	}
	other, _ := controlPlane(t)
	write(t, filepath.Join(s.boot, "ledge.yaml"), "server: https://10.0.0.2:6443\ntoken: "+other+"\n")
	if got := s.boots(t); !strings.Contains(got, "line 2: this is no token to join with: it is of another control plane") {
		t.Error(got)
	}
}

// TestLaterMistakes: what the brain finds wrong with an archive, or why it has not joined, is added, stays over the next boot's beginning
// without the card being written, and goes when the brain knows better.
func TestLaterMistakes(t *testing.T) {
	s := cardOf(t, map[string]string{"ledge.yaml": "# mine\nserver: https://10.0.0.1:6443\nhostnam: a\n", "images/a.tar": "x"})
	token, _ := controlPlane(t)
	write(t, filepath.Join(s.boot, "ledge.yaml"), "hostnam: a\nserver: https://10.0.0.1:6443\n\ntoken: "+token+"\n")
	first := s.boots(t)
	b := card.Board{State: s.state}
	b.Tell(s.boot, card.ArchiveWords, "images/a.tar"+card.ArchiveWords+"no archive")
	b.TellJoin(errors.New("the token\nis old"))
	again := s.boots(t)
	want := first + "ledge.yaml, line 4: this board has not joined: the token is old\r\nimages/a.tar: is not imported: no archive\r\n"
	if first == "" || again != want {
		t.Errorf("%q\nwant %q", again, want)
	}
	b.TellJoin(nil)
	if again = s.boots(t); again != first+"images/a.tar: is not imported: no archive\r\n" {
		t.Errorf("%q", again)
	}
	b.Tell(s.boot, card.ArchiveWords)
	if again = s.boots(t); again != first {
		t.Errorf("%q\nwant %q", again, first)
	}
}

// TestMissingNetworks: an interface that is not there and a Wi-Fi that is not joined are told with their line when they had time,
// and not any more when they come.
func TestMissingNetworks(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		at   map[string]string // of the machine, from the beginning
		want string
		then map[string]string // later
		next string            // what is told then
	}{
		"as it should be": {yaml: "network:\n  address: 10.0.0.2/24\n  interface: eth0\n", at: map[string]string{"eth0/device/x": ""}},
		"another name": {yaml: "network:\n  address: 10.0.0.2/24\n  interface: eth0\n", at: map[string]string{"end0/device/x": ""},
			want: "ledge.yaml, line 3: interface has no effect yet: there is no interface eth0, but end0. Leave it out: then the address is for the first there is",
			then: map[string]string{"eth0/device/x": ""}},
		"no name and none there": {yaml: "network:\n  address: 10.0.0.2/24\n",
			want: "ledge.yaml, line 2: address has no effect yet: there is no wired interface"},
		"no radio": {yaml: "\nwifi: {ssid: a, password: 12345678}\n",
			want: "ledge.yaml, line 2: wifi has no effect yet: there is no radio, or no driver for it",
			then: map[string]string{"wlan0/wireless/x": "", "wlan0/operstate": "down\n"},
			next: "ledge.yaml, line 2: wifi has no effect yet: that network is out of reach, or has another name or password"},
		"another password": {yaml: "wifi: {ssid: a, password: 12345678}\n",
			at:   map[string]string{"wlx1/wireless/x": "", "wlx1/operstate": "dormant\n"},
			want: "ledge.yaml, line 1: wifi has no effect yet: that network is out of reach, or has another name or password",
			then: map[string]string{"wlx1/operstate": "up\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := cardOf(t, map[string]string{"ledge.yaml": c.yaml})
			y := &bootSystemd{root: t.TempDir(), exe: "/usr/bin/ledge", sys: t.TempDir(), setup: s,
				reload: func(context.Context, string) error { return nil }}
			for _, program := range []string{sshdProgram, networkdProgram, wifiProgram} {
				write(t, filepath.Join(y.root, program), "")
			}
			put := func(files map[string]string) {
				for name, text := range files {
					write(t, filepath.Join(y.sys, name), text)
				}
			}
			put(c.at)
			if err := y.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			told := func() string {
				text, _ := os.ReadFile(filepath.Join(s.boot, card.FileName))
				return strings.Join(firstboot.Reported(text), "\n")
			}
			synctest.Test(t, func(t *testing.T) {
				b := card.Board{State: s.state}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go b.WatchLinks(ctx, y.sys)
				time.Sleep(card.LinkPatience - time.Second)
				if got := told(); got != "" {
					t.Errorf("too early: %s", got)
				}
				time.Sleep(11 * time.Second)
				if got := told(); got != c.want {
					t.Errorf("%s\nwant %s", got, c.want)
				}
				put(c.then)
				time.Sleep(11 * time.Second)
				if got := told(); c.then != nil && got != c.next {
					t.Errorf("then %s\nwant %s", got, c.next)
				}
			})
		})
	}
}

// TestBootSystemd: what a plan is on a machine with systemd, and that nothing of it stays when the card says nothing any more.
func TestBootSystemd(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me"
	s := cardOf(t, map[string]string{"ledge.yaml": "network: {address: 10.0.0.2/24, gateway: 10.0.0.1, dns: 9.9.9.9}\nssh: [" + key +
		"]\nwifi: {ssid: a, password: 12345678, country: DE}\n"})
	s.args, s.noSSH = []string{"serve", "--config", filepath.Join(filepath.Dir(s.boot), "config.yaml")}, ""
	var reloads []string
	y := &bootSystemd{root: t.TempDir(), exe: "/usr/bin/ledge", sys: t.TempDir(), setup: s,
		reload: func(_ context.Context, start string) error { reloads = append(reloads, start); return nil }}
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(y.root, name))
		return string(text)
	}
	boot := func() {
		t.Helper()
		again := *s
		y.setup = &again
		if err := y.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	boot()
	if n := len(y.setup.mistakes); n != 3 || read(bootNetwork) != "" || read(rootKeys) != "" {
		t.Error("without sshd and networkd:", y.setup.mistakes)
	}
	write(t, filepath.Join(y.root, sshdProgram), "")
	write(t, filepath.Join(y.root, networkdProgram), "")
	write(t, filepath.Join(y.root, rootKeys), "ssh-rsa other")
	write(t, filepath.Join(y.root, wifiProgram), "")
	write(t, filepath.Join(y.sys, "wlx1", "wireless", "x"), "")
	write(t, filepath.Join(y.sys, "eth1", "device", "x"), "")
	write(t, filepath.Join(y.sys, "eth0", "device", "x"), "")
	boot()
	if len(y.setup.mistakes) > 0 {
		t.Error(y.setup.mistakes)
	}
	radio := fmt.Sprintf(wifiConf, "wlx1")
	if got, want := read(radio), "ctrl_interface=/run/wpa_supplicant\ncountry=DE\nnetwork={\n\tssid=61\n\tscan_ssid=1\n\tpsk=\"12345678\"\n}\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := read(bootWiFi); got != "[Match]\nName=wlx1\n\n[Network]\nDHCP=yes\n" {
		t.Errorf("%q", got)
	}
	if got, want := read(bootNetwork), "[Match]\nName=eth0\n\n[Network]\nAddress=10.0.0.2/24\nGateway=10.0.0.1\nDNS=9.9.9.9\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := read(rootKeys), "ssh-rsa other\n"+keysBegin+"\n"+key+"\n"+keysEnd+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := read(bootUnit); !strings.HasPrefix(got, "[Service]\nExecStart=\nExecStart=\"/usr/bin/ledge\" \"serve\" ") ||
		!slices.Equal(reloads, []string{"", "wpa_supplicant@wlx1.service"}) {
		t.Errorf("%q, %q", got, reloads)
	}
	write(t, filepath.Join(s.boot, "ledge.yaml"), "")
	boot()
	if got := read(rootKeys); got != "ssh-rsa other\n" || read(bootNetwork)+read(bootWiFi)+read(radio) != "" || len(y.setup.mistakes) > 0 {
		t.Errorf("%q, %v", got, y.setup.mistakes)
	}
	if now, _ := os.Hostname(); now != name {
		t.Errorf("the machine is %s", now)
	}
}

// TestBootWired: an address that names no interface is one interface's, once it has the name that it keeps.
func TestBootWired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := &bootSystemd{root: t.TempDir(), sys: t.TempDir(), patience: 10 * time.Second}
		begin := time.Now()
		if got := y.wired(t.Context()); got != "en* eth*" || time.Since(begin) != y.patience {
			t.Errorf("without one: %q after %v", got, time.Since(begin))
		}
		write(t, filepath.Join(y.sys, "eth1", "device", "x"), "")
		write(t, filepath.Join(y.sys, "eth1", "ifindex"), "3\n")
		begin = time.Now()
		if got := y.wired(t.Context()); got != "eth1" || time.Since(begin) != 0 {
			t.Errorf("without udev: %q after %v", got, time.Since(begin))
		}
		write(t, filepath.Join(y.root, "run/udev/data/x"), "")
		if got := y.wired(t.Context()); got != "eth1" || time.Since(begin) != y.patience {
			t.Errorf("udev does nothing: %q after %v", got, time.Since(begin))
		}
		begin = time.Now()
		go func() {
			time.Sleep(time.Second)
			if err := os.Rename(filepath.Join(y.sys, "eth1"), filepath.Join(y.sys, "end0")); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if err := os.WriteFile(filepath.Join(y.root, "run/udev/data/n3"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}()
		if got, took := y.wired(t.Context()), time.Since(begin); got != "end0" || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("renamed: %q after %v", got, took)
		}
	})
}

// TestBootKeepsLauncher: firstboot of a version that an upgrade has chosen has systemd start the program that chooses, not its own.
func TestBootKeepsLauncher(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for by, want := range map[string]string{"/usr/local/bin/ledge": "/usr/local/bin/ledge", "": self} {
		t.Setenv(launchedBy, by)
		y, err := newBootSystemd(t.TempDir(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if got := string(y.unit()); !strings.Contains(got, "\nExecStart=\""+want+"\" \"serve\" ") {
			t.Errorf("launched by %q: %s", by, got)
		}
	}
}

// TestOwnName: two boards that nobody has named have two names, each the same at every boot.
func TestOwnName(t *testing.T) {
	for _, c := range [][3]string{
		{unnamed, "0123456789abcdef0123456789abcdef", "ledge-012345"},
		{unnamed, "fedcba9876543210fedcba9876543210", "ledge-fedcba"},
		{unnamed, "", ""}, // without an identity a name would change
		{"shed", "0123456789abcdef0123456789abcdef", ""},
	} {
		if got := ownName(c[0], c[1]); got != c[2] {
			t.Errorf("%s, %s: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

// TestMachineID: it is made once and shown at every boot, also after a cut in the middle of its making.
func TestMachineID(t *testing.T) {
	dir := t.TempDir()
	shown := filepath.Join(dir, "shown")
	write(t, filepath.Join(dir, "machine-id"), "")
	write(t, filepath.Join(dir, ".machine-id.tmp"), "half")
	var ids []string
	for range 3 {
		if err := host.KeepMachineID(dir, shown); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(shown)
		ids = append(ids, string(text))
		if err := os.Remove(shown); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids[0]) != 33 || len(slices.Compact(ids)) != 1 {
		t.Error(ids)
	}
}

// TestPagePasswordOnCard: the first boot makes the password of the page unreadable on the card; what else stands there stays.
func TestPagePasswordOnCard(t *testing.T) {
	const before = "hostname: shed # mine\r\nconfiguration:\r\n  page: {listen: \":8443\", password: eight or more}\r\n  maxPods: 20\r\n"
	s := cardOf(t, map[string]string{"ledge.yaml": before})
	if got := s.boots(t); got != "" {
		t.Errorf("it says: %s", got)
	}
	text, err := os.ReadFile(filepath.Join(s.boot, "ledge.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "eight or more") || !strings.HasPrefix(string(text), before[:60]) || !strings.HasSuffix(string(text), "}\r\n  maxPods: 20\r\n") {
		t.Errorf("the card has:\n%s", text)
	}
	keys, err := os.ReadFile(filepath.Join(s.state, config.BootFile))
	if err != nil || strings.Contains(string(keys), "eight or more") || !strings.Contains(string(keys), "scrypt:") {
		t.Errorf("the configuration: %v\n%s", err, keys)
	}
	s.boots(t)
	if again, _ := os.ReadFile(filepath.Join(s.boot, "ledge.yaml")); string(again) != string(text) {
		t.Errorf("the next boot makes of it:\n%s", again)
	}
}
