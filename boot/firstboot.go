package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/config"
	"ledge/firstboot"
	"ledge/firstboot/card"
	"ledge/host"
	"ledge/host/disk"
	"ledge/internal/durable"
	"ledge/page/password"
	"ledge/pki"
)

// What people write on a board's boot partition is made to hold before the node starts, at every boot. ledge.yaml is read and
// judged by package firstboot; here is what its plan does to the machine.

// boardSetup is one reading of a boot partition.
type boardSetup struct {
	boot, data, state string
	args              []string // of the brain, as they would be without it
	noWiFi, noSSH     string

	plan     firstboot.Plan
	lines    firstboot.Lines
	mistakes []firstboot.Mistake
	radio    string // the interface that the Wi-Fi is for
}

// read finds what the board is to be. Without a boot partition nothing is asked for.
func (s *boardSetup) read() error {
	if err := host.FinishOnCard(s.boot, 1<<20); err != nil {
		slog.Warn("a file of the boot partition that was being changed when the power went", "err", err)
	}
	list, err := os.ReadDir(s.boot)
	if err != nil {
		return fmt.Errorf("read the boot partition: %w", err)
	}
	var files []firstboot.File
	for _, e := range list {
		if e.IsDir() || !firstboot.IsConfig(e.Name()) {
			continue
		}
		data, err := readAtMost(filepath.Join(s.boot, e.Name()), 1<<20)
		if err != nil {
			s.mistake(e.Name(), err)
			continue
		}
		files = append(files, firstboot.File{Name: e.Name(), Data: s.hidePassword(e.Name(), data)})
	}
	if err := os.MkdirAll(filepath.Join(s.state, config.BootEmptyDir), 0o700); err != nil {
		return err
	}
	node, ca, joined := pki.JoinedAs(filepath.Join(s.data, "board"))
	plan, lines, mistakes := firstboot.Parse(files, s.machine(ca, joined))
	s.plan, s.lines, s.mistakes = plan, lines, append(s.mistakes, mistakes...)
	if joined && len(plan.Servers) > 0 {
		if plan.Hostname != "" && plan.Hostname != node {
			s.useless("hostname", fmt.Sprintf("this board has joined as %s and keeps that name", node), "Write that, or remove the line")
		}
		s.plan.Hostname, s.plan.Token = node, ""
	}
	if s.plan.Hostname == "" {
		called, _ := os.Hostname()
		id, _ := os.ReadFile("/etc/machine-id")
		s.plan.Hostname = ownName(called, strings.TrimSpace(string(id)))
	}
	s.args = s.brainArgs()
	return nil
}

// hidePassword makes the password of the page unreadable in a file of the boot partition: whoever finds the card could read it. A card that
// cannot be written is one that nobody can mend; the page works all the same.
func (s *boardSetup) hidePassword(name string, data []byte) []byte {
	hidden, err := password.Hide(data, "configuration")
	if err == nil && hidden != nil {
		err = host.ChangeOnCard(s.boot, name, hidden)
	}
	if err != nil {
		s.mistake(name, fmt.Errorf("the password of the page can be read in this file: %w", err))
	}
	if hidden == nil {
		return data
	}
	return hidden
}

// unnamed is what a board is called that nobody has named.
const unnamed = "ledge"

// ownName tells boards apart that nobody has named: with the same name they would be one board to a control plane, and to a
// router. It is empty for a machine that has a name.
func ownName(called, id string) string {
	if called != unnamed || len(id) < 6 {
		return ""
	}
	return unnamed + "-" + id[:6]
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("has more than %d bytes and is not read", most)
	}
	return data, err
}

// mistake is one of a file as a whole.
func (s *boardSetup) mistake(file string, err error) {
	s.mistakes = append(s.mistakes, firstboot.Mistake{File: file, What: err.Error()})
}

// useless is one of a key that this board cannot follow.
func (s *boardSetup) useless(key, what, remedy string) {
	s.mistakes = append(s.mistakes, s.lines.Mistake(key, what, remedy))
}

