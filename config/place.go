package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ledge/api/rest"
	"ledge/node/join"
)

// placeKeys say where the control plane of a board is, so that one unit and one file do for boards of both kinds.
type placeKeys struct {
	Server    string  `json:"server,omitempty"`
	TokenFile string  `json:"tokenFile,omitempty"`
	Listen    *string `json:"listen,omitempty"`
	Port      *int    `json:"port,omitempty"`

	Authentication authenticationKeys `json:"authentication,omitempty"`
}

// authenticationKeys are what a kubelet is told of who comes to its port, as far as there is a choice here.
type authenticationKeys struct {
	X509 struct {
		ClientCAFile string `json:"clientCAFile,omitempty"`
	} `json:"x509,omitempty"`
}

func (k placeKeys) check() error {
	for _, url := range splitList(k.Server) {
		if err := CheckServer(url); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	switch {
	case k.Listen != nil && k.Server != "":
		return errors.New("listen is for a control plane, and server says that it is elsewhere: remove one of the two")
	case k.Port != nil && (*k.Port < 0 || *k.Port > 65535):
		return fmt.Errorf("port: %d is no port", *k.Port)
	case k.Authentication.X509.ClientCAFile != "" && !filepath.IsAbs(k.Authentication.X509.ClientCAFile):
		return fmt.Errorf("authentication.x509.clientCAFile: %q must be an absolute path", k.Authentication.X509.ClientCAFile)
	case k.Listen == nil || *k.Listen == "":
		return nil
	}
	if err := checkListen(*k.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

func checkListen(at string) error {
	_, port, err := net.SplitHostPort(at)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return fmt.Errorf("%q is no address and port such as 0.0.0.0:6443", at)
	}
	return nil
}

// TokenPath is where the token to join with lies: beside the configuration, unless that says otherwise.
func TokenPath(config, given string) string {
	return cmp.Or(given, filepath.Join(filepath.Dir(config), "token"))
}

// place resolves where the control plane is, and how it is reached. Flags beat the file.
func (s *Settings) place(f *flag.FlagSet) error {
	o, k := s.Options, s.File.placeKeys
	if !o.Joins && k.Server == "" {
		if k.Listen != nil && !o.set["listen"] {
			o.listen = *k.Listen
		}
		return s.checkPlane()
	}
	if !o.Joins {
		if err := onlyBoardFlags(f); err != nil {
			return fmt.Errorf("%w, and the configuration says that this board's is at %s", err, k.Server)
		}
		o.Joins, o.DoorPort = true, doorPort
	}
	if k.Port != nil && !o.set["port"] {
		o.DoorPort = *k.Port
	}
	if !o.set["client-ca-file"] {
		o.ClientCAFile = k.Authentication.X509.ClientCAFile
	}
	if o.Kubeconfig == "" {
		if len(o.Servers) == 0 {
			o.Servers = splitList(k.Server)
		}
		if err := o.readToken(k.TokenFile); err != nil {
			return err
		}
	}
	return s.Where()
}

// onlyBoardFlags refuses what only a control plane knows.
func onlyBoardFlags(given *flag.FlagSet) (err error) {
	board := flag.NewFlagSet("", flag.ContinueOnError)
	boardFlags(board)
	given.Visit(func(f *flag.Flag) {
		if board.Lookup(f.Name) == nil {
			err = Usagef("--%s is for a control plane", f.Name)
		}
	})
	return err
}

// readToken finds the token in its file, unless a flag has it. All of the line that 'ledge token create' or kubeadm prints may
// stand in either.
func (o *Options) readToken(given string) error {
	if o.Token != "" {
		o.Token = tokenIn(o.Token)
		return nil
	}
	path := TokenPath(o.Path, given)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is needed once
	}
	if err != nil {
		return fmt.Errorf("read the token: %w", err)
	}
	if token := tokenIn(string(data)); token != "" {
		o.Token, o.TokenFile = token, path
	}
	return nil
}

// tokenIn is the token of a line: of kubeadm's the hash of the CA belongs to it.
func tokenIn(text string) string {
	if _, ok, _ := join.Parse(text); ok { // what is wrong with it is said where it is used
		return text
	}
	return lastWord(text)
}

func lastWord(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// CheckServer says what is wrong with the URL of a control plane.
func CheckServer(url string) error {
	_, err := rest.NewServers([]string{url}, &tls.Config{}, nil)
	return err
}
