// Package join makes a board a node of Kubernetes: by a bootstrap token, as kubeadm does, or by an administrator's file that is used
// once. It keeps who the board is there, and has that renewed.
//
//	token -> cluster-info (anybody's word, checked by the token's secret and the pin of the CA)
//	      -> a request for a certificate (verified by that CA) -> somebody approves -> certificate
//
// The directory has, each file replaced as a whole:
//
//	next.pem       the key that a certificate is asked for, from before the first request until it is there
//	kubeconfig     where the control plane is, by which CA it is known, and that the board is who node.pem says
//	client-ca.crt  the CA of its clients, if that is known: whom the board's own port may know
//	node.pem       key and certificate; written last: with it the board has joined
//
// A request is named by its key, so that a board that was cut off in between asks for the same thing again and finds the answer. What a
// server says is bounded in bytes and time, and nothing that is secret is sent before it is certain who answers.
package join

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Ticket is what 'kubeadm token create --print-join-command' prints, without the address.
type Ticket struct {
	ID     string
	secret string
	Pins   []Pin // none: whoever knows the token can pass for the control plane
}

// Pin is the SHA-256 of a CA's public key (its SubjectPublicKeyInfo).
type Pin [sha256.Size]byte

// tokenOf takes a token of kubeadm's form apart, such as abcdef.0123456789abcdef. A regular expression would cost each process, and each
// start of a container.
func tokenOf(word string) (id, secret string, ok bool) {
	id, secret, _ = strings.Cut(word, ".")
	strange := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return id, secret, len(id) == 6 && len(secret) == 16 && !strings.ContainsFunc(id+secret, strange)
}

const (
	pinPrefix = "sha256:"
	mostPins  = 16
)

// Parse finds a token of kubeadm's form and the pins beside it among the words of a text, which may be all of the line that kubeadm
// prints. ok is false where there is no such token.
func Parse(text string) (t Ticket, ok bool, err error) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n=,", r) }) {
		if id, secret, is := tokenOf(word); is {
			if ok && t.Token() != word {
				return t, true, errors.New("there are two tokens: give one")
			}
			t.ID, t.secret, ok = id, secret, true
			continue
		}
		body, found := strings.CutPrefix(word, pinPrefix)
		if !found {
			continue
		}
		raw, err := hex.DecodeString(body)
		if err != nil || len(raw) != sha256.Size || len(t.Pins) == mostPins {
			return t, ok, fmt.Errorf("%.80q is no hash of a CA: it is sha256: and 64 hexadecimal digits, as 'kubeadm token create --print-join-command' prints it",
				word)
		}
		t.Pins = append(t.Pins, Pin(raw))
	}
	return t, ok, nil
}

// Token is what the control plane is shown.
func (t Ticket) Token() string { return t.ID + "." + t.secret }

// Refusal is a no that asking again will not change.
type Refusal struct{ Why string }

func (r *Refusal) Error() string { return r.Why }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }
