package config

import (
	"cmp"
	"crypto/tls"
	"flag"
	"slices"

	"ledge/api/rest"
	"ledge/node/join"
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
	f.StringVar(&o.Token, "token", "", "what 'ledge token create' printed there, or 'kubeadm token create'; needed once. It shows in the list of processes: a file named token beside the configuration does not")
	f.StringVar(&o.caHash, "ca-hash", "", "sha256:... of the CA of a Kubernetes to join with a token of kubeadm's; several with commas")
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
	}
	// Who has joined a Kubernetes needs no more, until a token says otherwise.
	at, joined := join.JoinedAt(join.Dir(o.DataDir))
	if joined && o.Token == "" {
		if len(o.Servers) > 0 && !slices.Contains(o.Servers, at) {
			s.note("this board has joined a Kubernetes and stays there; a token of a control plane of ledge moves it, and one of another Kubernetes once "+
				join.Dir(o.DataDir)+" is removed", "joined", at, "server", o.Servers)
		}
		s.atKubernetes()
		return nil
	}
	if joined && len(o.Servers) == 0 {
		o.Servers = []string{at}
	}
	if len(o.Servers) == 0 {
		return Usagef("agent: say where the control plane is: --server https://ADDRESS:6443 (server in the configuration), --kubeconfig FILE, " +
			"or 'ledge join' before")
	}
	if _, err := rest.NewServers(o.Servers, &tls.Config{}, nil); err != nil {
		return Usagef("--server: %v", err)
	}
	pins, _, pinsErr := join.Parse(o.caHash)
	ticket, ok, err := join.Parse(o.Token + " " + o.caHash)
	switch {
	case pinsErr != nil, o.caHash != "" && len(pins.Pins) == 0:
		return Usagef("--ca-hash: %q is no hash of a CA: it is sha256: and 64 hexadecimal digits", o.caHash)
	case err != nil:
		return Usagef("%s: %v", cmp.Or(o.TokenFile, "--token"), err)
	case !ok && o.caHash != "":
		return Usagef("--ca-hash: it goes with a token of kubeadm's, such as abcdef.0123456789abcdef; one of 'ledge token create' has the hash in it")
	case ok && len(o.Servers) > 1:
		return Usagef("--server: a Kubernetes is reached by one address, such as that of its load balancer; there are %d", len(o.Servers))
	case ok:
		if len(ticket.Pins) == 0 {
			s.note("without --ca-hash whoever knows the token can pass for the control plane", "token", ticket.ID)
		}
		s.Ticket = &ticket
		s.atKubernetes()
		return nil
	case o.Token == "":
		return nil
	}
	t, err := pki.ParseJoinToken(o.Token)
	if err != nil {
		return Usagef("%s: %v", cmp.Or(o.TokenFile, "--token"), err)
	}
	s.JoinToken = &t
	return nil
}

// atKubernetes has the board talk to the Kubernetes that it has joined, or is to join, by what is kept of that.
func (s *Settings) atKubernetes() {
	s.JoinDir = join.Dir(s.DataDir)
	s.Kubeconfig = join.Kubeconfig(s.JoinDir)
}
