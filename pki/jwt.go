package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
)

// Tokens signs service-account tokens and knows its own again: JSON web tokens by ES256, and by nothing else. What is
// in them is the caller's.
type Tokens struct {
	key *ecdsa.PrivateKey
	id  string // of the key, as Kubernetes names it
}

const tokenFile = "service-account.pem"

// Tokens opens the key of the authority's tokens, and makes it the first time. It is not the CA's: what a token can do
// ends when the key is replaced, and certificates go on. A damaged one is replaced too: all it costs is that pods get
// new tokens.
func (a *Authority) Tokens() (*Tokens, error) {
	path := filepath.Join(a.dir, tokenFile)
	key, err := readTokenKey(path)
	if err != nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, fmt.Errorf("make the key of tokens: %w", err)
		}
		data, err := encodeKey(key)
		if err != nil {
			return nil, fmt.Errorf("make the key of tokens: %w", err)
		}
		if err := writeFile(path, data); err != nil {
			return nil, fmt.Errorf("keep the key of tokens: %w", err)
		}
	}
	return newTokens(key)
}

func newTokens(key *ecdsa.PrivateKey) (*Tokens, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("name the key of tokens: %w", err)
	}
	sum := sha256.Sum256(der)
	return &Tokens{key: key, id: base64.RawURLEncoding.EncodeToString(sum[:])}, nil
}

func readTokenKey(path string) (*ecdsa.PrivateKey, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Mode().Perm() != 0o600:
		return nil, fs.ErrPermission // others may have read it
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("not a P-256 key")
	}
	return key, nil
}

// The one way tokens are signed. A token that names another is not looked at.
const tokenAlgorithm = "ES256"

type tokenHeader struct {
	Algorithm string `json:"alg"`
	Key       string `json:"kid"`
}

// halfSignature is the size of r and s in a P-256 signature.
const halfSignature = 32

// Sign makes a token that says this.
func (t *Tokens) Sign(claims []byte) (string, error) {
	head, err := json.Marshal(tokenHeader{tokenAlgorithm, t.id})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString(head) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, t.key, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	sig := make([]byte, 2*halfSignature)
	r.FillBytes(sig[:halfSignature])
	s.FillBytes(sig[halfSignature:])
	return text + "." + enc.EncodeToString(sig), nil
}

// ErrBadToken says that a token is not one that this authority has signed.
var ErrBadToken = errors.New("not a token of this authority")

// maxToken bounds what is looked at for who is not known yet.
const maxToken = 8 << 10

// Verify gives what a token says, if this authority has signed it. Whether it still counts is the caller's to judge.
func (t *Tokens) Verify(token string) (claims []byte, err error) {
	parts := strings.Split(token, ".")
	if len(token) > maxToken || len(parts) != 3 {
		return nil, ErrBadToken
	}
	enc := base64.RawURLEncoding.Strict()
	var raw [3][]byte
	for i := range parts {
		if raw[i], err = enc.DecodeString(parts[i]); err != nil {
			return nil, ErrBadToken
		}
	}
	var head tokenHeader
	if json.Unmarshal(raw[0], &head) != nil || head.Algorithm != tokenAlgorithm || head.Key != t.id || len(raw[2]) != 2*halfSignature {
		return nil, ErrBadToken
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	r, s := new(big.Int).SetBytes(raw[2][:halfSignature]), new(big.Int).SetBytes(raw[2][halfSignature:])
	if !ecdsa.Verify(&t.key.PublicKey, sum[:], r, s) {
		return nil, ErrBadToken
	}
	return raw[1], nil
}
