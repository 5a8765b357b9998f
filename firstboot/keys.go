package firstboot

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// One method for each key.

func (r *reader) hostname(n *yaml.Node) {
	name, ok := r.text(n, "hostname")
	if !ok {
		return
	}
	name = strings.ToLower(name)
	if plain := label(name); plain != name {
		remedy := "Take letters, digits and dashes, 63 at most"
		if plain != "" {
			remedy = fmt.Sprintf("Did you mean %s?", plain)
		}
		r.mistake(n.Line, fmt.Sprintf("%q is no name for a board", brief(name)), remedy)
		return
	}
	r.plan.Hostname = name
}

// label makes a valid host name of a text: separators become hyphens, other signs go. A valid one stays as it is.
func label(text string) string {
	text = strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			return c
		case strings.ContainsRune("-_. ", c):
			return '-'
		}
		return -1
	}, text)
	return strings.Trim(text[:min(len(text), 63)], "-")
}

func (r *reader) network(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.EqualFold(n.Value, "dhcp") {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.mistake(n.Line, "network is either dhcp, or has address:, gateway:, dns: and interface: below it", "")
		return
	}
	var net Network
	var on, gateway, dns *yaml.Node
	before := len(r.mistakes)
	r.fields("network", r.pairs(n), map[string]func(*yaml.Node){
		"interface": func(n *yaml.Node) { on, net.Interface = n, r.interfaceName(n) },
		"address":   func(n *yaml.Node) { net.Address = r.address(n) },
		"gateway":   func(n *yaml.Node) { gateway = n },
		"dns":       func(n *yaml.Node) { dns = n },
	})
	if net.Static() {
		net.Gateway, net.DNS = r.gateway(gateway, net.Address), r.dns(dns)
		r.plan.Network = net
		return
	}
	if len(r.mistakes) > before { // it has been said why there is no address
		return
	}
	if on != nil {
		r.mistake(on.Line, "interface has no effect: the board asks on all of them by DHCP, unless there is an address:",
			"Give an address, or remove this line")
	}
	if gateway != nil {
		r.mistake(gateway.Line, "gateway comes from DHCP, unless there is an address:", "Give an address, or remove this line")
	}
	if dns != nil {
		r.mistake(dns.Line, "dns comes from DHCP, unless there is an address:", "Give an address, or remove this line")
	}
}

func (r *reader) interfaceName(n *yaml.Node) string {
	name, ok := r.text(n, "interface")
	if ok && (len(name) > 15 || strings.ContainsAny(name, "/: ") || name == "." || name == ".." || name == "lo") {
		r.mistake(n.Line, fmt.Sprintf("%q is no interface", brief(name)), "Write eth0 or the like, or leave it out: then it is the first one")
		return ""
	}
	return name
}

// address reads an address with its prefix. It is zero for DHCP, and also after a mistake.
func (r *reader) address(n *yaml.Node) netip.Prefix {
	text, ok := r.text(n, "address")
	if !ok || strings.EqualFold(text, "dhcp") {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		remedy := "Write an address and the length of the network's part, as in 192.168.1.20/24, or dhcp"
		if a, err := netip.ParseAddr(text); err == nil {
			length := 24
			if a.Is6() {
				length = 64
			}
			remedy = fmt.Sprintf("Did you mean %s/%d?", a, length)
		}
		r.mistake(n.Line, fmt.Sprintf("%q is no address of a board; it asks for one by DHCP", brief(text)), remedy)
		return netip.Prefix{}
	}
	if a := p.Addr(); !a.IsGlobalUnicast() || a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == last(p)) {
		r.mistake(n.Line, text+" is no address that a board may have; it asks for one by DHCP", "Take another one of that network")
		return netip.Prefix{}
	}
	return p
}

// last is the broadcast address of an IPv4 network.
func last(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(a[:]) | uint32(1<<(32-p.Bits())-1)
	binary.BigEndian.PutUint32(a[:], n)
	return netip.AddrFrom4(a)
}

