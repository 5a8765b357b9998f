package local

import (
	"bytes"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/storage"
)

// What every namespace has.
const (
	defaultAccount = "default"
	rootCAName     = "kube-root-ca.crt"
	rootCAKey      = "ca.crt"
)

// serviceAccounts is what a namespace and its pods have for the sake of service accounts.
type serviceAccounts struct {
	tokens *Tokens // nil: there are none
}

// namespaceObjects are what every namespace has: the account of pods that name none, and, where there are tokens, what
// their holders know this API by.
func (a serviceAccounts) namespaceObjects(namespace string) []api.Object {
	out := []api.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultAccount}}}
	if a.tokens != nil {
		out = append(out, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rootCAName, Annotations: map[string]string{
			"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints " +
				"such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."}},
			Data: map[string]string{rootCAKey: string(a.tokens.RootCA)}})
	}
	return out
}

// otherCA: the ConfigMap of the CA holds something else.
func (a serviceAccounts) otherCA(have api.Object) bool {
	cm, ok := have.(*corev1.ConfigMap)
	return ok && a.isRootCA(cm) && (len(cm.Data) != 1 || !bytes.Equal([]byte(cm.Data[rootCAKey]), a.tokens.RootCA))
}

func (a serviceAccounts) isRootCA(cm *corev1.ConfigMap) bool {
	return a.tokens != nil && cm.Name == rootCAName
}

// isNamespaceObject: one of those that are put back.
func isNamespaceObject(kind *api.Kind, name string) bool {
	return kind == api.ServiceAccounts && name == defaultAccount || kind == api.ConfigMaps && name == rootCAName
}

// Where Kubernetes' client libraries look for a token.
const tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// podTokenSeconds is what Kubernetes asks for in pods: an hour and a little, so that its own can be told from others.
const podTokenSeconds = 3607

// admitAccount gives a pod its service account, and a token of it unless the pod or the account wants none.
func (a serviceAccounts) admitAccount(tx *storage.Tx, p *corev1.Pod) error {
	if api.IsMirror(p) {
		return nil
	}
	if p.Spec.ServiceAccountName == "" {
		p.Spec.ServiceAccountName = defaultAccount
	}
	p.Spec.DeprecatedServiceAccount = p.Spec.ServiceAccountName
	found, err := tx.Get(api.ServiceAccounts, p.Namespace, p.Spec.ServiceAccountName)
	if errors.Is(err, storage.ErrNotFound) {
		return forbidden(api.Pods, p.Name, "error looking up service account %s/%s: serviceaccount %q not found",
			p.Namespace, p.Spec.ServiceAccountName, p.Spec.ServiceAccountName)
	}
	if err != nil {
		return storeError(err, api.ServiceAccounts, p.Namespace, p.Spec.ServiceAccountName)
	}
	sa := found.(*corev1.ServiceAccount)
	if a.tokens != nil && wantsToken(p, sa) {
		if err := mountToken(p); err != nil {
			return err
		}
	}
	if len(p.Spec.ImagePullSecrets) == 0 {
		p.Spec.ImagePullSecrets = slices.Clone(sa.ImagePullSecrets)
	}
	return nil
}

func wantsToken(p *corev1.Pod, sa *corev1.ServiceAccount) bool {
	for _, wants := range []*bool{p.Spec.AutomountServiceAccountToken, sa.AutomountServiceAccountToken} {
		if wants != nil {
			return *wants
		}
	}
	return true
}

// mountToken adds the volume that Kubernetes adds, to every container that has nothing at its place.
func mountToken(p *corev1.Pod) error {
	name, err := tokenVolumeName(p)
	if err != nil {
		return err
	}
	needed := false
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenDir }) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenDir})
				needed = true
			}
		}
	}
	if needed {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenVolume()}})
	}
	return nil
}

func tokenVolume() *corev1.ProjectedVolumeSource {
	mode, seconds := corev1.ProjectedVolumeSourceDefaultMode, int64(podTokenSeconds)
	return &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: rootCAName},
			Items: []corev1.KeyToPath{{Key: rootCAKey, Path: rootCAKey}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}
}

const tokenVolumePrefix = "kube-api-access-"

// keepToken puts back what admission added when the pod was made.
func keepToken(now, was *corev1.PodSpec) {
	if now.ServiceAccountName == "" {
		now.ServiceAccountName, now.DeprecatedServiceAccount = was.ServiceAccountName, was.ServiceAccountName
	}
	i := slices.IndexFunc(was.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, tokenVolumePrefix) })
	if i < 0 || slices.ContainsFunc(now.Volumes, func(v corev1.Volume) bool { return v.Name == was.Volumes[i].Name }) {
		return
	}
	now.Volumes = slices.Insert(now.Volumes, min(i, len(now.Volumes)), was.Volumes[i])
	for _, lists := range [][2][]corev1.Container{{now.InitContainers, was.InitContainers}, {now.Containers, was.Containers}} {
		for j := range lists[0] {
			if j < len(lists[1]) {
				keepTokenMount(&lists[0][j], &lists[1][j], was.Volumes[i].Name)
			}
		}
	}
}

func keepTokenMount(now, was *corev1.Container, volume string) {
	for i, m := range was.VolumeMounts {
		if m.Name == volume && !slices.ContainsFunc(now.VolumeMounts, func(n corev1.VolumeMount) bool { return n.MountPath == m.MountPath }) {
			now.VolumeMounts = slices.Insert(now.VolumeMounts, min(i, len(now.VolumeMounts)), m)
		}
	}
}

// tokenVolumeName returns a volume name that the pod does not use yet.
func tokenVolumeName(p *corev1.Pod) (string, error) {
	for {
		random := make([]byte, 5)
		if _, err := rand.Read(random); err != nil {
			return "", api.NewInternal("name a volume: %w", err)
		}
		for i := range random {
			random[i] = nameLetters[int(random[i])%len(nameLetters)]
		}
		name := tokenVolumePrefix + string(random)
		if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			return name, nil
		}
	}
}
