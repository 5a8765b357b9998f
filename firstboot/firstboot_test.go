package firstboot

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@laptop"

// able is a board that can do everything. Its configuration has three keys: low must be below high, which is 5 if it is
// not given, and word takes no space.
func able() Machine {
	return Machine{Keys: []string{"low", "high", "word"},
		Config: func(data []byte) error {
			low, high := 0, 5
			for line := range strings.Lines(string(data)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				switch key {
				case "low":
					if _, err := fmt.Sscan(value, &low); err != nil {
						return err
					}
				case "high":
					if _, err := fmt.Sscan(value, &high); err != nil {
						return err
					}
				case "word":
					if strings.Contains(value, " ") {
						return errors.New("word has a space")
					}
				}
			}
			if low > high {
				return errors.New("low is above high")
			}
			return nil
		},
		Server: func(url string) error {
			if !strings.HasPrefix(url, "https://") {
				return errors.New("not https")
			}
			return nil
		},
		Token: func(token string) error {
			if !strings.HasPrefix(token, "ledge1.") {
				return errors.New("it does not begin with ledge1")
			}
			return nil
		}}
}

// parse gives the mistakes one a line.
func parse(m Machine, text string) (Plan, string) {
	plan, _, list := Parse([]File{{"ledge.yaml", []byte(text)}}, m)
	var lines []string
	for _, one := range list {
		lines = append(lines, strings.TrimPrefix(one.String(), "ledge.yaml, "))
	}
	return plan, strings.Join(lines, "\n")
}

const whole = `# a comment
hostname: Shed-1
network:
  interface: eth0
  address: 192.168.1.20/24
  gateway: 192.168.1.1
  dns: [192.168.1.1, 9.9.9.9]
wifi:
  ssid: Shed
  password: 12345678
  country: DE
ssh:
- ` + key + `
server: https://10.0.0.1:6443
token: ledge1.abc
configuration:
  low: 7   # needs the next
  high: 9
`

var wholePlan = Plan{Hostname: "shed-1",
	Network: Network{Interface: "eth0", Address: netip.MustParsePrefix("192.168.1.20/24"), Gateway: netip.MustParseAddr("192.168.1.1"),
		DNS: []netip.Addr{netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("9.9.9.9")}},
	WiFi:    WiFi{SSID: "Shed", Password: "12345678", Country: "DE"},
	SSHKeys: []string{key}, Servers: []string{"https://10.0.0.1:6443"}, Token: "ledge1.abc",
	Configuration: []byte("  low: 7   # needs the next\n  high: 9\n")}

