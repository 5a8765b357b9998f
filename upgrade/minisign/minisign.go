// Package minisign verifies what the program minisign signs: a file by its BLAKE2b-512 digest, and a comment with it, both
// by ed25519. It signs nothing and reads no secret key.
package minisign

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// SizeLimit bounds what a signature or a file of keys may have.
const SizeLimit = 16 << 10

// ErrKey is a signature by a key that is not among the trusted ones. ErrSignature is one that does not fit.
var (
	ErrKey       = errors.New("none of the trusted keys has made this signature")
	ErrSignature = errors.New("the signature does not fit the file")
)

// keyID tells which key has made a signature; it proves nothing.
type keyID [8]byte

// String is as minisign prints it.
func (id keyID) String() string { return fmt.Sprintf("%016X", binary.LittleEndian.Uint64(id[:])) }

// Key is a public key.
type Key struct {
	id  keyID
	key ed25519.PublicKey
}

// String is the key's number.
func (k Key) String() string { return k.id.String() }

// encoding has one text for each value.
var encoding = base64.StdEncoding.Strict()

const untrusted, trusted = "untrusted comment:", "trusted comment: "

// ParseKeys reads keys, one a line: as `minisign -G` writes them, several such files in one, or the bare key that it prints.
// Empty lines, and those that begin with #, say nothing.
func ParseKeys(text []byte) ([]Key, error) {
	if len(text) > SizeLimit {
		return nil, errors.New("this is no file of keys: it is too large")
	}
	var keys []Key
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || strings.HasPrefix(line, untrusted) {
			continue
		}
		raw, err := encoding.DecodeString(line)
		if err != nil || len(raw) != 2+8+ed25519.PublicKeySize || string(raw[:2]) != "Ed" {
			return nil, fmt.Errorf("line %d is no public key of minisign (it prints one that begins with RW)", n)
		}
		keys = append(keys, Key{id: keyID(raw[2:10]), key: raw[10:]})
	}
	return keys, nil
}

// Signature is a FILE.minisig.
type Signature struct {
	id      keyID
	sig     []byte
	Comment string // trusted once Verify has said so
	global  []byte // over sig and Comment
}

// ParseSignature reads the four lines of one.
func ParseSignature(text []byte) (*Signature, error) {
	if len(text) > SizeLimit {
		return nil, errors.New("this is no signature of minisign: it is too large")
	}
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], untrusted) || !strings.HasPrefix(lines[2], trusted) {
		return nil, errors.New("this is no signature of minisign")
	}
	raw, err := encoding.DecodeString(lines[1])
	global, gerr := encoding.DecodeString(lines[3])
	if err != nil || gerr != nil || len(raw) != 2+8+ed25519.SignatureSize || len(global) != ed25519.SignatureSize {
		return nil, errors.New("this is no signature of minisign, or a damaged one")
	}
	switch string(raw[:2]) {
	case "ED":
	case "Ed": // of the whole file, which had to be in memory
		return nil, errors.New("this signature is of the old kind (minisign -l, or before 0.10): sign the file's digest, as minisign does by itself")
	default:
		return nil, errors.New("this signature is of a kind that is not known")
	}
	return &Signature{id: keyID(raw[2:10]), sig: raw[10:], Comment: strings.TrimPrefix(lines[2], trusted), global: global}, nil
}

// Verify says which of the keys has signed the file of this digest, and the comment.
func (s *Signature) Verify(keys []Key, digest [digestSize]byte) (Key, error) {
	other := ErrKey
	for _, k := range keys { // two keys may have one number
		if k.id != s.id {
			continue
		}
		if ed25519.Verify(k.key, digest[:], s.sig) && ed25519.Verify(k.key, append(bytes.Clone(s.sig), s.Comment...), s.global) {
			return k, nil
		}
		other = ErrSignature
	}
	return Key{}, fmt.Errorf("%w (key %s)", other, s.id)
}

// Word is a word KEY:VALUE of the comment.
func (s *Signature) Word(key string) string {
	for _, w := range strings.Fields(s.Comment) {
		if v, ok := strings.CutPrefix(w, key+":"); ok {
			return v
		}
	}
	return ""
}
