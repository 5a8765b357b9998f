package proxy

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	chainRefuse = "refuse"
	pickPrefix  = "pick-"
	guardPrefix = "guard-"
)

// masqueradeMark is on packets between the choice of their endpoint and their leaving: the bit that Kubernetes uses for it.
const masqueradeMark = 0x4000

// Host ports of pods are translated at -100 (network/bridge): what one pod asked for on this board comes first.
const (
	priorityDestNAT = -95
	priorityFilter  = 0
	prioritySrcNAT  = 100
)

// The kernel's words for what the library has no names for.
const (
	dynsetUpdate = 1 // NFT_DYNSET_OP_UPDATE: add, or begin its time anew
	dynsetDelete = 2 // NFT_DYNSET_OP_DELETE, since Linux 5.4
	stateNew     = 8 // NF_CT_STATE_BIT(IP_CT_NEW)
)

// mostClients bounds how many clients are remembered for stickiness. Beyond them a client gets any endpoint.
const mostClients = 65536

// family is the shape of a table in IPv4 or IPv6. The registers hold, four bytes each: the client's address, the address and
// protocol and port that it connects to, then an index, in whose place its endpoint comes. So every key is a run of registers.
type family struct{ v6 bool }

func (f family) table() nftables.TableFamily {
	if f.v6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

func (f family) words() int        { return addressLen(f.v6) / 4 }
func register(i int) uint32        { return unix.NFT_REG32_00 + uint32(i) }
func (f family) client() uint32    { return register(0) }
func (f family) to() uint32        { return register(f.words()) }
func (f family) protocol() uint32  { return register(2 * f.words()) }
func (f family) port() uint32      { return register(2*f.words() + 1) }
func (f family) index() uint32     { return register(2*f.words() + 2) }
func (f family) end() uint32       { return f.index() }
func (f family) endPort() uint32   { return register(3*f.words() + 2) }
func (f family) address() []uint32 { return map[bool][]uint32{false: {12, 16}, true: {8, 24}}[f.v6] } // source, destination

// chain is one of a table.
type chain struct {
	name, kind string
	hook       *nftables.ChainHook
	priority   int32
	rules      [][]expr.Any
}

// base are the chains that every table has.
func (f family) base(bridge string) []chain {
	nat := func(name string, hook *nftables.ChainHook, priority int32, rules ...[]expr.Any) chain {
		return chain{name, "nat", hook, priority, rules}
	}
	filter := func(name string, hook *nftables.ChainHook, rules ...[]expr.Any) chain {
		return chain{name, "filter", hook, priorityFilter, rules}
	}
	guarded := join(f.key(false), f.vmap(setGuarded))
	refused := join(f.ifNew(), f.key(false), f.vmap(setRefused))
	refusedNode := join(f.ifNew(), f.notLoopback(), f.key(true), f.vmap(setRefused))
	otherPorts := join(f.ifNew(), f.loadTo(), []expr.Any{&expr.Lookup{SourceRegister: f.to(), SetName: setClusterIP}},
		jump(expr.VerdictGoto, chainRefuse))
	prerouting := [][]expr.Any{guarded}
	if bridge != "" {
		prerouting = append(prerouting, join(ifname(bridge), jump(expr.VerdictGoto, setNear)))
	}
	prerouting = append(prerouting, jump(expr.VerdictGoto, setFar))
	return []chain{
		{name: chainRefuse, rules: f.refuse()},
		{name: setNear, rules: f.dispatch(setNear)},
		{name: setFar, rules: f.dispatch(setFar)},
		nat("prerouting", nftables.ChainHookPrerouting, priorityDestNAT, prerouting...),
		nat("output", nftables.ChainHookOutput, priorityDestNAT, guarded, jump(expr.VerdictGoto, setNear)),
		// A pod that reaches itself is masqueraded by network/bridge.
		nat("postrouting", nftables.ChainHookPostrouting, prioritySrcNAT, join(ifMarked(), mark(0), []expr.Any{&expr.Masq{}})),
		// Before Linux 5.9 nothing can be refused before it is routed.
		filter("refuse-input", nftables.ChainHookInput, refused, refusedNode),
		filter("refuse-forward", nftables.ChainHookForward, refused, otherPorts),
		filter("refuse-output", nftables.ChainHookOutput, refused, otherPorts),
	}
}

// dispatch looks where a connection is going: to a port of one address, or to a node port.
func (f family) dispatch(set string) [][]expr.Any {
	return [][]expr.Any{
		join(f.key(false), f.vmap(set)),
		join(f.notLoopback(), f.ifLocal(false), f.key(true), f.vmap(set)),
	}
}

// rules of a chain that elements lead to.
func (f family) rules(s special) [][]expr.Any {
	if s.sources != nil {
		return f.guard(s.sources)
	}
	// The machine's own connections chose their source address by the way to the Service, which is not the way to the endpoint.
	masquerade := join(f.ifLocal(true), mark(masqueradeMark))
	if s.mask {
		masquerade = mark(masqueradeMark)
	}
	first := []expr.Any{&expr.Immediate{Register: f.index(), Data: binary.NativeEndian.AppendUint32(nil, s.from())}}
	draw := []expr.Any{&expr.Numgen{Register: f.index(), Modulus: uint32(s.n), Type: unix.NFT_NG_RANDOM, Offset: s.from()}}
	if s.n == 1 {
		draw = first
	}
	choose := func(index []expr.Any) []expr.Any {
		return join(f.key(s.node), index,
			[]expr.Any{&expr.Lookup{SourceRegister: f.to(), DestRegister: f.end(), IsDestRegSet: true, SetName: setEndpoints}})
	}
	pick := choose(draw)
	// A packet may be led here by what was, and find the endpoints that are: the kernel looks at each lookup which transaction counts. If
	// they are fewer now, the one it drew may be missing. There is always a first.
	otherwise := join(choose(first), f.dnat())
	if s.stick == 0 {
		return [][]expr.Any{masquerade, join(pick, f.dnat()), otherwise}
	}
	remember := []expr.Any{&expr.Dynset{SrcRegKey: f.client(), SrcRegData: f.end(), SetName: setAffinity, Operation: dynsetUpdate,
		Timeout: seconds(s.stick)}}
	known := []expr.Any{&expr.Lookup{SourceRegister: f.client(), DestRegister: f.end(), IsDestRegSet: true, SetName: setAffinity}}
	live := []expr.Any{&expr.Lookup{SourceRegister: f.to(), SetName: setLive}}
	forget := []expr.Any{&expr.Dynset{SrcRegKey: f.client(), SrcRegData: f.end(), SetName: setAffinity, Operation: dynsetDelete}}
	client := f.loadClient()
	return [][]expr.Any{
		masquerade,
		join(client, f.key(s.node), known, live, remember, f.dnat()),
		join(client, f.key(s.node), known, forget), // its endpoint is gone
		join(client, pick, remember, f.dnat()),
		join(pick, f.dnat()), // the set of clients is full
		otherwise,
	}
}

func (s special) from() uint32 {
	if s.far {
		return farIndex
	}
	return 0
}

// guard lets only these sources go on.
func (f family) guard(sources []netip.Prefix) (out [][]expr.Any) {
	for _, p := range sources {
		n := addressLen(f.v6)
		match := join(f.loadClient(), []expr.Any{
			&expr.Bitwise{SourceRegister: f.client(), DestRegister: f.client(), Len: uint32(n), Mask: net.CIDRMask(p.Bits(), 8*n),
				Xor: make([]byte, n)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: f.client(), Data: p.Masked().Addr().AsSlice()}})
		out = append(out, join(match, []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}))
	}
	return append(out, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
}

func (f family) load(into uint32, which int) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: into, Base: expr.PayloadBaseNetworkHeader, Offset: f.address()[which],
		Len: uint32(addressLen(f.v6))}}
}

