// Command coredns is CoreDNS with the few plugins that a cluster's names need, to measure network/dns beside. It is a module of its own:
// none of it reaches ledge.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loop"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "cache", "loop", "kubernetes", "forward"}
	coremain.Run()
}
