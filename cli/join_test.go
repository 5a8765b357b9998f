package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ledge/brain/place"
	"ledge/config"
)

// TestKubernetesTrouble: a board that its Kubernetes lets in no more says so by status and doctor, with what to do.
func TestKubernetesTrouble(t *testing.T) {
	data := t.TempDir()
	var build config.Build
	here := place.Info{DataDir: data, Kubernetes: true}
	if probes := kubernetesProbe(build, here, data); probes != nil {
		t.Error("a board that has joined none:", probes)
	}
	dir := filepath.Join(data, "kubernetes")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte("clusters: [{cluster: {server: https://a:1}}]"), 0o600))
	for _, left := range []time.Duration{time.Hour, -time.Hour} {
		writeIdentity(t, filepath.Join(dir, "node.pem"), time.Now().Add(left))
		probes := kubernetesProbe(build, here, data)
		if len(probes) != 1 || (probes[0].Err == nil) != (left > 0) {
			t.Fatal(left, probes)
		}
		if err := probes[0].Err; err != nil && !strings.Contains(err.Error(), "kubeadm token create") {
			t.Error(err)
		}
		var out bytes.Buffer
		run := t.TempDir()
		must(t, os.WriteFile(filepath.Join(run, "node.json"), []byte(`{"dataDir":"`+data+`","kubernetes":true}`), 0o600))
		must(t, sayKubernetes(&Command{out: &out, RunDir: run}))
		if strings.HasPrefix(out.String(), "kubernetes: this board's certificate") == (left > 0) {
			t.Errorf("%s: %q", left, out.String())
		}
		// A board that has gone back to its own control plane is not told of what it has left.
		out.Reset()
		must(t, os.WriteFile(filepath.Join(run, "node.json"), []byte(`{"dataDir":"`+data+`"}`), 0o600))
		must(t, sayKubernetes(&Command{out: &out, RunDir: run}))
		if probes := kubernetesProbe(build, place.Info{DataDir: data}, data); out.Len() != 0 || probes != nil {
			t.Errorf("%s: it works elsewhere: %q %v", left, out.String(), probes)
		}
		if probes := kubernetesProbe(build, place.Info{DataDir: "/another"}, data); len(probes) != 1 {
			t.Errorf("%s: another node works elsewhere: %v", left, probes)
		}
	}
}

func writeIdentity(t *testing.T, path string, end time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:pi1"},
		NotBefore: end.Add(-2 * time.Hour), NotAfter: end}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})...)
	must(t, os.WriteFile(path, text, 0o600))
}

// TestJoinVerb: what is missing or wrong is said before anything is made.
func TestJoinVerb(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "admin.conf")
	must(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: t}}]}`), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "photos"), 0o700))
	for want, args := range map[string][]string{
		"give an administrator's --kubeconfig": {"join"},
		"no such file":                         {"join", "--kubeconfig", filepath.Join(dir, "none")},
		"insecure-skip-tls-verify":             {"join", "--kubeconfig", file},
		"is not valid":                         {"join", "--kubeconfig", file, "--hostname-override", "-"},
		"no store of a node":                   {"join", "--kubeconfig", file, "--data-dir", dir},
	} {
		data := filepath.Join(t.TempDir(), "data")
		if len(args) < 5 {
			args = append(args, "--data-dir", data)
		}
		var out bytes.Buffer
		if code := Run(App{}, args, &out, &out); code == 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%v: %d %s", args, code, out.String())
		}
		if _, err := os.Stat(data); err == nil {
			t.Errorf("%v made something", args)
		}
	}
}