// TestLaptops: whatever an editor makes of a file, it says the same.
func TestLaptops(t *testing.T) {
	crlf := strings.ReplaceAll(whole, "\n", "\r\n")
	var wide, big []byte
	for _, u := range utf16.Encode([]rune("\ufeff" + crlf)) {
		wide, big = append(wide, byte(u), byte(u>>8)), append(big, byte(u>>8), byte(u))
	}
	for name, data := range map[string][]byte{"as it is": []byte(whole), "CRLF": []byte(crlf),
		"CR":  []byte(strings.ReplaceAll(whole, "\n", "\r")),
		"BOM": []byte("\ufeff" + crlf), "UTF-16": wide, "UTF-16 of another end": big, "document": []byte("---\n" + whole + "...\n")} {
		for _, file := range []string{"ledge.yaml", "LEDGE.YAML", "Ledge.yml", "ledge.yaml.txt", "ledge.txt"} {
			plan, _, mistakes := Parse([]File{{"cmdline.txt", nil}, {file, bytes.Clone(data)}}, able())
			plan.Configuration = bytes.TrimRight(plan.Configuration, "\n")
			want := wholePlan
			want.Configuration = bytes.TrimRight(want.Configuration, "\n")
			if !reflect.DeepEqual(plan, want) || len(mistakes) > 0 {
				t.Errorf("%s, %s: %+v, %v", name, file, plan, mistakes)
			}
		}
	}
	plan, _, mistakes := Parse([]File{{"ledge.yaml.txt", []byte("hostname: b")}, {"ledge.yaml", []byte("hostname: a")}}, able())
	if plan.Hostname != "a" || len(mistakes) != 1 || mistakes[0].File != "ledge.yaml.txt" {
		t.Error("two files:", plan, mistakes)
	}
	if plan, _, mistakes := Parse([]File{{"ledge.yaml", make([]byte, maxFile+1)}}, able()); !reflect.DeepEqual(plan, Plan{}) ||
		len(mistakes) != 1 {
		t.Error("a long file:", plan, mistakes)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "# nothing\n": "", "---\n": "", "\n\n": "",
		"hostnam: a":                        `line 1: there is no key "hostnam". Did you mean hostname?`,
		"Hostname: a":                       `line 1: there is no key "Hostname". Did you mean hostname?`,
		"hostname: a\nhostname: b":          `line 2: hostname stands here again; line 1 counts. Remove one of the two`,
		"hostname:":                         `line 1: hostname has no value. Give it one, or remove the line`,
		"hostname: [a]":                     `line 1: hostname is one value, not a list or a mapping`,
		"hostname: \"garden shed\"":         `line 1: "garden shed" is no name for a board. Did you mean garden-shed?`,
		"hostname: “shed”":                  "line 1: hostname has typographic quotes. Write straight ones (\") or none",
		"hostname: ä":                       `line 1: "ä" is no name for a board. Take letters, digits and dashes, 63 at most`,
		"hostname: &a b":                    `line 1: an anchor (&a) is not taken here. Write the value out`,
		"hostname: !x b":                    `line 1: a tag (!x) is not taken here. Write the value out`,
		"hostname shed":                     `line 1: a line such as "hostname: shed" is expected. Put a colon and a space behind the key`,
		"- hostname: a":                     `line 1: a line such as "hostname: shed" is expected. Put a colon and a space behind the key`,
		"zzz: 1":                            `line 1: there is no key "zzz". There are configuration, hostname, network, serve, server, ssh, token, wifi`,
		"manifests: x":                      `line 1: there is no key "manifests". Put the files into the folder manifests of this partition`,
		"ssid: x":                           `line 1: there is no key "ssid". It belongs below wifi:`,
		"network:\n\taddress: dhcp":         `line 2: this line begins with a tab, which YAML does not allow. Put spaces there instead`,
		"hostname: a\n b: c":                `line 2: this is no YAML, and is left out: mapping values are not allowed in this context. Look for a missing quote, colon or space`,
		"hostname: a\n---\nhostname: b":     `line 3: hostname stands here again; line 1 counts. Remove one of the two`,
		"hostname: a\n---\nnetwork: dhcp":   "",
		"network: dhcp":                     "",
		"network: {address: dhcp}":          "",
		"network: static":                   `line 1: network is either dhcp, or has address:, gateway:, dns: and interface: below it`,
		"network: {adress: 10.0.0.2/24}":    `line 1: there is no key "adress" below network:. Did you mean address?`,
		"network: {address: 10.0.0.2}":      `line 1: "10.0.0.2" is no address of a board; it asks for one by DHCP. Did you mean 10.0.0.2/24?`,
		"network: {address: 10.0.0.0/24}":   `line 1: 10.0.0.0/24 is no address that a board may have; it asks for one by DHCP. Take another one of that network`,
		"network: {address: 10.0.0.255/24}": `line 1: 10.0.0.255/24 is no address that a board may have; it asks for one by DHCP. Take another one of that network`,
		"network: {address: 127.0.0.1/8}":   `line 1: 127.0.0.1/8 is no address that a board may have; it asks for one by DHCP. Take another one of that network`,
		"network: {address: 10.0.0.256/24}": `line 1: "10.0.0.256/24" is no address of a board; it asks for one by DHCP. Write an address and the length of the network's part, as in 192.168.1.20/24, or dhcp`,
		"network: {interface: eth1}":        `line 1: interface has no effect: the board asks on all of them by DHCP, unless there is an address:. Give an address, or remove this line`,
		"network:\n  dns: 9.9.9.9\n  address: dhcp\n  interface: eth1": "line 2: dns comes from DHCP, unless there is an address:. Give an address, or remove this line\n" +
			"line 4: interface has no effect: the board asks on all of them by DHCP, unless there is an address:. Give an address, or remove this line",
		"network:\n  address: 10.0.0.256/24\n  interface: eth1\n  gateway: 10.0.0.1": `line 2: "10.0.0.256/24" is no address of a board; it asks for one by DHCP. Write an address and the length of the network's part, as in 192.168.1.20/24, or dhcp`,
		"network: {gateway: 10.0.0.1}":                                              `line 1: gateway comes from DHCP, unless there is an address:. Give an address, or remove this line`,
		"network:\n  dns: 9.9.9.9":                                                  `line 2: dns comes from DHCP, unless there is an address:. Give an address, or remove this line`,
		"network: {address: 10.0.0.2/24, gateway: 10.0.1.1}":                        `line 1: 10.0.1.1 is not in the network 10.0.0.0/24. Look whether address and gateway are right`,
		"network: {address: 10.0.0.2/24, gateway: 10.0.0.2}":                        `line 1: 10.0.0.2 is the address of the board itself. Write that of the router`,
		"network: {address: 10.0.0.2/24, gateway: 10.0.0.1/24}":                     `line 1: "10.0.0.1/24" is no address of a gateway. Write the address of the router alone, as in 10.0.0.1`,
		"network: {address: 10.0.0.2/24, dns: [fritz.box]}":                         `line 1: "fritz.box" is no address of a name server. Write its address, as in 192.168.1.1`,
		"network: {address: 10.0.0.2/24, dns: \"1.1.1.1 1.1.1.2,1.1.1.3 1.1.1.4\"}": `line 1: more than three name servers are not asked. Remove this one`,
		"network: {address: 10.0.0.2/24, interface: a/b}":                           `line 1: "a/b" is no interface. Write eth0 or the like, or leave it out: then it is the first one`,
		"network: {address: \"fd00::2/64\", gateway: fe80::1}":                      "",
		"wifi: {ssid: a, password: secret1}":                                        `line 1: this is no password of a Wi-Fi; there is no Wi-Fi until that is right. It has 8 to 63 letters, digits and signs`,
		"wifi: {ssid: a, country: Germany}":                                         `line 1: this is no country of a Wi-Fi; there is no Wi-Fi until that is right. Write two letters, as in DE`,
		"wifi:\n  password: secret123":                                              `line 2: wifi has no ssid; there is no Wi-Fi until that is right. Write the name of the Wi-Fi`,
		"wifi: shed":                                                                `line 1: wifi has ssid:, password: and country: below it`,
		"ssh: |\n  # mine\n\n  " + key + "\n  ssh-rsa x\n":                          `line 5: this is no public key of ssh. Take the whole line of the file that ends in .pub; it begins with ssh-ed25519 or the like`,
		"ssh:\n  keys: |2\n\n    " + key + "\n\n    #\n    x":                       `line 7: this is no public key of ssh. Take the whole line of the file that ends in .pub; it begins with ssh-ed25519 or the like`,
		"ssh: " + key + "\nhostname: [":                                             `line 2: this is no YAML, and is left out: did not find expected node content. Look for a missing quote, colon or space`,
		"ssh: {keys: [ssh-ed25519 AAAA]}":                                           `line 1: this is no public key of ssh. Take the whole line of the file that ends in .pub; it begins with ssh-ed25519 or the like`,
		"ssh: |\n  -----BEGIN OPENSSH PRIVATE KEY-----":                             `line 2: this is a private key, which belongs on no card. Make a new pair, and take the line of the file that ends in .pub`,
		"serve: https://10.0.0.1:6443":                                              `line 1: serve has listen: below it. Did you mean server?`,
		"serve: {listen: 6443}":                                                     `line 1: "6443" is no address to answer at. Write one as in 0.0.0.0:6443`,
		"serve: {listen: \"0.0.0.0:6443\"}\nserver: https://a\ntoken: ledge1.a":     `line 1: serve has no effect beside server, which says that the control plane is elsewhere. Remove one of the two`,
		"serve: {listen: \"0.0.0.0:6443\", kubeconfig: please}":                     `line 1: kubeconfig is true or false, not "please". Write true to find a kubeconfig on this partition`,
		"serve:\n  kubeconfig: true":                                                `line 2: kubeconfig has no effect: nobody but the board itself reaches its control plane. Write listen: 0.0.0.0:6443 beside it`,
		"serve:\n  kubeconfig: true\n  listen: 127.0.0.1:6443":                      `line 2: kubeconfig has no effect: nobody but the board itself reaches its control plane. Write listen: 0.0.0.0:6443 beside it`,
		"server: 10.0.0.1\ntoken: ledge1.a":                                         `line 1: "10.0.0.1" is no URL of a control plane. Did you mean https://10.0.0.1:6443?`,
		"server: http://10.0.0.1:80\ntoken: ledge1.a":                               `line 1: "http://10.0.0.1:80" is no URL of a control plane: not https. Write one as in https://10.0.0.1:6443`,
		"server: https://10.0.0.1:6443":                                             `line 1: server has no effect without token; the board is a control plane of its own meanwhile. Put what 'ledge token create' prints there behind token:`,
		"server: https://a\ntoken: secret":                                          `line 2: this is no token to join with: it does not begin with ledge1. Take all of what 'ledge token create' printed there`,
		"token: ledge1.a":                                                           `line 1: token has no effect without server. Say with server: where the control plane is`,
		"configuration: 5":                                                          `line 1: configuration has keys of the configuration file below it. Write each on a line of its own, as in maxPods: 20`,
		"configuration: {low: 1}":                                                   `line 1: configuration has keys of the configuration file below it. Write each on a line of its own, as in maxPods: 20`,
		"configuration:\n  lwo: 1":                                                  `line 2: there is no key "lwo" below configuration:. Did you mean low?`,
		"configuration:\n  low: 7":                                                  `line 2: low is left out: low is above high`,
		"configuration:\n  low: x\n  high: 3":                                       `line 2: low is left out: expected integer`,
		"hostname: \xff\n":                                                          "line 1: this line is not in UTF-8, and is left out. Save the file as UTF-8",
	} {
		if _, got := parse(able(), text); got != want {
			t.Errorf("%q:\n  %s\nwant\n  %s", text, got, want)
		}
	}
}

