package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

var built = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// clock is a settable time.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func open(t *testing.T, dir string, c *clock) *Authority {
	t.Helper()
	a, err := Open(Config{Dir: dir, Floor: built, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var loopback = []net.IP{net.IPv4(127, 0, 0, 1)}

func TestFilesAreClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a := open(t, dir, &clock{built})
	if _, err := a.Server([]string{"board"}, loopback); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "admin.conf")
	if err := a.WriteKubeconfig(kubeconfig, "https://127.0.0.1:6443"); err != nil {
		t.Fatal(err)
	}
	// Someone opened a key up by hand; the next start closes it.
	if err := os.Chmod(filepath.Join(dir, caFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".ca.pem.tmp123"), []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, &clock{built})

	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v, want 0700", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		info, err := e.Info()
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v %v, want 0600", e.Name(), info.Mode(), err)
		}
	}
	want := "admin.conf ca.pem ca.pem.copy client-ledge-admin.pem server.pem"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestServerIsReissued(t *testing.T) {
	dir := t.TempDir()
	c := &clock{built}
	a := open(t, dir, c)
	server := func(a *Authority, names ...string) *x509.Certificate {
		t.Helper()
		cert, err := a.Server(names, loopback)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf
	}
	first := server(a, "board", "localhost")
	same := func(what string, got *x509.Certificate, want bool) {
		t.Helper()
		if got.Equal(first) != want {
			t.Errorf("%s: same certificate %v, want %v", what, !want, want)
		}
	}
	same("asked again", server(a, "board", "localhost"), true)
	same("other order", server(a, "localhost", "board", "board"), true)
	same("after a restart", server(open(t, dir, c), "localhost", "board"), true)

	c.t = built.Add(serverLife / 2)
	same("half way", server(a, "board", "localhost"), true)
	c.t = built.Add(serverLife * 3 / 4)
	renewed := server(a, "board", "localhost")
	same("a quarter left", renewed, false)
	first = renewed
	c.t = renewed.NotAfter.Add(time.Hour)
	renewed = server(open(t, dir, c), "board", "localhost")
	same("expired while the board was off", renewed, false)
	if !renewed.NotAfter.After(c.t) {
		t.Errorf("the new certificate ended at %s, before %s", renewed.NotAfter, c.t)
	}
	first = renewed
	changed := server(a, "board", "other")
	same("names changed", changed, false)
	if got := strings.Join(changed.DNSNames, ","); got != "board,other" {
		t.Errorf("names %q", got)
	}
	first = changed
	if err := os.WriteFile(filepath.Join(dir, serverFile), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	same("damaged on disk", server(open(t, dir, c), "board", "other"), false)
}

func TestEndOfTheCA(t *testing.T) {
	c := &clock{built}
	a := open(t, t.TempDir(), c)
	c.t = a.ca.Leaf.NotAfter.Add(-24 * time.Hour)
	one, err := a.Server(nil, loopback)
	if err != nil {
		t.Fatal(err)
	}
	two, err := a.Server(nil, loopback)
	if err != nil || !two.Leaf.Equal(one.Leaf) {
		t.Errorf("the last certificate this CA can give is made again at every handshake (%v)", err)
	}
	c.t = a.ca.Leaf.NotAfter.Add(time.Hour)
	if _, err := a.Server(nil, loopback); err == nil || !strings.Contains(err.Error(), "the CA ended on") {
		t.Errorf("after the CA's end: %v", err)
	}
}

func TestCASurvivesDamage(t *testing.T) {
	torn := func(path string) error { return os.Truncate(path, 0) }
	flipped := func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		i := strings.LastIndex(string(data), "-----END CERT") - 10
		if data[i] = 'A'; data[i+1] == 'A' {
			data[i] = 'B'
		}
		data[i+1] = 'Q'
		return os.WriteFile(path, data, 0o600)
	}
	for name, damage := range map[string]func(string) error{"torn": torn, "flipped": flipped, "gone": os.Remove} {
		for _, file := range []string{caFile, caCopy} {
			t.Run(name+" "+file, func(t *testing.T) {
				dir := t.TempDir()
				c := &clock{built}
				before := open(t, dir, c).CA()
				if err := damage(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
				if after := open(t, dir, c).CA(); string(after) != string(before) {
					t.Error("the CA changed")
				}
				p, err := readPair(filepath.Join(dir, file))
				if err != nil || p.checkCA() != nil || string(encodeCert(p.cert.Certificate[0])) != string(before) {
					t.Errorf("%s was not mended: %v", file, err)
				}
			})
		}
	}
	t.Run("both", func(t *testing.T) {
		dir := t.TempDir()
		open(t, dir, &clock{built})
		for _, file := range []string{caFile, caCopy} {
			if err := torn(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(Config{Dir: dir, Floor: built}); err == nil || !strings.Contains(err.Error(), "no usable copy") {
			t.Errorf("two damaged copies: %v, want an error and no new CA", err)
		}
	})
}

// handshake connects a client to a server of authority a; the error is the client's, after a byte.
func handshake(t *testing.T, a *Authority, client *tls.Config) error {
	t.Helper()
	conf, err := a.ServerTLS([]string{"board"}, loopback)
	if err != nil {
		t.Fatal(err)
	}
	_, err = connect(t, conf, client)
	return err
}

// connect lets a client connect to a server and says what it found.
func connect(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Write([]byte{1})
	}()
	conn, err := (&tls.Dialer{Config: client}).DialContext(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	// In TLS 1.3 the client learns of a refused certificate only when it reads.
	_, err = io.ReadFull(conn, make([]byte, 1))
	return conn.(*tls.Conn).ConnectionState(), err
}

func TestHandshake(t *testing.T) {
	boot1970 := &clock{time.Unix(60, 0)}
	a := open(t, t.TempDir(), boot1970) // a board without a clock
	admin, err := a.Client("admin", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
	server, err := a.Server([]string{"board"}, loopback)
	if err != nil {
		t.Fatal(err)
	}
	other, err := open(t, t.TempDir(), &clock{built}).Client("admin", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
	at := func(when time.Time) func() time.Time { return func() time.Time { return when } }
	years := built.AddDate(5, 0, 0)
	for _, tc := range []struct {
		name  string
		conf  *tls.Config
		wants bool
	}{
		{"good", &tls.Config{Certificates: []tls.Certificate{admin}, Time: at(built)}, true},
		{"client also at the floor", &tls.Config{Certificates: []tls.Certificate{admin}, Time: a.Now}, true},
		{"client with the right clock, years later", &tls.Config{Certificates: []tls.Certificate{admin}, Time: at(years)}, true},
		{"TLS 1.2", &tls.Config{Certificates: []tls.Certificate{admin}, Time: at(built), MaxVersion: tls.VersionTLS12}, true},
		{"TLS 1.1", &tls.Config{Certificates: []tls.Certificate{admin}, Time: at(built), MinVersion: tls.VersionTLS10,
			MaxVersion: tls.VersionTLS11}, false},
		{"no certificate", &tls.Config{Time: at(built)}, false},
		{"another CA's certificate", &tls.Config{Certificates: []tls.Certificate{other}, Time: at(built)}, false},
		{"the server's own certificate", &tls.Config{Certificates: []tls.Certificate{server}, Time: at(built)}, false},
		{"a name the server does not have", &tls.Config{Certificates: []tls.Certificate{admin}, Time: at(built), ServerName: "stuffed.example"},
			false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.conf.RootCAs = a.Pool()
			if err := handshake(t, a, tc.conf); (err == nil) != tc.wants {
				t.Errorf("handshake: %v, want success %v", err, tc.wants)
			}
		})
	}
	// Asking for names in handshakes must not have changed the certificate (CVE-2023-32187).
	again, err := a.Server([]string{"board"}, loopback)
	if err != nil || !again.Leaf.Equal(server.Leaf) {
		t.Errorf("the server's certificate changed: %v", err)
	}
}

// TestExpiredServer: a certificate that has ended is replaced, whether the board was off meanwhile, or has run for so long, or
// has only now been told what day it is; and a client whose clock is right is let in.
func TestExpiredServer(t *testing.T) {
	for _, tc := range []struct {
		name    string
		from    time.Time // when the certificate was made
		restart bool
	}{
		{"at boot", built, true},
		{"at run time", built, false},
		{"the clock is set at last", time.Unix(60, 0), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, c := t.TempDir(), &clock{tc.from}
			a := open(t, dir, c)
			conf, err := a.ServerTLS([]string{"board"}, loopback)
			if err != nil {
				t.Fatal(err)
			}
			first, err := a.Server([]string{"board"}, loopback)
			if err != nil {
				t.Fatal(err)
			}
			c.t = first.Leaf.NotAfter.Add(time.Hour)
			if tc.restart {
				a = open(t, dir, c)
				if conf, err = a.ServerTLS([]string{"board"}, loopback); err != nil {
					t.Fatal(err)
				}
			}
			admin, err := a.Client("admin", []string{"system:masters"})
			if err != nil {
				t.Fatal(err)
			}
			state, err := connect(t, conf, &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{admin}, Time: c.now})
			if err != nil {
				t.Fatal(err)
			}
			if leaf := state.PeerCertificates[0]; !leaf.NotAfter.After(c.t) || leaf.Equal(first.Leaf) {
				t.Errorf("the certificate shown ends on %s, it is %s", leaf.NotAfter, c.t)
			}
			cert, err := conf.GetCertificate(&tls.ClientHelloInfo{ServerName: "stuffed.example"})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(cert.Leaf.DNSNames, ","); got != "board" {
				t.Errorf("names %q, want board only", got)
			}
		})
	}
}

// TestRename: an address that comes while the server listens is in the certificate of the next handshake; one that goes
// alone, or is not there yet after a start, makes none.
func TestRename(t *testing.T) {
	dir, c := t.TempDir(), &clock{built}
	a := open(t, dir, c)
	conf, err := a.ServerTLS([]string{"board"}, loopback)
	if err != nil {
		t.Fatal(err)
	}
	shown := func() *x509.Certificate {
		t.Helper()
		state, err := connect(t, conf, &tls.Config{InsecureSkipVerify: true})
		if state.PeerCertificates == nil { // without a certificate of its own it learns no more
			t.Fatal(err)
		}
		return state.PeerCertificates[0]
	}
	first := shown()
	lease := append([]net.IP{net.IPv4(192, 0, 2, 7), net.ParseIP("2001:db8::7")}, loopback...)
	for range 2 {
		if err := a.Rename([]string{"board"}, lease); err != nil {
			t.Fatal(err)
		}
	}
	second := shown()
	for _, host := range []string{"192.0.2.7", "2001:db8::7", "127.0.0.1", "board"} {
		if err := second.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if err := first.VerifyHostname("192.0.2.7"); err == nil {
		t.Error("the address was there before it came")
	}
	if err := a.Rename([]string{"board"}, loopback); err != nil {
		t.Fatal(err)
	}
	if !shown().Equal(second) {
		t.Error("a cable that was pulled out made a certificate")
	}
	if cert, err := open(t, dir, c).Server([]string{"board"}, loopback); err != nil || !cert.Leaf.Equal(second) {
		t.Errorf("a start before the lease made a certificate (%v)", err)
	}
	if err := a.Rename([]string{"board"}, append([]net.IP{net.IPv4(192, 0, 2, 8)}, loopback...)); err != nil {
		t.Fatal(err)
	}
	if third := shown(); third.VerifyHostname("192.0.2.8") != nil || third.VerifyHostname("192.0.2.7") == nil {
		t.Errorf("after another lease the addresses are %v", third.IPAddresses)
	}
}

// TestKubeconfigIsRenewed: the file is written again when its certificate nears its end, and only then.
func TestKubeconfigIsRenewed(t *testing.T) {
	dir, c := t.TempDir(), &clock{built}
	a, path := open(t, dir, c), filepath.Join(dir, "admin.conf")
	write := func() (string, os.FileInfo) {
		t.Helper()
		if err := a.WriteKubeconfig(path, "https://127.0.0.1:6443"); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data), info
	}
	first, file := write()
	if _, again := write(); !os.SameFile(file, again) {
		t.Error("the same was written twice")
	}
	c.t = built.Add(clientLife * 3 / 4)
	if later, _ := write(); later == first {
		t.Error("a certificate near its end stayed")
	}
}

func TestClientNames(t *testing.T) {
	a := open(t, t.TempDir(), &clock{built})
	cert, err := a.Client("system:node:a", []string{"system:nodes"})
	if err != nil {
		t.Fatal(err)
	}
	if cert.Leaf.Subject.CommonName != "system:node:a" || cert.Leaf.Subject.Organization[0] != "system:nodes" {
		t.Errorf("subject %v", cert.Leaf.Subject)
	}
	more, err := a.Client("system:node:a", []string{"system:nodes", "more"})
	if err != nil || more.Leaf.Equal(cert.Leaf) {
		t.Errorf("other groups, same certificate (%v)", err)
	}
	for _, user := range []string{"", "../x", "a/b", "a\x00", strings.Repeat("a", 201)} {
		if _, err := a.Client(user, nil); err == nil {
			t.Errorf("user %q was accepted", user)
		}
	}
}

func TestUnwritableDiskStillServes(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, &clock{built})
	// A directory in the place of the file is a write error for root as well.
	if err := os.Mkdir(filepath.Join(dir, serverFile), 0o700); err != nil {
		t.Fatal(err)
	}
	one, err := a.Server(nil, loopback)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := a.Server(nil, loopback); err != nil || !two.Leaf.Equal(one.Leaf) {
		t.Errorf("not kept in memory: %v", err)
	}
}

func TestKubeconfig(t *testing.T) {
	a := open(t, t.TempDir(), &clock{built})
	data, err := a.Kubeconfig("https://127.0.0.1:6443", ServerIdentity)
	if err != nil {
		t.Fatal(err)
	}
	var k kubeconfig
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(k.Users[0].User.Cert, k.Users[0].User.Key); err != nil {
		t.Error(err)
	}
	if string(k.Clusters[0].Cluster.CA) != string(a.CA()) || k.Clusters[0].Cluster.Server != "https://127.0.0.1:6443" ||
		k.Clusters[0].Cluster.Name != ServerIdentity {
		t.Errorf("cluster %+v", k.Clusters[0])
	}
	if again, err := a.Kubeconfig("https://127.0.0.1:6443", ServerIdentity); err != nil || string(again) != string(data) {
		t.Errorf("the kubeconfig changes from call to call (%v)", err)
	}
}
