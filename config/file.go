package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"ledge/internal/durable"
	"ledge/node/poster"
)

// File is the configuration file. Keys are spelt as in KubeletConfiguration (N-0.4); one that is not
// listed here is refused, so that nothing is ignored.
type File struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`

	RegisterNode              *bool             `json:"registerNode,omitempty"`
	RegisterWithTaints        []corev1.Taint    `json:"registerWithTaints,omitempty"`
	NodeStatusUpdateFrequency metav1.Duration   `json:"nodeStatusUpdateFrequency,omitempty"`
	NodeStatusReportFrequency metav1.Duration   `json:"nodeStatusReportFrequency,omitempty"`
	NodeLeaseDurationSeconds  int32             `json:"nodeLeaseDurationSeconds,omitempty"`
	MaxPods                   int64             `json:"maxPods,omitempty"`
	PodsPerCore               int64             `json:"podsPerCore,omitempty"`
	KubeReserved              map[string]string `json:"kubeReserved,omitempty"`
	SystemReserved            map[string]string `json:"systemReserved,omitempty"`
	SeccompDefault            *bool             `json:"seccompDefault,omitempty"`
	StaticPodPath             string            `json:"staticPodPath,omitempty"`
	ContainerLogMaxSize       string            `json:"containerLogMaxSize,omitempty"`
	ContainerLogMaxFiles      *int32            `json:"containerLogMaxFiles,omitempty"`
	Logging                   loggingConfig     `json:"logging,omitempty"`

	placeKeys
	nameKeys
	resourceKeys
	securityKeys
	imageKeys
	evictionKeys

	pageKeys
	serviceKeys
	networkKeys
	powerKeys
	clockKeys
	diskKeys
	deviceKeys
}

// FirstFile is written at the first start if there is no file: an empty file means no grace at all (N-5.7),
// which nobody wants on a board.
const FirstFile = `# ledge's configuration. Keys are those of KubeletConfiguration.
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
# Images of boards often come with a swap file or zram. Pods do not get any of it (memorySwap.swapBehavior: NoSwap).
failSwapOn: false
`

// DefaultPath is the machine's own configuration.
const DefaultPath = "/etc/ledge/config.yaml"

// Load reads the file. The one at the default path may be missing: it is taken as it will be written.
func Load(path, dir string, last ...string) (File, error) {
	var cfg File
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && path == DefaultPath {
		data, err = []byte(FirstFile), nil
	}
	if err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	return withDropIns(path, data, dir, last...)
}

// KeepFirst writes what this board runs with, now that it does, for people to find and change. A board whose root is
// read-only does without.
func KeepFirst(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = durable.Replace(path, []byte(FirstFile), 0o644)
	}
	if errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}

func (c File) check() error {
	if err := c.checkNode(); err != nil {
		return err
	}
	if err := c.clockKeys.check(); err != nil {
		return err
	}
	if err := c.diskKeys.check(); err != nil {
		return err
	}
	if err := c.deviceKeys.check(); err != nil {
		return err
	}
	if err := c.pageKeys.check(); err != nil {
		return err
	}
	if err := errors.Join(c.serviceKeys.check(), c.networkKeys.check()); err != nil {
		return err
	}
	if err := c.powerKeys.check(c.FeatureGates); err != nil {
		return err
	}
	if err := c.placeKeys.check(); err != nil {
		return err
	}
	if err := c.nameKeys.check(); err != nil {
		return err
	}
	if err := c.securityKeys.check(); err != nil {
		return err
	}
	if _, err := reserved(c.KubeReserved); err != nil {
		return fmt.Errorf("kubeReserved: %w", err)
	}
	if _, err := reserved(c.SystemReserved); err != nil {
		return fmt.Errorf("systemReserved: %w", err)
	}
	if _, err := c.Logs(); err != nil {
		return err
	}
	if _, _, err := c.evictionKeys.policy(); err != nil {
		return err
	}
	if err := c.imageKeys.check(); err != nil {
		return err
	}
	return c.resourceKeys.check()
}

var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

// reserved reads a reservation (N-1.60).
func reserved(in map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for name, text := range in {
		if !slices.Contains(reservable, name) {
			return nil, fmt.Errorf("%q cannot be reserved: only %s", name, strings.Join(reservable, ", "))
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%s: %q is not a quantity of 0 or more", name, text)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

// parseTaints reads --register-with-taints: key=value:effect or key:effect, separated by commas (N-1.18).
func parseTaints(text string) ([]corev1.Taint, error) {
	var out []corev1.Taint
	for _, item := range splitList(text) {
		spec, effect, _ := strings.Cut(item, ":")
		key, value, _ := strings.Cut(spec, "=")
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return out, checkTaints(out)
}

// reservedLabels are the kubernetes.io keys --node-labels may set (N-1.24).
var reservedLabels = []string{corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
	corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch"}

// parseLabels reads --node-labels (N-1.23).
func parseLabels(text string) (map[string]string, error) {
	out := map[string]string{}
	for _, item := range splitList(text) {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("label %q: write key=value", item)
		}
		if msgs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(msgs) > 0 {
			return nil, fmt.Errorf("label %q: %s", item, strings.Join(msgs, "; "))
		}
		if !labelAllowed(key) {
			return nil, fmt.Errorf("label %q: the prefixes kubernetes.io and k8s.io are reserved; set it through the API instead", item)
		}
		out[key] = value
	}
	return out, nil
}

func labelAllowed(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	if !ok || !within(prefix, "kubernetes.io") && !within(prefix, "k8s.io") || slices.Contains(reservedLabels, key) {
		return true
	}
	return within(prefix, "kubelet.kubernetes.io") || within(prefix, "node.kubernetes.io")
}

func within(prefix, domain string) bool {
	return prefix == domain || strings.HasSuffix(prefix, "."+domain)
}

// parseNodeIPs reads --node-ip (N-1.20).
func parseNodeIPs(text string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, item := range splitList(text) {
		ip, err := netip.ParseAddr(decimal(item))
		if err != nil {
			continue // dropped with a warning by the caller: it counts what came back
		}
		out = append(out, ip.Unmap())
	}
	if len(out) > 2 || len(out) == 2 && out[0].Is4() == out[1].Is4() {
		return nil, errors.New("must contain either a single IP or a dual-stack pair of IPs")
	}
	if len(out) == 2 && (out[0].IsUnspecified() || out[1].IsUnspecified()) {
		return nil, fmt.Errorf("dual-stack %q cannot include '0.0.0.0' or '::'", text)
	}
	return out, nil
}

// decimal reads an IPv4 address with leading zeros as Kubernetes' clients do: 010 is ten.
func decimal(ip string) string {
	if strings.Contains(ip, ":") {
		return ip
	}
	parts := strings.Split(ip, ".")
	for i, p := range parts {
		if short := strings.TrimLeft(p, "0"); p != "" {
			parts[i] = cmp.Or(short, "0")
		}
	}
	return strings.Join(parts, ".")
}

func splitList(text string) []string {
	var out []string
	for _, item := range strings.Split(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// NodeName follows N-1.16 and N-1.17.
func NodeName(hostname, override string) (string, error) {
	name := hostname
	if override != "" {
		name = override
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", errors.New("empty hostname is invalid; give one with --hostname-override")
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return "", fmt.Errorf("node name %q is not valid (%s); give one with --hostname-override", name, strings.Join(msgs, "; "))
	}
	return name, nil
}

// status turns the file into the agent's own configuration.
func (c File) status() (poster.StatusConfig, error) {
	out := poster.StatusConfig{UpdateEvery: c.NodeStatusUpdateFrequency.Duration, ReportEvery: c.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second, MaxPods: c.MaxPods, PodsPerCore: c.PodsPerCore}
	if out.UpdateEvery != 0 && out.ReportEvery == 0 { // N-1.26
		out.ReportEvery = out.UpdateEvery
	}
	var err error
	if out.KubeReserved, err = reserved(c.KubeReserved); err != nil {
		return out, err
	}
	if out.SysReserved, err = reserved(c.SystemReserved); err != nil {
		return out, err
	}
	out.WorkingSet = c.EvictionMemorySignal == workingSet
	out.Eviction, _, err = c.evictionKeys.policy()
	return out, err
}