func (r *reader) gateway(n *yaml.Node, of netip.Prefix) netip.Addr {
	if n == nil {
		return netip.Addr{}
	}
	text, ok := r.text(n, "gateway")
	if !ok {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		r.mistake(n.Line, fmt.Sprintf("%q is no address of a gateway", brief(text)),
			"Write the address of the router alone, as in "+of.Masked().Addr().Next().String())
	case a == of.Addr():
		r.mistake(n.Line, text+" is the address of the board itself", "Write that of the router")
	case !of.Contains(a) && !(a.Is6() && of.Addr().Is6() && a.IsLinkLocalUnicast()):
		r.mistake(n.Line, fmt.Sprintf("%s is not in the network %s", text, of.Masked()), "Look whether address and gateway are right")
	default:
		return a
	}
	return netip.Addr{}
}

func (r *reader) dns(n *yaml.Node) (out []netip.Addr) {
	if n == nil {
		return nil
	}
	for _, f := range r.texts(n, "dns", ", ") {
		a, err := netip.ParseAddr(f.key)
		switch {
		case err != nil:
			r.mistake(f.line, fmt.Sprintf("%q is no address of a name server", brief(f.key)), "Write its address, as in 192.168.1.1")
		case len(out) == 3: // what resolvers read
			r.mistake(f.line, "more than three name servers are not asked", "Remove this one")
		default:
			out = append(out, a)
		}
	}
	return out
}

func (r *reader) wifi(n *yaml.Node) {
	if r.machine.NoWiFi != "" {
		r.mistake(n.Line, "Wi-Fi has no effect here: "+r.machine.NoWiFi, "Remove wifi:")
		return
	}
	if n.Kind != yaml.MappingNode {
		r.mistake(n.Line, "wifi has ssid:, password: and country: below it", "")
		return
	}
	var w WiFi
	check := func(key string, to *string, valid func(string) bool, remedy string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			text, ok := r.text(n, key)
			if key == "country" {
				text = strings.ToUpper(text)
			}
			if ok && !valid(text) {
				r.mistake(n.Line, "this is no "+key+" of a Wi-Fi", remedy) // it may be a secret: not quoted
			}
			*to = text
		}
	}
	before := len(r.mistakes)
	r.fields("wifi", r.pairs(n), map[string]func(*yaml.Node){
		"ssid":     check("ssid", &w.SSID, func(s string) bool { return len(s) <= 32 }, "It has 32 bytes at most"),
		"password": check("password", &w.Password, isWPA, "It has 8 to 63 letters, digits and signs"),
		"country":  check("country", &w.Country, isCountry, "Write two letters, as in DE"),
	})
	if w.SSID == "" && len(r.mistakes) == before {
		r.mistake(n.Line, "wifi has no ssid", "Write the name of the Wi-Fi")
	}
	// The mistake may be in the password: without it the board would join an open network of that name.
	for i := range r.mistakes[before:] {
		r.mistakes[before+i].What += "; there is no Wi-Fi until that is right"
	}
	if len(r.mistakes) == before {
		r.plan.WiFi = w
	}
}

// openWiFi drops a network without a password if the file seems to mean one: at a wrong place, or in a part that could not be read.
func (r *reader) openWiFi(top []field) {
	if r.plan.WiFi.SSID == "" || r.plan.WiFi.Password != "" {
		return
	}
	line := r.lost
	for _, f := range top {
		if key := strings.ToLower(f.key); line == 0 && (key == "psk" || distance(key, "password") <= 3) {
			line = f.line
		}
	}
	if line > 0 {
		r.mistake(line, "this may be the password of the Wi-Fi, which has none; there is no Wi-Fi until that is right",
			"Write password: below wifi:")
		r.plan.WiFi = WiFi{}
	}
}

func isWPA(s string) bool {
	return len(s) >= 8 && len(s) <= 63 && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) ||
		len(s) == 64 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

func isCountry(s string) bool {
	return len(s) == 2 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func (r *reader) ssh(n *yaml.Node) {
	if r.machine.NoSSH != "" {
		r.mistake(n.Line, "ssh has no effect here: "+r.machine.NoSSH, "Remove ssh:")
		return
	}
	list := n
	if n.Kind == yaml.MappingNode {
		list = nil
		r.fields("ssh", r.pairs(n), map[string]func(*yaml.Node){"keys": func(n *yaml.Node) { list = n }})
	}
	if list == nil {
		return
	}
	if list.Kind == yaml.ScalarNode { // several lines, as out of a file
		first := list.Line
		if list.Style&yaml.LiteralStyle != 0 { // which begins below its sign
			first++
		}
		for i, line := range strings.Split(list.Value, "\n") {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				r.sshKey(line, first+i)
			}
		}
		return
	}
	for _, f := range r.texts(list, "a key", "") {
		r.sshKey(f.key, f.line)
	}
}

