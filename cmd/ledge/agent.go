package main

import (
	"crypto/tls"

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

func agentFlags(c *command) {
	o := boardFlags(c)
	c.flags.Var((*listFlag)(&o.servers), "server", "https://ADDRESS:PORT of the control plane; several are tried in turn")
	c.flags.StringVar(&o.token, "token", "", "what 'ledge token create' printed there; needed once. It shows in the list of processes: a file named token beside the configuration does not")
	c.flags.IntVar(&o.doorPort, "port", doorPort, "where the control plane, and nobody else, reaches this board for logs, exec and the like; 0: nowhere")
	c.opts = o
}

// where reads where the control plane is.
func (s *settings) where() error {
	o := s.serveOpts
	switch {
	case o.doorPort < 0 || o.doorPort > 65535:
		return usagef("--port: %d is no port", o.doorPort)
	case o.kubeconfig != "" && (len(o.servers) > 0 || o.token != ""):
		return usagef("agent: --kubeconfig says all of it: leave --server and --token out")
	case o.kubeconfig != "":
		return nil
	case len(o.servers) == 0:
		return usagef("agent: say where the control plane is: --server https://ADDRESS:6443 (server in the configuration), or --kubeconfig FILE")
	}
	if _, err := rest.NewServers(o.servers, &tls.Config{}, nil); err != nil {
		return usagef("--server: %v", err)
	}
	if o.token == "" {
		return nil
	}
	t, err := pki.ParseJoinToken(o.token)
	if err != nil {
		return usagef("%s: %v", firstNonEmpty(o.tokenFile, "--token"), err)
	}
	s.joinToken = &t
	return nil
}