// TestUnable: a key without an effect on this board is a mistake that says why.
func TestServe(t *testing.T) {
	for text, want := range map[string]Plan{
		"serve: {listen: \"0.0.0.0:6443\"}":                   {Listen: "0.0.0.0:6443"},
		"serve: {listen: 0.0.0.0:6443, kubeconfig: false}":    {Listen: "0.0.0.0:6443"},
		"serve:\n  kubeconfig: true\n  listen: \"[::]:6443\"": {Listen: "[::]:6443", Kubeconfig: true},
	} {
		if got, mistakes := parse(able(), text); mistakes != "" || got.Listen != want.Listen || got.Kubeconfig != want.Kubeconfig {
			t.Errorf("%s: %+v, %s", text, got, mistakes)
		}
	}
}

func TestUnable(t *testing.T) {
	m := able()
	m.NoWiFi, m.NoSSH = "nothing runs it", "there is no login"
	plan, got := parse(m, "wifi:\n  ssid: a\nssh: ["+key+"]\nhostname: a")
	want := "line 2: Wi-Fi has no effect here: nothing runs it. Remove wifi:\nline 3: ssh has no effect here: there is no login. Remove ssh:"
	if got != want || !reflect.DeepEqual(plan, Plan{Hostname: "a"}) {
		t.Errorf("%+v\n%s\nwant\n%s", plan, got, want)
	}
}

