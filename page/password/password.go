// Package password keeps the password of a board's page: never as people type it.
package password

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/scrypt"
)

// What a check costs: 16 MB and some 0.1 s of a small board, one at a time.
const (
	logN, blocks, lanes = 14, 8, 1
	saltBytes, keyBytes = 16, 32
	prefix              = "scrypt:"
)

// Bounds of passwords as people type them. A short one is guessed.
const (
	Shortest = 8
	Longest  = 256
)

// Hash is a password that was made unreadable: scrypt:log2 of N:r:p:salt:key. The zero value opens nothing.
type Hash struct {
	logN, r, p int
	salt, key  []byte
}

// Check says whether a text of a configuration is good for a password: as people type it, or hashed.
func Check(text string) error {
	if IsHash(text) {
		_, err := Parse(text)
		return err
	}
	if n := len(text); n < Shortest || n > Longest {
		return fmt.Errorf("it must have %d to %d characters", Shortest, Longest)
	}
	return nil
}

// Of is the hash that such a text is, or that is made of it.
func Of(text string) (Hash, error) {
	if IsHash(text) {
		return Parse(text)
	}
	return Make(text)
}

// Make hashes a password as people type it.
func Make(plain string) (Hash, error) {
	if err := Check(plain); err != nil {
		return Hash{}, err
	}
	h := Hash{logN, blocks, lanes, make([]byte, saltBytes), nil}
	rand.Read(h.salt) //nolint:errcheck // it does not fail
	var err error
	h.key, err = scrypt.Key([]byte(plain), h.salt, 1<<h.logN, h.r, h.p, keyBytes)
	return h, err
}

// IsHash says that a text is meant to be a hash.
func IsHash(text string) bool { return strings.HasPrefix(text, prefix) }

// Parse reads what String has written. What would cost a board more than Make does is refused.
func Parse(text string) (h Hash, err error) {
	parts := strings.Split(strings.TrimPrefix(text, prefix), ":")
	if !IsHash(text) || len(parts) != 5 {
		return h, errors.New("it is no hash that ledge has made")
	}
	for i, into := range []*int{&h.logN, &h.r, &h.p} {
		if *into, err = strconv.Atoi(parts[i]); err != nil {
			return Hash{}, errors.New("it is no hash that ledge has made")
		}
	}
	for i, into := range []*[]byte{&h.salt, &h.key} {
		if *into, err = base64.RawURLEncoding.DecodeString(parts[3+i]); err != nil {
			return Hash{}, errors.New("it is no hash that ledge has made")
		}
	}
	if h.logN < 10 || h.logN > logN || h.r != blocks || h.p != lanes || len(h.salt) < 8 || len(h.salt) > 64 || len(h.key) != keyBytes {
		return Hash{}, errors.New("it is no hash that ledge has made")
	}
	return h, nil
}

func (h Hash) String() string {
	b64 := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf("%s%d:%d:%d:%s:%s", prefix, h.logN, h.r, h.p, b64(h.salt), b64(h.key))
}

// Opens says whether this is the password.
func (h Hash) Opens(plain string) bool {
	if len(h.key) == 0 || len(plain) > Longest {
		return false
	}
	key, err := scrypt.Key([]byte(plain), h.salt, 1<<h.logN, h.r, h.p, keyBytes)
	return err == nil && subtle.ConstantTimeCompare(key, h.key) == 1
}

// Hide puts a hash in the place of the password in a configuration, at the keys page, password below those of above (none in ledge's own
// file), and leaves everything else byte for byte. It answers nil where there is no password to be read, and for what is no YAML: who reads
// that has other trouble.
func Hide(config []byte, above ...string) ([]byte, error) {
	n := find(config, above)
	if n == nil || n.Kind != yaml.ScalarNode || IsHash(n.Value) || n.Value == "" {
		return nil, nil
	}
	if n.ShortTag() != "!!str" {
		return nil, errors.New("page.password: put it in quotes")
	}
	hash, err := Make(n.Value)
	if err != nil {
		return nil, fmt.Errorf("page.password: %w", err)
	}
	lines := bytes.SplitAfter(config, []byte("\n"))
	if n.Line < 1 || n.Line > len(lines) {
		return nil, errors.New("page.password: it cannot be found again in the file")
	}
	line := lines[n.Line-1]
	col := column(line, n.Column)
	end := col + len(n.Value)
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		end = quoted(line, col)
	}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || n.Anchor != "" || n.Tag != "" && n.Style&yaml.TaggedStyle != 0 ||
		col < 0 || end <= col || end > len(line) {
		return nil, errors.New("page.password: write it on one line, in quotes, so that it can be made unreadable")
	}
	mended := slices.Concat(line[:col], []byte(`"`+hash.String()+`"`), line[end:])
	out := bytes.Join(slices.Concat(lines[:n.Line-1], [][]byte{mended}, lines[n.Line:]), nil)
	if after := find(out, above); after == nil || after.Value != hash.String() { // a file that would mean something else is left alone
		return nil, errors.New("page.password: write it on one line, in quotes, so that it can be made unreadable")
	}
	return out, nil
}

func find(config []byte, above []string) *yaml.Node {
	var doc yaml.Node
	if yaml.Unmarshal(config, &doc) != nil || len(doc.Content) != 1 {
		return nil
	}
	n := doc.Content[0]
	for _, key := range append(slices.Clone(above), "page", "password") {
		n = in(n, key)
	}
	return n
}

// column is where a column of the parser, which counts characters from 1, begins in the bytes of a line.
func column(line []byte, n int) int {
	for i := range string(line) {
		if n--; n == 0 {
			return i
		}
	}
	return -1
}

// quoted is where a quoted text ends that begins at from; -1: not on this line.
func quoted(line []byte, from int) int {
	if from < 0 || from >= len(line) {
		return -1
	}
	q := line[from]
	for i := from + 1; i < len(line); i++ {
		switch {
		case line[i] == '\\' && q == '"':
			i++
		case line[i] == q && q == '\'' && i+1 < len(line) && line[i+1] == q:
			i++
		case line[i] == q:
			return i + 1
		}
	}
	return -1
}

// in is the value of a key of a map; nil: there is none.
func in(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
