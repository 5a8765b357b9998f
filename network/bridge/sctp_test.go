package bridge

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/network"
)

// sctp is one packet that begins an association, or agrees to one: chunk 1 is INIT, 2 is INIT ACK. The tag is 0 in the first only.
func sctp(from, to uint16, tag uint32, chunk byte) []byte {
	p := make([]byte, 32)
	binary.BigEndian.PutUint16(p, from)
	binary.BigEndian.PutUint16(p[2:], to)
	binary.BigEndian.PutUint32(p[4:], tag)
	p[12], p[15] = chunk, 20
	binary.BigEndian.PutUint32(p[16:], 4711)  // the sender's tag
	binary.BigEndian.PutUint32(p[20:], 65536) // room
	p[25], p[27], p[31] = 1, 1, 1             // streams both ways, the first number
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}

// TestServiceOfSCTP: an association that a pod begins with a Service reaches the pod behind it, and the answer is the Service's. Few
// kernels have sockets of SCTP; the packets are made here.
func TestServiceOfSCTP(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	a, b := l.pod(s, "a"), l.pod(s, "b")
	f := l.forwarder("ledge0")
	l.must(f.Update(t.Context(), []network.Service{inside("default/calls", clusterIP, "SCTP", at(a.ip, 8080)),
		inside("default/web", "10.96.0.2", "TCP", at(a.ip, 8080))}))
	raw := func(ns, local string) *net.IPConn {
		var c *net.IPConn
		l.in(ns, func() (err error) {
			c, err = net.ListenIP("ip4:132", &net.IPAddr{IP: netip.MustParseAddr(local).AsSlice()})
			return err
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	server, client := raw(a.NetNS, a.ip), raw(b.NetNS, b.ip)
	hears := func(what string, c *net.IPConn, from string, ports [2]uint16, wait time.Duration) bool {
		t.Helper()
		l.must(c.SetReadDeadline(time.Now().Add(wait)))
		data := make([]byte, 100)
		n, addr, err := c.ReadFromIP(data)
		if err != nil {
			var late net.Error
			if !errors.As(err, &late) || !late.Timeout() {
				t.Errorf("%s: %v", what, err)
			}
			return false
		}
		if got := [2]uint16{binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:])}; n < 12 || addr.String() != from || got != ports {
			t.Errorf("%s: %d bytes from %s, ports %d; want %s, %d", what, n, addr, got, from, ports)
		}
		return true
	}
	send := func(c *net.IPConn, to string, packet []byte) {
		t.Helper()
		_, err := c.WriteToIP(packet, &net.IPAddr{IP: netip.MustParseAddr(to).AsSlice()})
		l.must(err)
	}
	patience := testrun.Patience(5 * time.Second)
	send(client, clusterIP, sctp(1234, 80, 0, 1))
	if !hears("the pod behind it", server, b.ip, [2]uint16{1234, 8080}, patience) {
		t.Fatal("no association reaches the pod")
	}
	send(server, b.ip, sctp(8080, 1234, 4711, 2))
	if !hears("who began", client, clusterIP, [2]uint16{80, 1234}, patience) {
		t.Error("no answer comes back")
	}
	send(client, "10.96.0.2", sctp(1235, 80, 0, 1))
	if hears("a Service of TCP", server, "", [2]uint16{}, 200*time.Millisecond) {
		t.Error("a Service of TCP takes SCTP")
	}
}