// TestOpenWiFi: the board joins a network without a password only where no password is meant, however it is written; and one with
// mistakes not at all.
func TestOpenWiFi(t *testing.T) {
	shed := WiFi{SSID: "Shed", Password: "12345678"}
	for text, want := range map[string]WiFi{
		"wifi: {ssid: Shed}":                                         {SSID: "Shed"},
		"wifi: {ssid: Shed}\nhostnam: a":                             {SSID: "Shed"},
		"wifi: {ssid: Shed, password: 12345678}\nhostnam: a\xff":     shed,
		"wifi: {ssid: Shed, password: 12345678}\npassword: secret12": shed,
		"wifi: {ssid: Shed, country: de}":                            {SSID: "Shed", Country: "DE"},
		"wifi: {ssid: Shed, psk: secret12}":                          {},
		"wifi: {ssid: Shed, Password: secret12}":                     {},
		"wifi: {ssid: Shed, password: }":                             {},
		"wifi: {ssid: Shed, password: \"\"}":                         {},
		"wifi: {ssid: Shed, password: short}":                        {},
		"wifi: {ssid: Shed, password: [secret12]}":                   {},
		"wifi: {ssid: Shed, password: &a secret12}":                  {},
		"wifi: {ssid: Shed, ssid: a}":                                {},
		"wifi: {ssid: Shed, country: x}":                             {},
		"wifi:\n  ssid: Shed\npassword: secret12":                    {},
		"wifi:\n  ssid: Shed\nPasswort: secret12":                    {},
		"wifi:\n  ssid: Shed\npsk: secret12":                         {},
		"wifi:\n  ssid: Shed\n\tpassword: secret12":                  {},
		"wifi:\n  ssid: Shed\n  password: secret\xfc12\n":            {},
	} {
		plan, got := parse(able(), text)
		if plan.WiFi != want {
			t.Errorf("%q: %+v\n%s", text, plan.WiFi, got)
		}
		if want == (WiFi{}) && !strings.Contains(got, "there is no Wi-Fi until that is right") && !strings.Contains(got, "begins with a tab") &&
			!strings.Contains(got, "is not taken here") {
			t.Errorf("%q: nobody is told that there is no Wi-Fi: %s", text, got)
		}
	}
}

