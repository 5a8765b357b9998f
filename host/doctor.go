package host

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Verdict is how a check ended.
type Verdict string

// The verdicts. Warn: ledge runs, with less; Fail: it does not, or pods do not.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "FAIL"
)

// Check is one thing that a board needs, and the remedy if it is missing.
type Check struct {
	Name    string
	Verdict Verdict
	Detail  string // one line
	Remedy  string // one line; empty when there is nothing to do
}

// Probe is a check that another room makes, by trying.
type Probe struct {
	Name   string
	Err    error  // nil: it works
	Detail string // how; may be empty
	Remedy string
	Fatal  bool // Fail and not Warn if it does not work
}

// DoctorConfig says what to look at beside the machine itself.
type DoctorConfig struct {
	DataDir string
	Floor   time.Time // a moment known to have passed
	Now     time.Time
	// Probes take the place of the checks of the same names, which can only look at what is configured.
	Probes []Probe
}

// doctor judges what a machine says of itself.
type doctor struct{ h *Host }

// Essentials are the checks without which no pod can run, whatever else is right. What pods can do without (a bridge, if
// none is wanted) is not among them. They take no time worth speaking of: every start makes them.
func (h *Host) Essentials(dataDir string) []Check {
	d := doctor{h}
	return []Check{d.checkKernel(), d.checkPrivileges(), d.checkNamespaces(), d.checkCgroups(), d.checkOverlay(dataDir)}
}

// Doctor looks the machine over. It leaves nothing behind and runs no program.
func (h *Host) Doctor(c DoctorConfig) []Check {
	d := doctor{h}
	all := append(h.Essentials(c.DataDir),
		d.checkSeccomp(), h.Controllers(), d.checkPressure(), d.checkMemory(), d.checkSwap(), d.checkPIDs(),
		d.checkDataDir(c.DataDir),
		d.checkModule("bridge", "BRIDGE"), d.checkModule("veth", "VETH"), d.checkNFTables(),
		d.checkResolver(), d.checkAddress(), d.checkClock(c.Now, c.Floor),
	)
	for _, p := range c.Probes {
		all = replace(all, p.check())
	}
	return all
}

func (p Probe) check() Check {
	switch {
	case p.Err == nil && p.Detail != "":
		return ok(p.Name, p.Detail)
	case p.Err == nil:
		return ok(p.Name, "works")
	case p.Fatal:
		return Check{p.Name, Fail, oneLine(p.Err.Error()), p.Remedy}
	}
	return Check{p.Name, Warn, oneLine(p.Err.Error()), p.Remedy}
}

func replace(all []Check, c Check) []Check {
	for i := range all {
		if all[i].Name == c.Name {
			all[i] = c
			return all
		}
	}
	return append(all, c)
}

func ok(name, detail string) Check { return Check{Name: name, Verdict: OK, Detail: detail} }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// CmdlineWords are what Raspberry Pi OS needs on the one line of its cmdline.txt.
const CmdlineWords = "cgroup_enable=memory cgroup_memory=1 psi=1"

// cmdlineRemedy says how to get CmdlineWords to the kernel, where effect is the one that counts now.
func (d doctor) cmdlineRemedy(effect string) string {
	running := d.h.line(d.h.cfg.Proc, "cmdline")
	for _, file := range []string{"/boot/firmware/cmdline.txt", "/boot/cmdline.txt"} {
		data, err := os.ReadFile(filepath.Join(d.h.cfg.Root, file))
		// Where the file has moved to /boot/firmware, a note that says so is left in the old place.
		if err == nil && !strings.HasPrefix(string(data), "DO NOT EDIT") {
			return cmdlineAdvice(file, string(data), running, effect)
		}
	}
	if hasWord(running, effect) {
		return "the kernel was started with " + effect + " already, without effect: use a kernel that has it compiled in"
	}
	return "add to the kernel's command line: " + CmdlineWords + " ; then reboot"
}

// cmdlineAdvice reads a Raspberry Pi's cmdline.txt. The usual mistake is to put words on a line of their own, which the
// firmware never reads.
func cmdlineAdvice(file, text, running, effect string) string {
	lines := strings.Split(strings.TrimRight(text, " \t\r\n"), "\n")
	switch {
	case len(lines) > 1:
		return file + " has more than one line and the firmware reads only the first: put everything on ONE line, with " +
			CmdlineWords + " in it, and reboot"
	case !hasWords(lines[0], CmdlineWords):
		return "add to the end of the ONE line of " + file + ": " + CmdlineWords + " ; then reboot"
	case !hasWord(running, effect):
		return file + " has " + CmdlineWords + " already: reboot"
	}
	return "the kernel was started with " + CmdlineWords + " already, without effect: update the kernel and the firmware"
}

func hasWords(line, words string) bool {
	for w := range strings.FieldsSeq(words) {
		if !hasWord(line, w) {
			return false
		}
	}
	return true
}

func hasWord(line, word string) bool {
	for f := range strings.FieldsSeq(line) {
		if f == word {
			return true
		}
	}
	return false
}
