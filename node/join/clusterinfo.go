package join

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	signaturePrefix = "jws-kubeconfig-"
	mostCAs         = 16
)

// configMap is what is read of one.
type configMap struct {
	Data map[string]string `json:"data"`
}

// meet asks a server, which may be anybody, by which CA its control plane is known, and believes what the ticket proves.
func (t Ticket) meet(ctx context.Context, server string) ([]*x509.Certificate, error) {
	// The answer is signed; nothing is sent that a stranger could use.
	anybody := newPlane(server, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, "")
	var info configMap
	err := anybody.ask(ctx, http.MethodGet, clusterInfoPath, nil, &info)
	if denied(err, http.StatusNotFound, http.StatusForbidden, http.StatusUnauthorized) {
		return nil, fmt.Errorf("%w: a control plane that no kubeadm has made may have no cluster-info for strangers: 'ledge join --kubeconfig' needs none", err)
	}
	if err != nil {
		return nil, err
	}
	return t.believe(info.Data)
}

// believe gives the CAs of a cluster-info that is signed with the token. With pins it is only those that are pinned: a bundle may hold
// the right one, which is no secret, and another beside it.
func (t Ticket) believe(data map[string]string) ([]*x509.Certificate, error) {
	signature, signed := data[signaturePrefix+t.ID]
	switch {
	case data["kubeconfig"] == "":
		return nil, errors.New("its cluster-info has no kubeconfig")
	case !signed:
		return nil, fmt.Errorf("its cluster-info is not signed with token %s: the token has ended, or was made just now; "+
			"'kubeadm token list' on the control plane tells", t.ID)
	}
	if err := t.checkSignature(signature, data["kubeconfig"]); err != nil {
		return nil, err
	}
	found, err := clusterOf([]byte(data["kubeconfig"]))
	if err != nil {
		return nil, refuse("the kubeconfig of its cluster-info: %v", err)
	}
	cas, err := parseCertificates(found.CA, mostCAs)
	if err != nil {
		return nil, refuse("the CA in its cluster-info: %v", err)
	}
	if len(t.Pins) == 0 {
		return cas, nil
	}
	cas = slices.DeleteFunc(cas, func(c *x509.Certificate) bool {
		return !slices.Contains(t.Pins, sha256.Sum256(c.RawSubjectPublicKeyInfo))
	})
	if len(cas) == 0 {
		return nil, refuse("it is not the control plane that this board was told to join: no CA of its cluster-info has the hash that was given")
	}
	return cas, nil
}

// checkSignature checks a JWS without its payload (RFC 7515, appendix F), which the token's secret is the key of.
func (t Ticket) checkSignature(jws, payload string) error {
	parts := strings.Split(jws, ".")
	if len(parts) != 3 || parts[1] != "" {
		return refuse("the signature of its cluster-info is none: it has to be a detached JWS")
	}
	var header struct {
		Alg, Kid string
		Crit     []string
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil || json.Unmarshal(raw, &header) != nil || header.Alg != "HS256" || header.Kid != t.ID || len(header.Crit) > 0 {
		return refuse("the signature of its cluster-info is not HS256 with token %s", t.ID)
	}
	got, err := base64.RawURLEncoding.DecodeString(parts[2])
	mac := hmac.New(sha256.New, []byte(t.secret))
	mac.Write([]byte(parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))))
	if err != nil || !hmac.Equal(got, mac.Sum(nil)) {
		return refuse("the signature of its cluster-info is wrong: who answers does not know the token, or the second half of the token is mistyped")
	}
	return nil
}

// cluster is how a kubeconfig describes one.
type cluster struct {
	Server     string `json:"server"`
	ServerName string `json:"tls-server-name,omitempty"`
	CA         []byte `json:"certificate-authority-data,omitempty"`
}

// clusterOf reads the one cluster of a kubeconfig.
func clusterOf(kubeconfig []byte) (cluster, error) {
	var file struct {
		Clusters []struct {
			Cluster cluster `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(kubeconfig, &file); err != nil {
		return cluster{}, errors.New("it cannot be read")
	}
	if len(file.Clusters) != 1 {
		return cluster{}, fmt.Errorf("it has %d clusters, not one", len(file.Clusters))
	}
	return file.Clusters[0].Cluster, nil
}

// parseCertificates reads the certificates of a text, at least one.
func parseCertificates(text []byte, most int) (out []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if out = append(out, cert); len(out) > most {
			return nil, fmt.Errorf("more than %d certificates", most)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate is in it")
	}
	return out, nil
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

func encode(certs []*x509.Certificate) (out []byte) {
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}