// TestSSHKeys: one key or several, in each way that people write them.
func TestSSHKeys(t *testing.T) {
	for text, want := range map[string]int{
		"ssh: " + key: 1, "ssh: [" + key + "]": 1, "ssh:\n- " + key + "\n- " + key: 2, "ssh:\n  keys:\n  - " + key: 1,
		"ssh: |\n  " + key + "\n\n  # hers\n  " + key + "\n": 2, "ssh:\n  " + key + "\n  " + key: 2, "ssh: >\n  " + key + "\n  " + key: 2,
	} {
		plan, got := parse(able(), text)
		if len(plan.SSHKeys) != want || got != "" || plan.SSHKeys[0] != key || plan.SSHKeys[want-1] != key {
			t.Errorf("%q: %q, %s", text, plan.SSHKeys, got)
		}
	}
}

// TestTokenLine: what 'ledge token create' prints is a line, and people paste lines.
func TestTokenLine(t *testing.T) {
	for _, token := range []string{"ledge1.abc", "ledge agent --server https://a --token ledge1.abc", "\"ledge agent  --token ledge1.abc \"",
		"ledge agent --server https://a\n  --token ledge1.abc"} {
		if plan, got := parse(able(), "server: https://a\ntoken: "+token+"\n"); got != "" || plan.Token != "ledge1.abc" {
			t.Errorf("%q: %q, %s", token, plan.Token, got)
		}
	}
}

// TestJoined: what is wrong later does not take a board out of its fleet.
func TestJoined(t *testing.T) {
	m := able()
	m.Joined, m.Servers = true, []string{"https://old"}
	for text, want := range map[string][]string{
		"server: https://new":                   {"https://new"},
		"server: https://new\ntoken: nonsense":  {"https://new"},
		"server: nonsense":                      {"https://old"},
		"server: [https://a, nonsense]\ntoken:": {"https://a"},
		"hostname: a":                           nil,
	} {
		if plan, got := parse(m, text); !reflect.DeepEqual(plan.Servers, want) {
			t.Errorf("%q: %v, want %v; %s", text, plan.Servers, want, got)
		}
	}
}

