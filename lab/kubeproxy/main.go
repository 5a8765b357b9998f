// Command kubeproxy is Kubernetes' own kube-proxy, to hold network/proxy against it and to measure beside. It is a module of its own:
// none of it reaches ledge.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() { os.Exit(cli.Run(proxy.NewProxyCommand())) }
