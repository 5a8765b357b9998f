package main

import (
	"errors"
	"io/fs"
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
		{config: at, args: []string{"agent", "--server", "https://10.0.0.2:6443", "--token", tok}, joins: true, servers: "https://10.0.0.2:6443", port: 10250},
		{config: at, args: []string{"agent", "--token", "ledge agent --server https://x:1 --token " + tok}, joins: true, servers: "https://10.0.0.1:6443", port: 10250},
		{config: at, args: []string{"agent", "--kubeconfig", "/x"}, joins: true, port: 10250},
		{config: at, args: []string{"serve", "--listen", "0.0.0.0:6443"}, fails: "--listen is for a control plane, and the configuration says that this board's is at https://10.0.0.1:6443"},
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
		if err != nil || o.joins != c.joins || !slices.Equal(o.servers, strings.Fields(c.servers)) || o.doorPort != c.port && o.joins || o.listen != c.listen && !o.joins {
			t.Errorf("%q %v: %v, joins %v %v, listens %q, port %d", c.config, c.args, err, o.joins, o.servers, o.listen, o.doorPort)
		}
		if (o.tokenFile != "") != (c.token != "") || c.token != "" && o.token != tok {
			t.Errorf("%q %v: token %q of %q", c.config, c.args, o.token, o.tokenFile)
		}
	}
}

// placed settles where the control plane is, of a verb with flags, a configuration and a file with a token.
func placed(t *testing.T, config, token string, args []string) (*serveOpts, error) {
	t.Helper()
	path := written(t, "failSwapOn: false\n"+config)
	if token != "" {
		must(t, os.WriteFile(filepath.Join(filepath.Dir(path), "token"), []byte(token), 0o600))
	}
	c := &command{}
	all := verbs()
	v := all[slices.IndexFunc(all, func(v verb) bool { return v.name == args[0] })]
	c.prepare(v)
	must(t, c.parse(v, append(args[1:], "--config", path, "--config-dir", "")))
	o := c.opts.(*serveOpts)
	_, err := o.settings(c)
	return o, err
}

// TestWipe: nothing of a token is left, in the file or another name of it.
func TestWipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte("secret"), 0o600))
	must(t, os.Link(path, path+"2"))
	must(t, wipe(path))
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	if data, err := os.ReadFile(path + "2"); err != nil || strings.Trim(string(data), "\x00") != "" || len(data) != 6 {
		t.Errorf("%q %v", data, err)
	}
	if err := wipe(path); err == nil {
		t.Error("there was nothing to wipe")
	}
}
