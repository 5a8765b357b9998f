package static

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"ledge/api"
	"ledge/api/manifest"
)

// The annotations of pods that come from files (N-7.49).
const (
	annotationSource = "kubernetes.io/config.source"
	annotationHash   = "kubernetes.io/config.hash"
	annotationSeen   = "kubernetes.io/config.seen"
)

// The classes that a pod may name without an API to look them up in.
var systemPriorities = map[string]int32{"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}

// parse makes the pods of a file: as its author wrote them, with what a static pod has besides (N-7.49). Objects
// of other kinds are passed over where others says so, else they are an error. A document that is wrong takes no other with it.
func parse(path string, data []byte, node string, others bool) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	var errs []error
	docs := manifest.Documents(data)
	for _, d := range docs {
		pod, err := parseDocument(path, d, node, others)
		switch {
		case err != nil && len(docs) > 1:
			errs = append(errs, fmt.Errorf("document %d: %w", d.Number+1, err))
		case err != nil:
			errs = append(errs, err)
		case pod != nil:
			out = append(out, pod)
		}
	}
	if len(out) == 0 && len(errs) == 0 && !others {
		return nil, errors.New("there is no pod in it")
	}
	return out, errors.Join(errs...)
}

// parseDocument makes the pod of a document; nil if there is none in it.
func parseDocument(path string, d manifest.Document, node string, others bool) (*corev1.Pod, error) {
	if d.Bad != nil {
		return nil, d.Bad
	}
	raw, err := yaml.YAMLToJSONStrict(d.Data)
	if err != nil || string(raw) == "null" { // nothing but comments
		return nil, err
	}
	var head metav1.TypeMeta
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	if head.Kind != api.Pods.Name || head.APIVersion != api.Pods.APIVersion() {
		if others {
			return nil, nil //nolint:nilnil // it is somebody else's
		}
		return nil, fmt.Errorf("a static pod is a Pod of apiVersion v1, not a %q of %q", head.Kind, head.APIVersion)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(d.Data, pod); err != nil {
		return nil, err
	}
	if err := makeStatic(pod, raw, fmt.Sprintf("%s#%d", path, d.Number), node); err != nil {
		return nil, err
	}
	return pod, nil
}

// Check says what is wrong with a file, for who wants to know before a node reads the file.
func Check(path string, data []byte, node string, others bool) error {
	_, err := parse(path, data, node, others)
	return err
}

// makeStatic turns a pod as it stands in a file into the static pod of a node.
func makeStatic(pod *corev1.Pod, raw []byte, where, node string) error {
	if err := notFromFile(pod); err != nil {
		return err
	}
	if pod.UID == "" {
		h := fnv.New128a()
		for _, part := range [][]byte{raw, []byte(node), []byte(where)} {
			h.Write(part)
			h.Write([]byte{0})
		}
		pod.UID = types.UID(hex.EncodeToString(h.Sum(nil)))
	}
	if strings.Trim(string(pod.UID), "0123456789abcdefABCDEF-") != "" || len(pod.UID) > 64 {
		return fmt.Errorf("metadata.uid %q is not one: only hexadecimal digits and dashes", pod.UID)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if pod.Name == "" {
		return errors.New("metadata.name is missing")
	}
	pod.Name += "-" + strings.ToLower(node)
	pod.GenerateName, pod.ResourceVersion, pod.DeletionTimestamp, pod.OwnerReferences, pod.ManagedFields = "", "", nil, nil, nil
	pod.Generation = 1
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotationSource] = "file"
	pod.Annotations[annotationHash] = string(pod.UID)
	pod.Spec.NodeName = node
	// It stays whatever becomes of its node.
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if !slices.Contains(pod.Spec.Tolerations, everything) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, everything)
	}
	if name := pod.Spec.PriorityClassName; name != "" {
		value, ok := systemPriorities[name]
		if !ok {
			return fmt.Errorf("priorityClassName %q: without an API only system-node-critical and system-cluster-critical are known; "+
				"spec.priority may be set instead", name)
		}
		pod.Spec.Priority = &value
	}
	api.Pods.Default(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: api.QOSClass(pod)}
	return api.Pods.Validate(pod)
}

// notFromFile refuses what only the API could give: a static pod runs without one.
func notFromFile(pod *corev1.Pod) error {
	refuse := func(what string) error {
		return fmt.Errorf("a static pod may not refer to %s: it runs without an API to look them up in", what)
	}
	if configMaps, secrets := api.References(pod); len(configMaps)+len(secrets) > 0 {
		return refuse("ConfigMaps or Secrets")
	}
	if pod.Spec.ServiceAccountName != "" || pod.Spec.DeprecatedServiceAccount != "" {
		return refuse("service accounts")
	}
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil || v.Ephemeral != nil:
			return refuse("persistent volume claims")
		case v.ConfigMap != nil || v.Secret != nil:
			return refuse("ConfigMaps or Secrets")
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.DownwardAPI == nil {
					return refuse("API objects in projected volumes")
				}
			}
		}
	}
	if pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return errors.New("the annotation kubernetes.io/config.mirror is for the pods that show static ones")
	}
	if len(pod.Spec.EphemeralContainers) > 0 {
		return errors.New("ephemeral containers come by the API only")
	}
	return nil
}

// manifestName says whether a file of a manifests directory is to be read (N-7.49).
func manifestName(name string, all bool) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	return all || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}
