// Command old is kubectl 1.20, the one that Debian 12 brings, built from its published module: what it asks of a server
// is not what today's kubectl asks (OpenAPI v2, JSON bodies, SPDY, policy/v1beta1).
package main

import (
	"flag"
	"os"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	command := cmd.NewDefaultKubectlCommand()
	pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	pflag.CommandLine.AddGoFlagSet(flag.CommandLine)
	logs.InitLogs()
	err := command.Execute()
	logs.FlushLogs()
	if err != nil {
		os.Exit(1)
	}
}
