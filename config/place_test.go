package config

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ledge/pki"
)

// TestPlace: one file says where the control plane is, for serve and for agent; flags beat it.
func TestPlace(t *testing.T) {
	tok := pki.JoinToken{}.String()
	const at = "server: https://10.0.0.1:6443\n"
	for _, c := range []struct {
		config, token string
		args          []string
		joins         bool
		servers       string
		listen        string
		port          int
		fails         string
	}{
		{args: []string{"serve"}, listen: "127.0.0.1:6443"},
		{config: "listen: 0.0.0.0:7000\n", args: []string{"serve"}, listen: "0.0.0.0:7000"},
		{config: "listen: \"\"\n", args: []string{"serve"}},
		{config: "listen: 0.0.0.0:7000\n", args: []string{"serve", "--listen", "127.0.0.1:1"}, listen: "127.0.0.1:1"},
		{config: at, args: []string{"serve"}, joins: true, servers: "https://10.0.0.1:6443", port: 10250},
		{config: at + "port: 0\n", token: tok, args: []string{"serve"}, joins: true, servers: "https://10.0.0.1:6443"},
		{config: "server: https://a:1, https://b:2\n", token: "ledge agent --server https://x:1 --token " + tok + "\n", args: []string{"serve"},
			joins: true, servers: "https://a:1 https://b:2", port: 10250},
		{config: at + "port: 7\n", args: []string{"agent", "--port", "9"}, joins: true, servers: "https://10.0.0.1:6443", port: 9},
		{config: at, args: []string{"agent", "--server", "https://10.0.0.2:6443", "--token", tok}, joins: true, servers: "https://10.0.0.2:6443",
			port: 10250},
		{config: at, args: []string{"agent", "--token", "ledge agent --server https://x:1 --token " + tok}, joins: true,
			servers: "https://10.0.0.1:6443", port: 10250},
		{config: at, args: []string{"agent", "--kubeconfig", "/x"}, joins: true, port: 10250},
		{config: at, args: []string{"serve", "--listen", "0.0.0.0:6443"},
			fails: "--listen is for a control plane, and the configuration says that this board's is at https://10.0.0.1:6443"},
		{config: at, args: []string{"serve", "--node-eviction-rate", "1"}, fails: "--node-eviction-rate is for a control plane"},
		{config: at + "listen: 0.0.0.0:6443\n", args: []string{"serve"}, fails: "remove one of the two"},
		{config: "listen: x\n", args: []string{"serve"}, fails: "listen"},
		{config: "port: 70000\n", args: []string{"serve"}, fails: "70000 is no port"},
		{config: "server: 10.0.0.1\n", args: []string{"serve"}, fails: "no server such as"},
		{config: at, token: "nonsense", args: []string{"serve"}, fails: "/token: "},
		{args: []string{"agent"}, fails: "server in the configuration"},
	} {
		o, err := placed(t, c.config, c.token, c.args)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q %v: %v, want %q", c.config, c.args, err, c.fails)
			}
			continue
		}
		if err != nil || o.Joins != c.joins || !slices.Equal(o.Servers, strings.Fields(c.servers)) || o.DoorPort != c.port && o.Joins ||
			o.listen != c.listen && !o.Joins {
			t.Errorf("%q %v: %v, joins %v %v, listens %q, port %d", c.config, c.args, err, o.Joins, o.Servers, o.listen, o.DoorPort)
		}
		if (o.TokenFile != "") != (c.token != "") || c.token != "" && o.Token != tok {
			t.Errorf("%q %v: token %q of %q", c.config, c.args, o.Token, o.TokenFile)
		}
	}
}

// placed resolves where the control plane is, of a verb with flags, a configuration and a file with a token.
func placed(t *testing.T, config, token string, args []string) (*Options, error) {
	t.Helper()
	s, err := resolvedAs(t, config, token, args)
	return s.Options, err
}

func resolvedAs(t *testing.T, config, token string, args []string) (Settings, error) {
	t.Helper()
	path := written(t, "failSwapOn: false\n"+config)
	if token != "" {
		must(t, os.WriteFile(filepath.Join(filepath.Dir(path), "token"), []byte(token), 0o600))
	}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	o := map[string]func(*flag.FlagSet) *Options{"serve": ServeFlags, "agent": AgentFlags}[args[0]](f)
	must(t, f.Parse(append(args[1:], "--config", path, "--config-dir", "")))
	return o.Resolve(f)
}

// TestPlaceOfKubernetes: a token of kubeadm's form, in a flag or in the file, joins a Kubernetes; what the board has joined stays until a
// token says otherwise.
func TestPlaceOfKubernetes(t *testing.T) {
	const tok, at = "abcdef.0123456789abcdef", "server: https://10.0.0.1:6443\n"
	hash := "sha256:" + strings.Repeat("0a", 32)
	for _, c := range []struct {
		config, token string
		joined        string // at a Kubernetes
		args          []string
		pins          int
		kubernetes    bool
		fails         string
	}{
		{args: []string{"--server", "https://a:1", "--token", tok, "--ca-hash", hash}, pins: 1, kubernetes: true},
		{args: []string{"--server", "https://a:1", "--token", tok}, kubernetes: true},
		{config: at, token: "kubeadm join 10.0.0.1:6443 --token " + tok + " --discovery-token-ca-cert-hash " + hash + "\n", pins: 1, kubernetes: true},
		{joined: "https://a:1", kubernetes: true},
		{joined: "https://a:1", config: at, kubernetes: true},
		{joined: "https://a:1", token: tok, kubernetes: true},
		{joined: "https://a:1", config: at, token: pki.JoinToken{}.String()},
		{args: []string{"--server", "https://a:1,https://b:1", "--token", tok}, fails: "one address"},
		{args: []string{"--server", "https://a:1", "--token", tok, "--ca-hash", "x"}, fails: "no hash of a CA"},
		{args: []string{"--server", "https://a:1", "--token", tok, "--ca-hash", "sha256:x"}, fails: "no hash of a CA"},
		{args: []string{"--server", "https://a:1", "--ca-hash", hash}, fails: "--ca-hash: it goes with a token"},
		{args: []string{"--token", tok}, fails: "say where the control plane is"},
	} {
		data := t.TempDir()
		if c.joined != "" {
			dir := filepath.Join(data, "kubernetes")
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.WriteFile(filepath.Join(dir, "node.pem"), nil, 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte("clusters: [{cluster: {server: "+c.joined+"}}]"), 0o600))
		}
		s, err := resolvedAs(t, c.config, c.token, append([]string{"agent", "--data-dir", data}, c.args...))
		switch {
		case c.fails != "":
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%v: %v, want %q", c.args, err, c.fails)
			}
		case err != nil || (s.JoinDir != "") != c.kubernetes || (s.Kubeconfig != "") != c.kubernetes || (s.JoinToken != nil) == c.kubernetes:
			t.Errorf("%q %q %v: %v, %q %q", c.config, c.token, c.args, err, s.JoinDir, s.Kubeconfig)
		case s.Ticket != nil && len(s.Ticket.Pins) != c.pins, s.Ticket == nil && c.pins > 0:
			t.Errorf("%q %v: %v", c.token, c.args, s.Ticket)
		}
	}
}
