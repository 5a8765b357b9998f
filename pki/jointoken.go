package pki

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Pin is the SHA-256 of a CA's certificate.
type Pin [sha256.Size]byte

func (p Pin) String() string { return hex.EncodeToString(p[:8]) }

// JoinToken lets a board join a control plane. It names the CA by its hash: a board with a token sends nothing to
// anybody else, and there is no form of a token without it.
type JoinToken struct {
	id     [6]byte
	secret [16]byte
	CA     Pin
}

// ID names the token among those of its control plane. It is no secret.
func (t JoinToken) ID() string { return hex.EncodeToString(t.id[:]) }

// Proof is what a board shows the control plane: the token without the pin, which the other end has no use for.
func (t JoinToken) Proof() string {
	return base64.RawURLEncoding.EncodeToString(append(t.id[:], t.secret[:]...))
}

const (
	tokenPrefix = "ledge1." // the number is that of the form
	tokenBody   = 6 + 16 + sha256.Size
)

// String is the whole token. Its end is a checksum, so that a letter lost on the way is found on the board.
func (t JoinToken) String() string {
	raw := append(append(t.id[:], t.secret[:]...), t.CA[:]...)
	raw = binary.BigEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw))
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// ParseJoinToken reads a token as String writes it.
func ParseJoinToken(text string) (t JoinToken, err error) {
	body, found := strings.CutPrefix(text, tokenPrefix)
	if !found {
		return t, fmt.Errorf("this is no token of 'ledge token create': one begins with %q", tokenPrefix)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(body)
	// The decoder reads over the end of a line; len tells that there was none.
	if err != nil || len(body) != base64.RawURLEncoding.EncodedLen(len(raw)) || len(raw) != tokenBody+4 ||
		crc32.ChecksumIEEE(raw[:tokenBody]) != binary.BigEndian.Uint32(raw[tokenBody:]) {
		return t, errors.New("the token is damaged: copy the whole line of 'ledge token create' again")
	}
	copy(t.CA[:], raw[copy(t.id[:], raw)+copy(t.secret[:], raw[len(t.id):]):])
	return t, nil
}

// parseProof reads what Proof made. Who sends it is not known.
func parseProof(text string) (id string, secret []byte, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 6+16 {
		return "", nil, fmt.Errorf("not a token of %d bytes", 6+16)
	}
	return hex.EncodeToString(raw[:6]), raw[6:], nil
}
