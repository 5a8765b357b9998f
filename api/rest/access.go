package rest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Access is what a kubeconfig says of a server, and its user's way in.
type Access struct {
	Server, ServerName string
	CA                 []byte // nil: the machine's own
	HTTP               *http.Client
}

// WhichKubernetes tells the control plane of a kubeconfig from others: by its address and its CA.
func WhichKubernetes(path string) (string, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", path)
	if err == nil {
		err = clientrest.LoadTLSFiles(conf)
	}
	if err != nil {
		return "", fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	sum := sha256.Sum256(bytes.TrimSpace(conf.CAData))
	return fmt.Sprintf("%s %x", strings.TrimSuffix(conf.Host, "/"), sum[:8]), nil
}

// OpenAccess reads a kubeconfig whose server another credential is to be used with afterwards. now says what day it is: the clock of a
// board may begin in the past.
func OpenAccess(path string, now func() time.Time) (out Access, err error) {
	conf, err := clientcmd.BuildConfigFromFlags("", path)
	if err == nil {
		err = clientrest.LoadTLSFiles(conf)
	}
	switch {
	case err != nil:
		return out, fmt.Errorf("read kubeconfig %s: %w", path, err)
	case conf.Insecure:
		return out, fmt.Errorf("kubeconfig %s: insecure-skip-tls-verify: nobody would know who answers; give certificate-authority-data", path)
	case conf.Proxy != nil:
		return out, fmt.Errorf("kubeconfig %s: proxy-url: a board reaches its control plane without a proxy", path)
	}
	out.Server, out.ServerName, out.CA = conf.Host, conf.ServerName, conf.CAData
	if out.HTTP, err = clientrest.HTTPClientFor(conf); err != nil {
		return out, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if conf, err := utilnet.TLSClientConfig(out.HTTP.Transport); err == nil && conf != nil {
		conf.Time = now // nothing has been asked through it yet
	}
	return out, nil
}
