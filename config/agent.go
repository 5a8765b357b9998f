package config

import (
	"cmp"
	"crypto/tls"
	"flag"

	"ledge/api/rest"
	"ledge/pki"
)

// listFlag is a flag that may be given more than once, or with commas.
type listFlag []string

func (l *listFlag) String() string { return "" }

func (l *listFlag) Set(text string) error {
	*l = append(*l, splitList(text)...)
	return nil
}

// AgentFlags are those of agent.
func AgentFlags(f *flag.FlagSet) *Options {
	o := boardFlags(f)
	f.Var((*listFlag)(&o.Servers), "server", "https://ADDRESS:PORT of the control plane; several are tried in turn")
	f.StringVar(&o.Token, "token", "", "what 'ledge token create' printed there; needed once. It shows in the list of processes: a file named token beside the configuration does not")
	f.IntVar(&o.DoorPort, "port", doorPort,
		"where the control plane reaches this board for logs, exec and the like, and with --kubeconfig whom that lets in; 0: nowhere")
	f.StringVar(&o.ClientCAFile, "client-ca-file", "",
		"with --kubeconfig: the CA of the certificates that clients of this port have; empty: ConfigMap kube-system/extension-apiserver-authentication")
	return o
}

// Where reads where the control plane is.
func (s *Settings) Where() error {
	o := s.Options
	switch {
	case o.DoorPort < 0 || o.DoorPort > 65535:
		return Usagef("--port: %d is no port", o.DoorPort)
	case o.Kubeconfig != "" && (len(o.Servers) > 0 || o.Token != ""):
		return Usagef("agent: --kubeconfig says all of it: leave --server and --token out")
	case o.Kubeconfig != "":
		return nil
	case len(o.Servers) == 0:
		return Usagef("agent: say where the control plane is: --server https://ADDRESS:6443 (server in the configuration), or --kubeconfig FILE")
	}
	if _, err := rest.NewServers(o.Servers, &tls.Config{}, nil); err != nil {
		return Usagef("--server: %v", err)
	}
	if o.Token == "" {
		return nil
	}
	t, err := pki.ParseJoinToken(o.Token)
	if err != nil {
		return Usagef("%s: %v", cmp.Or(o.TokenFile, "--token"), err)
	}
	s.JoinToken = &t
	return nil
}