func (f family) loadClient() []expr.Any { return f.load(f.client(), 0) }
func (f family) loadTo() []expr.Any     { return f.load(f.to(), 1) }

// key loads where a client connects; of a node port the address does not matter.
func (f family) key(node bool) []expr.Any {
	to := f.loadTo()
	if node {
		to = []expr.Any{&expr.Immediate{Register: f.to(), Data: make([]byte, addressLen(f.v6))}}
	}
	return append(to, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.protocol()},
		// TCP, UDP and SCTP have it at the same place.
		&expr.Payload{DestRegister: f.port(), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
}

func (f family) vmap(set string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: f.to(), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: set}}
}

func (f family) dnat() []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.table()), RegAddrMin: f.end(), RegProtoMin: f.endPort()}}
}

// refuse answers. The kernel bounds how many ICMP messages one client gets, redirects among them, so TCP is answered by a reset.
func (f family) refuse() [][]expr.Any {
	code := uint8(3) // port unreachable
	if f.v6 {
		code = 4
	}
	return [][]expr.Any{
		{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.client()},
			&expr.Cmp{Op: expr.CmpOpEq, Register: f.client(), Data: []byte{unix.IPPROTO_TCP}},
			&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}},
		{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}},
	}
}

// ifLocal: the address, of the source or the destination, is the machine's.
func (f family) ifLocal(source bool) []expr.Any {
	return []expr.Any{&expr.Fib{Register: f.client(), ResultADDRTYPE: true, FlagSADDR: source, FlagDADDR: !source},
		&expr.Cmp{Op: expr.CmpOpEq, Register: f.client(), Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)}}
}