// TestPartial: a mistake in one place takes nothing else with it, whether it is one of meaning or of YAML.
func TestPartial(t *testing.T) {
	lines := strings.SplitAfter(whole, "\n")
	parts := parts(whole)
	for i, p := range parts[1:] {
		end := len(lines) - 1
		if i+2 < len(parts) {
			end = parts[i+2].line - 1
		}
		for _, bad := range []string{"what: [\n", "\"\n", "x: 'a\n", "a: b: c\n", "@\n", "x:\n\t- a\n", "? [a\n", "%z\n", "{\n"} {
			text := strings.Join(lines[:p.line-1], "") + bad + strings.Join(lines[end:], "")
			plan, got := parse(able(), text)
			want := wholePlan
			switch strings.Split(lines[p.line-1], ":")[0] {
			case "hostname":
				want.Hostname = ""
			case "network":
				want.Network = Network{}
			case "wifi":
				want.WiFi = WiFi{}
			case "ssh":
				want.SSHKeys = nil
			case "server", "token":
				want.Servers, want.Token = nil, ""
			case "configuration":
				want.Configuration = nil
			default:
				t.Fatalf("%q", lines[p.line-1])
			}
			plan.Configuration, want.Configuration = bytes.TrimSpace(plan.Configuration), bytes.TrimSpace(want.Configuration)
			if len(want.Configuration) == 0 {
				plan.Configuration, want.Configuration = nil, nil
			}
			if !reflect.DeepEqual(plan, want) {
				t.Errorf("%q in place of %q:\n%+v, want\n%+v", bad, lines[p.line-1], plan, want)
			}
			if at := fmt.Sprintf("line %d: ", p.line); !strings.Contains(got, at) && !strings.Contains(got, fmt.Sprintf("line %d: ", p.line+1)) {
				t.Errorf("%q in place of %q: not at %s\n%s", bad, lines[p.line-1], at, got)
			}
		}
	}
}

// TestSecrets: no mistake quotes what nobody else may read; the console may be a screen in a hall.
func TestSecrets(t *testing.T) {
	for _, text := range []string{"wifi: {ssid: a, password: hunter2}", "token: hunter2\nserver: https://a",
		"wifi:\n  ssid: a\n  password: [hunter2]",
		"wifi:\n  passwrd: hunter2", "token: hunter2 hunter2"} {
		if _, got := parse(able(), text); got == "" || strings.Contains(got, "hunter2") {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestReport(t *testing.T) {
	if Report(nil) != nil {
		t.Error("a report of nothing")
	}
	list := []string{Mistake{"ledge.yaml", 3, "a", "b"}.String(), Mistake{"images/x.tar", 0, "c", ""}.String()}
	got := string(Report(list))
	if read := Reported([]byte(got)); !slices.Equal(read, list) || len(Reported(nil)) > 0 {
		t.Errorf("read back: %q", read)
	}
	if !strings.HasSuffix(got, "\r\nledge.yaml, line 3: a. b\r\nimages/x.tar: c\r\n") ||
		strings.Contains(strings.ReplaceAll(got, "\r\n", ""), "\n") {
		t.Errorf("%q", got)
	}
}

// TestLines: who looks later finds a key where it stands in the file that was read.
func TestLines(t *testing.T) {
	_, lines, _ := Parse([]File{{"ledge.yaml.txt", []byte("# mine\nhostname: a\nnetwork:\n  address: 10.0.0.2/24\nhostname: b\n")}}, able())
	for key, want := range map[string]string{"hostname": "ledge.yaml.txt, line 2: w", "network": "ledge.yaml.txt, line 3: w",
		"network.address": "ledge.yaml.txt, line 4: w",
		"address":         "ledge.yaml.txt: w", "wifi": "ledge.yaml.txt: w"} {
		if got := lines.Mistake(key, "w", "").String(); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if _, lines, _ = Parse(nil, able()); lines.Mistake("hostname", "w", "").String() != "ledge.yaml: w" {
		t.Error(lines)
	}
}

// TestWhere: what the decoders of manifests complain of has a line.
func TestWhere(t *testing.T) {
	doc := "kind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: a\n    image: b\n  - name: b\n    imagee: c\n"
	for complaint, want := range map[string]string{
		"x: error converting YAML to JSON: yaml: line 3: did not find": "3 x: did not find", "yaml: line 99: did not find": "9 did not find",
		"what": "1 what",
		`error unmarshaling JSON: while decoding JSON: json: unknown field "imagee"`: `9 unknown field "imagee"`,
		`unknown field "spec.containers[1].imagee"`:                                  `9 unknown field "spec.containers[1].imagee"`,
		"spec.containers[1].image: Required value":                                   "8 spec.containers[1].image: Required value",
		"spec.containers[7].image: Required value":                                   "5 spec.containers[7].image: Required value",
		"Pod: metadata.name: Invalid value: \"a\": no spec.hostname":                 "3 Pod: metadata.name: Invalid value: \"a\": no spec.hostname",
	} {
		line, what := Where([]byte(doc), errors.New(complaint))
		if got := fmt.Sprint(line, " ", what); got != want {
			t.Errorf("%q: %s, want %s", complaint, got, want)
		}
	}
	for _, doc := range []string{"", "a: [", "- a"} {
		if line, _ := Where([]byte(doc), errors.New("a.b is bad")); line != 1 {
			t.Errorf("%q: line %d", doc, line)
		}
	}
}

// FuzzParse: nothing that lies on a card stops the board, and mistakes stand in lines that there are.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("\xff\xfea\x00"))
	f.Add([]byte("a: &a [*a]\n<<: *a\n? {\n\t- b\n---\n..."))
	f.Add([]byte("configuration:\n  low: |\n    a\n\n  high: 3\nhostname: [\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, _, mistakes := Parse([]File{{"ledge.yaml", data}}, able())
		lines := 1 + strings.Count(clean(data), "\n")
		for _, m := range mistakes {
			if m.Line < 0 || m.Line > lines || m.What == "" || strings.ContainsAny(m.String(), "\n\r\x1b") {
				t.Errorf("%q of %d lines", m.String(), lines)
			}
		}
		if len(plan.Configuration) > 0 && able().Config(plan.Configuration) != nil {
			t.Errorf("it would not start with %q", plan.Configuration)
		}
		if label(plan.Hostname) != plan.Hostname {
			t.Errorf("hostname %q", plan.Hostname)
		}
		if len(plan.Servers) > 0 && plan.Token == "" {
			t.Error("no token to join with")
		}
	})
}

// example is what stands indented in a text for people, from a line on.
func example(t *testing.T, file, from string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), from)
	if !found {
		t.Fatalf("%s has no ledge.yaml", file)
	}
	var text strings.Builder
	for line := range strings.Lines(rest) {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "    ") {
			break
		}
		text.WriteString(strings.TrimPrefix(line, "    "))
	}
	return text.String()
}

