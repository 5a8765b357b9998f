package pki

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/yaml"

	"ledge/api"
)

// AdminUser is the user of the admin kubeconfig.
const AdminUser = "ledge-admin"

// The few fields of a kubeconfig (clientcmd v1) that ledge writes.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
}

type namedCluster struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
}

type cluster struct {
	Server string `json:"server"`
	Name   string `json:"tls-server-name,omitempty"`
	CA     []byte `json:"certificate-authority-data"`
}

type namedUser struct {
	Name string `json:"name"`
	User user   `json:"user"`
}

type user struct {
	Cert []byte `json:"client-certificate-data"`
	Key  []byte `json:"client-key-data"`
}

type namedContext struct {
	Name    string     `json:"name"`
	Context contextRef `json:"context"`
}

type contextRef struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}

// Kubeconfig is the admin's way in: the server's URL with the CA and the admin's key inside. Whoever holds it
// owns the node. name is what the server's certificate must say instead of the URL's host; empty: that.
func (a *Authority) Kubeconfig(server, name string) ([]byte, error) {
	cert, err := a.Client(AdminUser, []string{api.AdminGroup})
	if err != nil {
		return nil, err
	}
	key, err := encodeKey(cert.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	const ledge = "ledge"
	out, err := yaml.Marshal(kubeconfig{
		APIVersion:     "v1",
		Kind:           "Config",
		Clusters:       []namedCluster{{ledge, cluster{Server: server, Name: name, CA: a.CA()}}},
		Users:          []namedUser{{AdminUser, user{Cert: encodeCert(cert.Certificate[0]), Key: key}}},
		Contexts:       []namedContext{{ledge, contextRef{Cluster: ledge, User: AdminUser}}},
		CurrentContext: ledge,
	})
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return out, nil
}

// WriteKubeconfig writes Kubeconfig to a file that only its owner can read, unless it says so already.
func (a *Authority) WriteKubeconfig(path, server string) error {
	data, err := a.Kubeconfig(server, "")
	if err != nil {
		return err
	}
	if old, err := readClosed(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return writeFile(path, data)
}
