package bridge

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestTry(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	got := Try()
	if len(got) != 5 {
		t.Fatal(got)
	}
	for _, tr := range got {
		if tr.Err != nil {
			t.Errorf("%s: %v", tr.Name, tr.Err)
		}
		if tr.Name == "" || tr.Remedy == "" {
			t.Errorf("%+v says too little", tr)
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Name, "ledgetry") {
			t.Error("left on the host:", l.Name)
		}
	}
	if err := explain(unix.EOPNOTSUPP); !errors.Is(err, unix.EOPNOTSUPP) || !strings.HasPrefix(err.Error(), "this kernel lacks") {
		t.Error(err)
	}
}

// TestCheck: an interface of others, and what a kernel lacks for good, are found; what may be over at the next try is not.
func TestCheck(t *testing.T) {
	if err := Check("lo"); !errors.Is(err, errForeign) {
		t.Errorf("lo: %v", err)
	}
	if os.Getuid() == 0 {
		if err := Check("ledgenone"); err != nil {
			t.Errorf("nothing is in the way: %v", err)
		}
	}
	links := func(alias string, mac net.HardwareAddr) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Alias, a.HardwareAddr = alias, mac
		return a
	}
	own, other := mac(netip.MustParseAddr("10.42.0.1")), net.HardwareAddr{0x02, 0x42, 1, 2, 3, 4}
	for _, c := range []struct {
		link netlink.Link
		want bool
	}{{&netlink.Bridge{LinkAttrs: links("", own)}, false}, {&netlink.Bridge{LinkAttrs: links(bridgeMark+"/run/x", other)}, false},
		{&netlink.Bridge{LinkAttrs: links("", other)}, true}, {&netlink.Bridge{LinkAttrs: links("mine", own)}, true},
		{&netlink.Dummy{LinkAttrs: links(bridgeMark+"/run/x", own)}, true}} {
		if got := foreign(c.link); got != c.want {
			t.Errorf("%s %+v: %v", c.link.Type(), c.link.Attrs(), got)
		}
	}
	for i, c := range []struct {
		err  error
		want string
	}{{nil, ""}, {unix.ENOSPC, ""}, {explain(unix.EOPNOTSUPP), "veth: this kernel lacks something"}} {
		got := lacking([]Trial{{Name: "bridge", Fatal: true}, {Name: "flows", Err: unix.ENOENT},
			{Name: "veth", Err: c.err, Remedy: "use a kernel", Fatal: true}, {Name: "senders", Err: unix.ENOENT}})
		if (got == nil) != (c.want == "") || got != nil && !strings.HasPrefix(got.Error(), c.want) {
			t.Errorf("%d: %v", i, got)
		}
	}
}