// TestReadme: the example that people copy is right.
func TestReadme(t *testing.T) {
	text := example(t, "../docs/manual/cards.md", "\n    # ledge.yaml\n")
	m := able()
	m.Token, m.Config, m.Keys = nil, nil, []string{"maxPods", "logging"}
	plan, got := parse(m, text)
	if got != "" || plan.Hostname == "" || !plan.Network.Static() || len(plan.Network.DNS) == 0 || plan.WiFi.SSID == "" ||
		len(plan.SSHKeys) != 1 ||
		len(plan.Servers) == 0 || plan.Token == "" || len(plan.Configuration) == 0 {
		t.Errorf("%+v\n%s\n%s", plan, got, text)
	}
}

// TestReadmeOnCard: so is the one on the card, as it is, and with the signs in front of its keys taken away.
func TestReadmeOnCard(t *testing.T) {
	text := example(t, "../packaging/image/read-me.txt", "is not read):\n")
	m := able()
	m.Token = nil
	if plan, got := parse(m, text); got != "" || !reflect.DeepEqual(plan, Plan{Hostname: "shed"}) {
		t.Errorf("%+v\n%s\n%s", plan, got, text)
	}
	with := func(other string) (Plan, string) { // the control plane is here or there
		var lines []string
		for line := range strings.Lines(text) {
			if line = strings.TrimPrefix(line, "#"); !strings.HasPrefix(line, other) {
				lines = append(lines, line)
			}
		}
		return parse(m, strings.Join(lines, ""))
	}
	if plan, got := with("serve:"); got != "" || !plan.Network.Static() || plan.WiFi.Password == "" || len(plan.SSHKeys) != 1 ||
		plan.Token == "" {
		t.Errorf("%+v\n%s\n%s", plan, got, text)
	}
	if plan, got := with("server:"); !plan.Kubeconfig || strings.Count(got, "\n") > 0 { // the token is too much
		t.Errorf("%+v\n%s\n%s", plan, got, text)
	}
}
