package join

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// The few words of certificates.k8s.io/v1 that are spoken here: linking the group would cost more than all of this package.
const (
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	signerName   = "kubernetes.io/kube-apiserver-client-kubelet"
	nodesGroup   = "system:nodes"
	mostChain    = 8
)

type signingRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Request    []byte   `json:"request"`
		SignerName string   `json:"signerName"`
		Usages     []string `json:"usages"`
	} `json:"spec"`
	Status struct {
		Conditions  []condition `json:"conditions,omitempty"`
		Certificate []byte      `json:"certificate,omitempty"`
	} `json:"status"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Pending says that a request is there and has no certificate yet.
type Pending struct {
	Name     string
	Approved bool
}

func (p *Pending) Error() string {
	if p.Approved {
		return fmt.Sprintf("the request %s is approved and has no certificate yet: kube-controller-manager makes it (csrsigning)", p.Name)
	}
	return fmt.Sprintf("the request %s waits for somebody to approve it: kubectl certificate approve %[1]s", p.Name)
}

// nameOf names the request for a certificate by its key.
func nameOf(key *ecdsa.PrivateKey) string {
	der, _ := x509.MarshalPKIXPublicKey(key.Public()) // of a key that was made or read here
	sum := sha256.Sum256(der)
	return "node-csr-" + hex.EncodeToString(sum[:16])
}

// obtain asks a plane for the certificate of a key, and looks for it: a Pending is no end. With approve whoever asks may approve too. A
// conflict is a Pending as well: somebody else has made or decided the same request just now, such as the approver of
// kube-controller-manager.
func (p plane) obtain(ctx context.Context, node string, key *ecdsa.PrivateKey, approve bool, now time.Time) ([]*x509.Certificate, error) {
	name := nameOf(key)
	var csr signingRequest
	err := p.ask(ctx, http.MethodGet, requestsPath+"/"+name, nil, &csr)
	if denied(err, http.StatusNotFound) {
		csr, err = p.create(ctx, name, node, key)
	}
	if denied(err, http.StatusConflict) {
		return nil, &Pending{Name: name}
	}
	if err != nil {
		return nil, err
	}
	if err := ours(&csr, key); err != nil {
		return nil, err
	}
	if approve && !csr.is("Approved") && !csr.is("Denied") {
		csr.Status.Conditions = append(csr.Status.Conditions, condition{"Approved", "True", "LedgeJoin",
			"The administrator of this request's board approved it with 'ledge join'."})
		csr.Kind, csr.APIVersion = "CertificateSigningRequest", "certificates.k8s.io/v1"
		err := p.ask(ctx, http.MethodPut, requestsPath+"/"+name+"/approval", &csr, &csr)
		if denied(err, http.StatusConflict) {
			return nil, &Pending{Name: name}
		}
		if err != nil {
			return nil, fmt.Errorf("approve the request %s: %w", name, err)
		}
	}
	chain, err := csr.outcome()
	if err != nil {
		return nil, err
	}
	return chain, check(chain, node, key, now)
}

// unusable says what to do about a certificate that this board does not take: its request would give the same one for ever.
func unusable(name, why string) error {
	return refuse("the certificate of the request %s cannot be used: it %s; have the control plane's signer put right, then "+
		"kubectl delete csr %[1]s, and try again", name, why)
}

func (p plane) create(ctx context.Context, name, node string, key *ecdsa.PrivateKey) (out signingRequest, err error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: api.NodeUserPrefix + node, Organization: []string{nodesGroup}}}, key)
	if err != nil {
		return out, err
	}
	var csr signingRequest
	csr.Kind, csr.APIVersion, csr.Name = "CertificateSigningRequest", "certificates.k8s.io/v1", name
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	csr.Spec.SignerName = signerName
	csr.Spec.Usages = []string{"digital signature", "client auth"}
	return out, p.ask(ctx, http.MethodPost, requestsPath, &csr, &out)
}

// ours refuses a request of this name that somebody else has made.
func ours(csr *signingRequest, key *ecdsa.PrivateKey) error {
	block, _ := pem.Decode(csr.Spec.Request)
	if block != nil && csr.Spec.SignerName == signerName {
		if req, err := x509.ParseCertificateRequest(block.Bytes); err == nil && key.PublicKey.Equal(req.PublicKey) {
			return nil
		}
	}
	return refuse("the request %s is not the one that this board has made: look who made it, and delete it: kubectl delete csr %[1]s", nameOf(key))
}

func (csr *signingRequest) is(what string) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c condition) bool { return c.Type == what })
}

// outcome is what has become of a request.
func (csr *signingRequest) outcome() ([]*x509.Certificate, error) {
	for _, c := range csr.Status.Conditions {
		if c.Type == "Denied" || c.Type == "Failed" {
			return nil, refuse("the request %s is %s (%s): to have it decided again, kubectl delete csr %[1]s and start this board again", csr.Name,
				map[string]string{"Denied": "denied", "Failed": "not signed"}[c.Type], clipped(c.Reason+" "+c.Message))
		}
	}
	if len(csr.Status.Certificate) == 0 {
		return nil, &Pending{csr.Name, csr.is("Approved")}
	}
	chain, err := parseCertificates(csr.Status.Certificate, mostChain)
	if err != nil {
		return nil, unusable(csr.Name, "cannot be read: "+err.Error())
	}
	return chain, nil
}

// check refuses a certificate that was not asked for.
func check(chain []*x509.Certificate, node string, key *ecdsa.PrivateKey, now time.Time) error {
	leaf := chain[0]
	wrong := ""
	switch {
	case !key.PublicKey.Equal(leaf.PublicKey):
		wrong = "is for another key"
	case leaf.Subject.CommonName != api.NodeUserPrefix+node:
		wrong = fmt.Sprintf("is for %.80q", leaf.Subject.CommonName)
	case !slices.Equal(leaf.Subject.Organization, []string{nodesGroup}):
		wrong = "is not for the group " + nodesGroup + " alone"
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		wrong = "is not for clients"
	case !leaf.NotAfter.After(leaf.NotBefore), now.After(leaf.NotAfter):
		wrong = "has ended already, on " + leaf.NotAfter.UTC().Format(time.DateTime)
	}
	if wrong != "" {
		return unusable(nameOf(key), wrong)
	}
	return nil
}

var errNoKey = errors.New("there is no ECDSA key in it")

// parsePair reads a key and the certificates behind it, which must be the key's.
func parsePair(data []byte) (key *ecdsa.PrivateKey, chain []*x509.Certificate, err error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, nil, errNoKey
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, errNoKey
	}
	if len(bytes.TrimSpace(rest)) == 0 {
		return key, nil, nil
	}
	if chain, err = parseCertificates(rest, mostChain); err != nil {
		return nil, nil, err
	}
	if !key.PublicKey.Equal(chain[0].PublicKey) {
		return nil, nil, errors.New("the certificate is for another key")
	}
	return key, chain, nil
}