// notLoopback: node ports are not on 127.0.0.1 and ::1. Packets from there would leave the machine with an address that means
// another one.
func (f family) notLoopback() []expr.Any {
	if f.v6 {
		return join(f.loadTo(), []expr.Any{&expr.Cmp{Op: expr.CmpOpNeq, Register: f.to(), Data: netip.IPv6Loopback().AsSlice()}})
	}
	return []expr.Any{&expr.Payload{DestRegister: f.to(), Base: expr.PayloadBaseNetworkHeader, Offset: f.address()[1], Len: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: f.to(), Data: []byte{127}}}
}

func (f family) ifNew() []expr.Any {
	return []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: f.client()},
		&expr.Bitwise{SourceRegister: f.client(), DestRegister: f.client(), Len: 4, Mask: binaryutil.NativeEndian.PutUint32(stateNew),
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: f.client(), Data: make([]byte, 4)}}
}

func ifMarked() []expr.Any {
	r := register(0)
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: r},
		&expr.Bitwise{SourceRegister: r, DestRegister: r, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(masqueradeMark), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r, Data: make([]byte, 4)}}
}

// mark sets our bit of the packet's mark to what it is in value.
func mark(value uint32) []expr.Any {
	r := register(0)
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: r},
		&expr.Bitwise{SourceRegister: r, DestRegister: r, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(^uint32(masqueradeMark)),
			Xor: binaryutil.NativeEndian.PutUint32(value)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: r}}
}

func ifname(name string) []expr.Any {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: b}}
}

func jump(kind expr.VerdictKind, to string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: to}}
}

func join(parts ...[]expr.Any) (out []expr.Any) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// sets of a table, empty.
func (f family) sets(t *nftables.Table) []*nftables.Set {
	address := nftables.TypeIPAddr
	if f.v6 {
		address = nftables.TypeIP6Addr
	}
	concat := nftables.MustConcatSetType
	key := []nftables.SetDatatype{address, nftables.TypeInetProto, nftables.TypeInetService}
	where := concat(key...)
	end := concat(address, nftables.TypeInetService)
	set := func(name string, of nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: t, Name: name, KeyType: of}
	}
	to := func(name string, of, data nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: t, Name: name, KeyType: of, IsMap: true, DataType: data}
	}
	affinity := to(setAffinity, concat(append([]nftables.SetDatatype{address}, key...)...), end)
	affinity.Dynamic, affinity.HasTimeout, affinity.Size = true, true, mostClients
	return []*nftables.Set{
		to(setNear, where, nftables.TypeVerdict), to(setFar, where, nftables.TypeVerdict),
		to(setRefused, where, nftables.TypeVerdict), to(setGuarded, where, nftables.TypeVerdict),
		to(setEndpoints, concat(append(key, nftables.TypeMark)...), end),
		set(setLive, concat(append(key, address, nftables.TypeInetService)...)),
		set(setClusterIP, address), affinity,
	}
}