var sshTypes = []string{"ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
	"sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"}

func (r *reader) sshKey(text string, line int) {
	words := strings.Fields(text)
	// YAML makes one line of several that stand below ssh: without a |.
	if i := 2 + slices.IndexFunc(words[min(2, len(words)):], func(w string) bool { return slices.Contains(sshTypes, w) }); i >= 2 {
		r.sshKey(strings.Join(words[:i], " "), line)
		r.sshKey(strings.Join(words[i:], " "), line)
		return
	}
	if strings.Contains(text, "PRIVATE KEY") {
		r.mistake(line, "this is a private key, which belongs on no card", "Make a new pair, and take the line of the file that ends in .pub")
		return
	}
	if len(words) < 2 || !slices.Contains(sshTypes, words[0]) || !isSSHKey(words[0], words[1]) {
		r.mistake(line, "this is no public key of ssh",
			"Take the whole line of the file that ends in .pub; it begins with ssh-ed25519 or the like")
		return
	}
	r.plan.SSHKeys = append(r.plan.SSHKeys, strings.Join(words, " "))
}

// isSSHKey checks a public key: the type before it must be the one that its bytes begin with.
func isSSHKey(kind, text string) bool {
	data, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(data) > 4+len(kind)+4 && int(binary.BigEndian.Uint32(data)) == len(kind) && string(data[4:4+len(kind)]) == kind
}

// fleet is what says whether the control plane is here.
type fleet struct{ serve, server, token *yaml.Node }

// role decides whether the board serves or joins. A board that cannot join because of a mistake serves until the mistake is mended, and
// says so. A board that has joined already stays joined.
func (r *reader) role(f fleet) {
	if f.server == nil {
		if f.token != nil {
			r.mistake(f.token.Line, "token has no effect without server", "Say with server: where the control plane is")
		}
		r.serve(f.serve)
		return
	}
	if f.serve != nil {
		r.mistake(f.serve.Line, "serve has no effect beside server, which says that the control plane is elsewhere", "Remove one of the two")
	}
	servers, token := r.servers(f.server), r.token(f.token)
	if len(servers) == 0 && r.machine.Joined {
		servers = r.machine.Servers
	}
	switch {
	case len(servers) == 0: // it has been said why
	case token == "" && f.token == nil && !r.machine.Joined:
		r.mistake(f.server.Line, "server has no effect without token; the board is a control plane of its own meanwhile",
			"Put what 'ledge token create' prints there behind token:")
	case token == "" && !r.machine.Joined: // likewise
	default:
		r.plan.Servers, r.plan.Token = servers, token
	}
}

func (r *reader) servers(n *yaml.Node) (out []string) {
	for _, f := range r.texts(n, "server", ", ") {
		err := error(nil)
		if r.machine.Server != nil {
			err = r.machine.Server(f.key)
		}
		switch {
		case !strings.Contains(f.key, "://"):
			host := f.key
			if _, _, err := net.SplitHostPort(host); err != nil {
				host = net.JoinHostPort(strings.Trim(host, "[]"), "6443")
			}
			r.mistake(f.line, fmt.Sprintf("%q is no URL of a control plane", brief(f.key)), "Did you mean https://"+brief(host)+"?")
		case err != nil:
			r.mistake(f.line, fmt.Sprintf("%q is no URL of a control plane: %s", brief(f.key), brief(err.Error())),
				"Write one as in https://10.0.0.1:6443")
		default:
			out = append(out, f.key)
		}
	}
	return out
}

func (r *reader) token(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	text, ok := r.text(n, "token")
	if ok { // all of the line that 'ledge token create' prints may stand there
		words := strings.Fields(text)
		text = words[len(words)-1]
	}
	if ok && r.machine.Token != nil {
		if err := r.machine.Token(text); err != nil {
			r.mistake(n.Line, "this is no token to join with: "+err.Error(), "Take all of what 'ledge token create' printed there")
			return ""
		}
	}
	return text
}

