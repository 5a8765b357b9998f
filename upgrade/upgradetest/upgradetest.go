// Package upgradetest makes what upgrades are tested with: signed programs of another version.
package upgradetest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ledge/upgrade/minisign"
)

// Signer makes what minisign would.
type Signer struct {
	t    *testing.T
	key  ed25519.PrivateKey
	Keys string // the file of the public one
}

// NewSigner has a key of its own.
func NewSigner(t *testing.T) *Signer {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &Signer{t: t, key: key, Keys: filepath.Join(t.TempDir(), "keys")}
	line := base64.StdEncoding.EncodeToString(append([]byte("Ed12345678"), public...))
	s.write(s.Keys, "untrusted comment: a test\n"+line+"\n", 0o600)
	return s
}

func (s *Signer) write(file, text string, perm os.FileMode) {
	s.t.Helper()
	if err := os.WriteFile(file, []byte(text), perm); err != nil {
		s.t.Fatal(err)
	}
}

// Sign writes the signature beside the file.
func (s *Signer) Sign(file, comment string) {
	s.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	d := minisign.NewDigest()
	_, _ = d.Write(data) // it never fails
	digest := d.Sum()
	sig := ed25519.Sign(s.key, digest[:])
	global := ed25519.Sign(s.key, append(bytes.Clone(sig), comment...))
	s.write(file+".minisig", fmt.Sprintf("untrusted comment: x\n%s\ntrusted comment: %s\n%s\n",
		base64.StdEncoding.EncodeToString(append([]byte("ED12345678"), sig...)),
		comment, base64.StdEncoding.EncodeToString(global)), 0o600)
}

// Restamped is a program whose version is own with another stamp, as -ldflags -X would put it there, without linking for it. Its version
// begins with the digit.
func Restamped(program, own, digit string) (data []byte, version string, err error) {
	version = "v" + digit + own[2:] // as long as the other
	if data, err = os.ReadFile(program); err == nil && !bytes.Contains(data, []byte(own)) {
		err = fmt.Errorf("%s has no stamp %s", program, own)
	}
	return bytes.ReplaceAll(data, []byte(own), []byte(version)), version, err
}

// Another is a program that is restamped, and signed.
func (s *Signer) Another(program, own, digit string) (file, version string) {
	s.t.Helper()
	data, version, err := Restamped(program, own, digit)
	if err != nil {
		s.t.Fatal(err)
	}
	file = filepath.Join(s.t.TempDir(), "ledge")
	s.write(file, string(data), 0o700)
	s.Sign(file, "timestamp:1 file:ledge version:"+version)
	return file, version
}
