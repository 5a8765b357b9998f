package bridge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"ledge/network"
)

// firewalls are those of others on this machine, as last looked at: they may drop what is forwarded, or what pods send to the board,
// and not know our bridge. Docker and ufw set the policy of iptables' FORWARD to DROP, ufw that of INPUT too, firewalld ends its
// chains with a reject. An accept in our own table cannot overrule it, and changing another program's rules would start a fight. So
// ledge reports it, with the remedy.
//
// Whether the rules in between let pods through is not computed: a firewall that mentions the bridge by name, or the
// pods' network, is taken to be set up for it.
type firewalls struct {
	bridge, own string
	looked      bool
	unblocked   uint32   // nftables generation at which nothing was dropped; 0: unknown
	input       []string // what drops what pods send to the board
}

// look gives what drops what is forwarded. generation is that of nftables.
func (f *firewalls) look(h *host, cidr netip.Prefix, generation uint32) error {
	var blockers, input []string
	if f.unblocked == 0 || f.unblocked != generation { // else nobody has changed any rule since
		var err error
		if blockers, err = nftBlockers(h, nftables.ChainHookForward, f.bridge, f.own, cidr); err == nil {
			input, err = nftBlockers(h, nftables.ChainHookInput, f.bridge, f.own, cidr)
		}
		if err != nil {
			return fmt.Errorf("look for other firewalls: %w", err)
		}
		if f.unblocked = 0; len(blockers)+len(input) == 0 {
			f.unblocked = generation
		}
	}
	legacy, legacyInput, err := legacyBlocks(f.bridge, cidr)
	if err != nil {
		return fmt.Errorf("look for other firewalls: %w", err)
	}
	if legacy {
		blockers = append(blockers, "iptables (legacy) FORWARD policy DROP")
	}
	if legacyInput {
		input = append(input, "iptables (legacy) INPUT policy DROP")
	}
	f.looked, f.input = true, input
	if len(blockers) == 0 {
		return nil
	}
	return fmt.Errorf("%w to and from pods: %s. Allow %s there, such as: iptables -I FORWARD -i %s -j ACCEPT; "+
		"iptables -I FORWARD -o %s -j ACCEPT (with Docker: the chain DOCKER-USER; with firewalld: add %s to zone trusted)",
		network.ErrBlocked, strings.Join(blockers, "; "), f.bridge, f.bridge, f.bridge, f.bridge)
}

// Answerable implements network.Answerer by what the last look found, and looks if there was none yet.
func (s *Setup) Answerable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.others
	if !f.looked && s.book != nil {
		err := s.onHost(func(h *host) error { return f.look(h, s.book.CIDR(), s.applied) })
		if err != nil && !errors.Is(err, network.ErrBlocked) {
			return err
		}
	}
	if len(f.input) == 0 {
		return nil
	}
	return fmt.Errorf("%w from pods to this board: %s. Allow %s there, such as: iptables -I INPUT -i %s -j ACCEPT (with ufw: "+
		"ufw allow in on %s)", network.ErrBlocked, strings.Join(f.input, "; "), f.bridge, f.bridge, f.bridge)
}

// nftBlockers finds chains of nftables (and of iptables-nft) that drop packets of a hook in the end.
func nftBlockers(h *host, hook *nftables.ChainHook, bridge, own string, cidr netip.Prefix) ([]string, error) {
	c, err := h.nft.Get()
	if err != nil {
		return nil, err
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, ch := range chains {
		family := ch.Table.Family
		if ch.Type != nftables.ChainTypeFilter || ch.Hooknum == nil || *ch.Hooknum != *hook ||
			family != nftables.TableFamilyIPv4 && family != nftables.TableFamilyINet ||
			strings.HasPrefix(ch.Table.Name, tablePrefix) || ch.Table.Name == own {
			continue
		}
		why := ""
		if ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop {
			why = "policy drop"
		}
		rules, err := c.GetRules(ch.Table, ch)
		if err == nil && len(rules) > 0 && dropsAll(rules[len(rules)-1]) {
			why = "drops what it does not know"
		}
		if why == "" || mentioned(c, chains, ch.Table, bridge, cidr) {
			continue
		}
		out = append(out, fmt.Sprintf("nftables table %s, chain %s: %s", ch.Table.Name, ch.Name, why))
	}
	return out, nil
}

// dropsAll is a rule without conditions that drops or rejects.
func dropsAll(r *nftables.Rule) bool {
	drops := false
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject:
			drops = true
		case *expr.Verdict:
			drops = e.Kind == expr.VerdictDrop
		default:
			return false
		}
	}
	return drops
}

