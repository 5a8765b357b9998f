// Package nft is what users of nftables here share: a connection that is kept, and what the library does not read.
package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Generation is the kernel's count of nftables transactions in this network namespace.
func Generation() (uint32, error) {
	const getGen, newGen = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	req := nl.NewNetlinkRequest(getGen, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, newGen)
	if err != nil {
		return 0, err
	}
	for _, m := range msgs {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, err
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) >= 4 {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, errors.New("the kernel told no generation")
}

// Conn is a connection that is kept: the kernel lets one that changed rules go only after an RCU grace period,
// some 10 ms. It is dropped at any error, as answers to old questions may still be in it.
type Conn struct{ c *nftables.Conn }

// Get must be called on a thread that is in the host's network namespace.
func (n *Conn) Get() (*nftables.Conn, error) {
	if n.c == nil {
		// Every rule is acknowledged: with the default buffer the answers to some 200 rules are lost (ENOBUFS).
		c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(biggerBuffers))
		if err != nil {
			return nil, err
		}
		n.c = c
	}
	return n.c, nil
}

// Drop closes it; the next Get opens another.
func (n *Conn) Drop() {
	if n.c != nil {
		_ = n.c.CloseLasting() // nothing is lost with it
		n.c = nil
	}
}

func biggerBuffers[C interface {
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}](c C) error {
	return errors.Join(c.SetReadBuffer(8<<20), c.SetWriteBuffer(8<<20))
}

// Comment reads a rule's comment; it is not in the library's hands, which trusts lengths.
func Comment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		kind, value := userdata.Type(data[0]), data[2:2+int(data[1])]
		if kind == userdata.TypeComment {
			return strings.TrimRight(string(value), "\x00")
		}
		data = data[2+int(data[1]):]
	}
	return ""
}

// Digest marks a rule with what it is, to see later whether it is still that.
func Digest(of nftables.TableFamily, rule []expr.Any) (string, error) {
	h := fnv.New64a()
	for _, e := range rule {
		b, err := expr.Marshal(byte(of), e)
		if err != nil {
			return "", err
		}
		_, _ = h.Write(b)
	}
	return fmt.Sprintf("#%016x", h.Sum64()), nil
}