// places lets the brain report later mistakes in the same words.
func (s *boardSetup) places() (p card.Places) {
	key := "token"
	if s.plan.Token == "" {
		key = "server"
	}
	p.Join = s.lines.Mistake(key, "", "")
	if n := s.plan.Network; n.Static() {
		l := card.Link{Mistake: s.lines.Mistake("network.interface", "interface", "Leave it out: then the address is for the first there is"),
			Name: n.Interface}
		if l.Line == 0 { // whatever the setup has found then
			l = card.Link{Mistake: s.lines.Mistake("network.address", "address", "")}
		}
		p.Links = append(p.Links, l)
	}
	if s.radio != "" {
		p.Links = append(p.Links, card.Link{Mistake: s.lines.Mistake("wifi", "wifi", ""), Name: s.radio, Radio: true})
	}
	return p
}

// machine is what firstboot asks about this one.
func (s *boardSetup) machine(ca pki.Pin, joined bool) firstboot.Machine {
	m := firstboot.Machine{NoWiFi: s.noWiFi, NoSSH: s.noSSH, Joined: joined, Keys: config.Keys(), Server: config.CheckServer,
		Token: func(text string) error {
			t, err := pki.ParseJoinToken(text)
			if err == nil && joined && t.CA != ca {
				err = errors.New("it is of another control plane than the one this board has joined")
			}
			return err
		},
		Config: func(data []byte) error {
			if _, err := config.ReadKeys(data); err != nil {
				return err
			}
			if tryBrain(s.args) != nil { // it is not for these keys that it would not start
				return nil
			}
			return s.tryConfig(data)
		}}
	if joined {
		text, _ := os.ReadFile(s.serversFile())
		m.Servers = strings.Fields(string(text))
	}
	return m
}

// serversFile has those that a joined board had last.
func (s *boardSetup) serversFile() string { return filepath.Join(s.data, "servers") }

// tryConfig says whether the brain would start with this configuration over all other.
func (s *boardSetup) tryConfig(data []byte) error {
	dir, err := os.MkdirTemp(s.state, "try-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, config.BootFile), data, 0o600); err != nil {
		return err
	}
	err = tryBrain(append(slices.Clone(s.args), "--boot-state", dir))
	if err != nil { // whoever reads it has no such file
		file := filepath.Join(dir, config.BootFile)
		return errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "configuration "+file+": "), file, "ledge.yaml"))
	}
	return nil
}

// tryBrain says whether the brain would start.
func tryBrain(args []string) error {
	_, err := config.ReadBrain(args)
	return err
}

// brainArgs are the brain's with the plan.
func (s *boardSetup) brainArgs() []string {
	args, more := slices.Clone(s.args), []string{"--boot-state", s.state}
	dir := filepath.Join(s.boot, "manifests")
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		dir = filepath.Join(s.state, config.BootEmptyDir) // what came from a folder that is gone now goes too
	}
	if len(s.plan.Servers) > 0 {
		args = config.AsAgent(args)
		for _, server := range s.plan.Servers {
			more = append(more, "--server", server)
		}
		if s.plan.Token != "" {
			more = append(more, "--token", s.plan.Token)
		}
	}
	files, plane := "--manifests", !slices.Contains(args, "agent")
	if o, err := config.ReadBrain(args); plane && err == nil && o.Joins { // its configuration says so
		plane = false
	}
	if !plane {
		files = "--pod-manifest-path"
	}
	if !hasFlag(args, files) {
		more = append(more, files, dir)
	}
	if s.plan.Listen != "" && plane {
		more = append(more, "--listen", s.plan.Listen)
	} else if s.plan.Listen != "" {
		s.useless("serve.listen", "serve has no effect: the configuration of this board says that its control plane is elsewhere", "Remove it")
	}
	return append(args, more...)
}

func hasFlag(args []string, name string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		given, _, _ := strings.Cut(a, "=")
		return "--"+strings.TrimLeft(given, "-") == name && strings.HasPrefix(a, "-")
	})
}

// apply leaves for the brain what it needs, and says what was wrong: on the console, and on the partition.
func (s *boardSetup) apply() {
	s.files()
	firstboot.Sort(s.mistakes)
	var errs []error
	keep := func(name, text string) {
		errs = append(errs, os.WriteFile(filepath.Join(s.state, name), []byte(text), 0o600))
	}
	asked := ""
	if s.plan.Kubeconfig {
		asked = "asked for"
	}
	for name, text := range map[string]string{config.BootFile: string(s.plan.Configuration), config.BootKubeconfigFile: asked} {
		if text != "" {
			keep(name, text)
		} else if err := os.Remove(filepath.Join(s.state, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if len(s.plan.Servers) > 0 {
		text := strings.Join(s.plan.Servers, "\n") + "\n"
		if old, _ := os.ReadFile(s.serversFile()); string(old) != text {
			errs = append(errs, durable.Replace(s.serversFile(), []byte(text), 0o600))
		}
	}
	var lines []string
	for _, m := range s.mistakes {
		slog.Error("a mistake on the boot partition", "what", m.String())
		lines = append(lines, m.String())
	}
	places, err := json.Marshal(s.places())
	keep(config.BootWhereFile, s.boot)
	keep(config.BootPlacesFile, string(places))
	errs = append(errs, err, card.Tell(s.boot, "", lines))
	if err := errors.Join(errs...); err != nil {
		slog.Error("not all of the boot partition holds", "err", err)
	}
}

// hostname names the machine.
func (s *boardSetup) hostname() error {
	if s.plan.Hostname == "" {
		return nil
	}
	if err := unix.Sethostname([]byte(s.plan.Hostname)); err != nil {
		return fmt.Errorf("name the machine %s: %w", s.plan.Hostname, err)
	}
	return nil
}

// resolvConf is the file with the name servers.
func resolvConf(servers []netip.Addr) []byte {
	var out []byte
	for _, a := range servers {
		out = append(out, "nameserver "+a.String()+"\n"...)
	}
	return out
}

// firstBoot is what process 1 does: the card's room is taken, then its boot partition read. It gives the brain's arguments, and
// whether addresses are given, so that nobody need ask for them.
func firstBoot(args []string, ownData bool) (brain []string, static bool) {
	problem := func(err error) {
		if err != nil {
			slog.Error("first boot", "err", err)
		}
	}
	s := &boardSetup{boot: config.FirmwareDir, data: dataDirOf(args), state: config.BootStateDir, args: args,
		noWiFi: "ledge as process 1 knows wired networks only", noSSH: "there is nothing to log in to; kubectl does it all"}
	if ownData {
		grown, err := disk.Grow(s.data)
		if err != nil {
			problem(err)
			s.mistake("data partition", err)
		} else if grown > 0 {
			slog.Info("the data partition has taken the card's room", "bytes", grown)
		}
		problem(host.KeepMachineID(s.data, "/etc/machine-id"))
	}
	if err := s.read(); errors.Is(err, fs.ErrNotExist) { // a board may have none
		return args, false
	} else if err != nil {
		problem(err)
		return args, false
	}
	problem(s.hostname())
	n := s.plan.Network
	if n.Static() {
		if len(n.DNS) > 0 {
			problem(os.WriteFile("/etc/resolv.conf", resolvConf(n.DNS), 0o644))
		}
		go host.KeepAddress(host.StaticAddress{Interface: n.Interface, Address: n.Address, Gateway: n.Gateway}, func(on string, err error) {
			if err != nil {
				slog.Warn("the address is not there yet", "err", err)
				return
			}
			slog.Info("address given", "interface", on, "address", n.Address)
		})
	}
	s.apply()
	return s.args, n.Static()
}