// mentioned tells whether any rule of a table compares with the bridge's name or the pods' network.
func mentioned(c *nftables.Conn, chains []*nftables.Chain, t *nftables.Table, bridge string, cidr netip.Prefix) bool {
	for _, ch := range chains {
		if ch.Table.Name != t.Name || ch.Table.Family != t.Family {
			continue
		}
		rules, err := c.GetRules(t, ch)
		if err != nil {
			return true // it cannot be judged: no false alarm
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if cmp, ok := e.(*expr.Cmp); ok && means(cmp.Data, bridge, cidr) {
					return true
				}
			}
		}
	}
	return false
}

// means tells whether a value that is compared with is the bridge's name (whole, or the begin of it with iptables'
// "ledge+") or the pods' network (whole, or the bytes that count).
func means(data []byte, bridge string, cidr netip.Prefix) bool {
	if name := string(bytes.TrimRight(data, "\x00")); name == bridge {
		return true
	} else if len(name) >= 3 && name != bridge && len(name) == len(data) && strings.HasPrefix(bridge, name) {
		return true
	}
	ip := cidr.Addr().As4()
	return len(data) >= 2 && len(data) <= 4 && len(data) >= cidr.Bits()/8 && bytes.Equal(data, ip[:len(data)])
}

// legacyBlocks asks the older iptables, which nftables cannot see, for the policies of FORWARD and INPUT. Reading a table makes
// the kernel load its module, so only a loaded table is read.
func legacyBlocks(bridge string, cidr netip.Prefix) (forward, input bool, err error) {
	names, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	if err != nil || !bytes.Contains(append([]byte("\n"), names...), []byte("\nfilter\n")) {
		return false, false, err
	}
	t, err := readIPTables("filter")
	if err != nil {
		return false, false, err
	}
	known := t.mentions(bridge, cidr)
	return t.drops(hookForward) && !known, t.drops(hookInput) && !known, nil
}

// ipTable is a table of legacy iptables as the kernel gives it (linux/netfilter_ipv4/ip_tables.h).
type ipTable struct {
	underflow [5]uint32 // where each hook's policy stands
	entries   []byte
}

const (
	iptSoGetInfo    = 64
	iptSoGetEntries = 65
	iptInfoSize     = 32 + 4 + 5*4 + 5*4 + 4 + 4
	iptEntrySize    = 112
	iptTargetHeader = 32
)

func readIPTables(name string) (ipTable, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return ipTable{}, fmt.Errorf("open raw socket: %w", err)
	}
	defer unix.Close(fd)
	info := make([]byte, iptInfoSize)
	copy(info, name)
	if err := getsockopt(fd, iptSoGetInfo, info); err != nil {
		return ipTable{}, fmt.Errorf("read iptables table %s: %w", name, err)
	}
	var t ipTable
	for i := range t.underflow {
		t.underflow[i] = binary.NativeEndian.Uint32(info[32+4+20+4*i:])
	}
	size := binary.NativeEndian.Uint32(info[iptInfoSize-4:])
	const header = 40 // name, size, padding before 8-byte alignment
	buf := make([]byte, header+int(size))
	copy(buf, name)
	binary.NativeEndian.PutUint32(buf[32:], size)
	if err := getsockopt(fd, iptSoGetEntries, buf); err != nil {
		return ipTable{}, fmt.Errorf("read iptables table %s: %w", name, err)
	}
	t.entries = buf[header:]
	return t, nil
}

func getsockopt(fd, option int, buf []byte) error {
	size := uint32(len(buf))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return e
	}
	return nil
}

// NF_INET_LOCAL_IN and NF_INET_FORWARD.
const hookInput, hookForward = 1, 2

// drops reads the verdict of the entry that is a hook's policy.
func (t ipTable) drops(hook int) bool {
	const dropVerdict = -1 // -NF_DROP - 1
	at := int(t.underflow[hook]) + iptEntrySize + iptTargetHeader
	if at+4 > len(t.entries) {
		return false
	}
	return int32(binary.NativeEndian.Uint32(t.entries[at:])) == dropVerdict
}

// mentions tells whether any entry is about the bridge or the pods' network.
func (t ipTable) mentions(bridge string, cidr netip.Prefix) bool {
	ip := cidr.Addr().As4()
	for at := 0; at+iptEntrySize <= len(t.entries); {
		e := t.entries[at:]
		if bytes.Equal(e[0:4], ip[:]) || bytes.Equal(e[4:8], ip[:]) || ifaceMatches(e[16:32], e[48:64], bridge) ||
			ifaceMatches(e[32:48], e[64:80], bridge) {
			return true
		}
		next := int(binary.NativeEndian.Uint16(e[90:]))
		if next < iptEntrySize {
			return false
		}
		at += next
	}
	return false
}

// ifaceMatches compares an interface name under iptables' mask; an empty mask is any interface, which says nothing
// about ours.
func ifaceMatches(name, mask []byte, bridge string) bool {
	want, any := ifname(bridge), true
	for i := range mask {
		any = any && mask[i] == 0
		if (name[i]^want[i])&mask[i] != 0 {
			return false
		}
	}
	return !any
}