func (r *reader) serve(n *yaml.Node) {
	if n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		remedy := "Write below it listen: 0.0.0.0:6443, or remove it: a board without server: is a control plane"
		if strings.Contains(n.Value, "://") {
			remedy = "Did you mean server?"
		}
		r.mistake(n.Line, "serve has listen: below it", remedy)
		return
	}
	var kubeconfig *yaml.Node
	r.fields("serve", r.pairs(n), map[string]func(*yaml.Node){"listen": r.listen, "kubeconfig": func(n *yaml.Node) { kubeconfig = n }})
	if kubeconfig == nil {
		return
	}
	switch text, ok := r.text(kubeconfig, "kubeconfig"); {
	case !ok || text == "false":
	case text != "true":
		r.mistake(kubeconfig.Line, fmt.Sprintf("kubeconfig is true or false, not %q", brief(text)),
			"Write true to find a kubeconfig on this partition")
	case r.plan.Listen == "" || isLoopback(r.plan.Listen):
		r.mistake(kubeconfig.Line, "kubeconfig has no effect: nobody but the board itself reaches its control plane",
			"Write listen: 0.0.0.0:6443 beside it")
	default:
		r.plan.Kubeconfig = true
	}
}

func (r *reader) listen(n *yaml.Node) {
	text, ok := r.text(n, "listen")
	if !ok {
		return
	}
	host, port, err := net.SplitHostPort(text)
	if _, aerr := netip.ParseAddr(host); err == nil && host != "" {
		err = aerr
	}
	if number, perr := strconv.Atoi(port); err != nil || perr != nil || number < 1 || number > 65535 {
		r.mistake(n.Line, fmt.Sprintf("%q is no address to answer at", brief(text)), "Write one as in 0.0.0.0:6443")
		return
	}
	r.plan.Listen = text
}

func isLoopback(listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// configuration takes all keys if the board can start with them. If not, it takes them one by one, and leaves out those with which
// the board cannot start.
func (r *reader) configuration(n *yaml.Node) {
	if n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle != 0 {
		r.mistake(n.Line, "configuration has keys of the configuration file below it", "Write each on a line of its own, as in maxPods: 20")
		return
	}
	var left, taken []setting
	known := map[string]func(*yaml.Node){}
	for _, key := range r.machine.Keys {
		known[key] = func(v *yaml.Node) {
			i, end := slices.Index(n.Content, v), len(r.lines)+1
			if i+1 < len(n.Content) {
				end = n.Content[i+1].Line
			}
			line := n.Content[i-1].Line
			left = append(left, setting{key: key, line: line, text: r.block(line, end)})
		}
	}
	r.fields("configuration", r.pairs(n), known)
	if r.try(left) == nil {
		taken, left = left, nil
	}
	// A key may need another that stands below it: try again until no more are taken.
	for more := true; more && len(left) > 0; {
		more = false
		left = slices.DeleteFunc(left, func(s setting) bool {
			good := r.try(append(slices.Clone(taken), s)) == nil
			if good {
				taken, more = append(taken, s), true
			}
			return good
		})
	}
	for _, s := range left {
		why := simply(r.try(append(slices.Clone(taken), s)).Error())
		r.mistake(s.line, s.key+" is left out: "+short(strings.TrimPrefix(why, s.key+": "), 200), "")
	}
	r.plan.Configuration = together(taken)
}

// setting is a key of the configuration with its lines, as they stand in the file: what a value means is not ours to say.
type setting struct {
	key  string
	line int
	text string
}

// block is the lines from one to another, or to the next that begins at the margin.
func (r *reader) block(from, to int) string {
	out := r.lines[from-1 : from]
	for _, line := range r.lines[from : to-1] {
		if line != "" && !strings.ContainsAny(line[:1], " \t#") {
			break
		}
		out = append(out[:len(out):len(out)], line)
	}
	return strings.Join(out, "\n") + "\n"
}

func (r *reader) try(list []setting) error {
	if r.machine.Config == nil || len(list) == 0 {
		return nil
	}
	return r.machine.Config(together(list))
}

func together(list []setting) (out []byte) {
	for _, s := range list {
		out = append(out, s.text...)
	}
	return out
}
