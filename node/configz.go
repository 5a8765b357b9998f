package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/node/pressure"
)

// configz is a kubelet's /configz: what holds on this board, as KubeletConfiguration spells it. What has no meaning here is
// left out, and so are ledge's own keys: passwords may be among them.
type configz struct {
	Kubeletconfig kubeletConfig `json:"kubeletconfig"`
}

type kubeletConfig struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`

	Port           uint16 `json:"port"`
	ReadOnlyPort   int    `json:"readOnlyPort"` // ledge has none
	Authentication struct {
		Anonymous struct {
			Enabled bool `json:"enabled"` // never
		} `json:"anonymous"`
	} `json:"authentication"`

	NodeStatusUpdateFrequency metav1.Duration     `json:"nodeStatusUpdateFrequency"`
	NodeStatusReportFrequency metav1.Duration     `json:"nodeStatusReportFrequency"`
	NodeLeaseDurationSeconds  int64               `json:"nodeLeaseDurationSeconds"`
	MaxPods                   int64               `json:"maxPods"`
	PodsPerCore               int64               `json:"podsPerCore"`
	PodPidsLimit              int64               `json:"podPidsLimit"`
	KubeReserved              corev1.ResourceList `json:"kubeReserved,omitempty"`
	SystemReserved            corev1.ResourceList `json:"systemReserved,omitempty"`

	EvictionHard                     map[string]string `json:"evictionHard,omitempty"`
	EvictionSoft                     map[string]string `json:"evictionSoft,omitempty"`
	EvictionSoftGracePeriod          map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMinimumReclaim           map[string]string `json:"evictionMinimumReclaim,omitempty"`
	EvictionPressureTransitionPeriod metav1.Duration   `json:"evictionPressureTransitionPeriod"`
	EvictionMaxPodGracePeriod        int32             `json:"evictionMaxPodGracePeriod"`

	ClusterDomain        string          `json:"clusterDomain"`
	ClusterDNS           []string        `json:"clusterDNS,omitempty"`
	CPUCFSQuota          bool            `json:"cpuCFSQuota"`
	CPUCFSQuotaPeriod    metav1.Duration `json:"cpuCFSQuotaPeriod"`
	SingleProcessOOMKill bool            `json:"singleProcessOOMKill"`
	SeccompDefault       bool            `json:"seccompDefault"`
	ContainerLogMaxSize  string          `json:"containerLogMaxSize,omitempty"`
	ContainerLogMaxFiles int             `json:"containerLogMaxFiles,omitempty"`
}

func (u usage) configz() ([]byte, error) {
	cfg := &u.a.cfg
	st := cfg.Status.WithDefaults()
	every := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	k := kubeletConfig{
		Kind: "KubeletConfiguration", APIVersion: "kubelet.config.k8s.io/v1beta1", Port: st.Port,
		NodeStatusUpdateFrequency:        every(st.UpdateEvery),
		NodeStatusReportFrequency:        every(st.ReportEvery),
		NodeLeaseDurationSeconds:         int64(cmp.Or(st.LeaseDuration, 40*time.Second) / time.Second),
		MaxPods:                          st.MaxPods,
		PodsPerCore:                      st.PodsPerCore,
		PodPidsLimit:                     cmp.Or(cfg.Resources.PodPids, -1),
		KubeReserved:                     st.KubeReserved,
		SystemReserved:                   st.SysReserved,
		EvictionPressureTransitionPeriod: every(st.Eviction.Transition),
		EvictionMaxPodGracePeriod:        int32(st.Eviction.MaxPodGrace / time.Second),
		ClusterDomain:                    cmp.Or(cfg.ClusterDomain, "cluster.local"),
		CPUCFSQuota:                      !cfg.Resources.NoCPUQuota,
		CPUCFSQuotaPeriod:                every(cmp.Or(cfg.Resources.CPUPeriod, 100*time.Millisecond)),
		SingleProcessOOMKill:             cfg.Resources.OneByOne,
		SeccompDefault:                   !cfg.Unconfined,
		ContainerLogMaxFiles:             cfg.Logs.MaxFiles,
	}
	if cfg.Logs.MaxBytes > 0 {
		k.ContainerLogMaxSize = strconv.FormatInt(cfg.Logs.MaxBytes, 10)
	}
	if cfg.ClusterDNS != nil {
		k.ClusterDNS = cfg.ClusterDNS()
	}
	k.evictions(st.Eviction.Thresholds)
	return json.Marshal(configz{k})
}

func (k *kubeletConfig) evictions(all []pressure.Threshold) {
	set := func(m *map[string]string, signal pressure.Signal, v string) {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[string(signal)] = v
	}
	for _, t := range all {
		if t.Soft {
			set(&k.EvictionSoft, t.Signal, limitText(t.Below))
			set(&k.EvictionSoftGracePeriod, t.Signal, t.Grace.String())
		} else {
			set(&k.EvictionHard, t.Signal, limitText(t.Below))
		}
		if t.Reclaim != (pressure.Limit{}) {
			set(&k.EvictionMinimumReclaim, t.Signal, limitText(t.Reclaim))
		}
	}
}

// limitText is a limit as KubeletConfiguration writes it. The smaller of an amount and a share, which ledge's own default is, it
// cannot say: then it is the amount.
func limitText(l pressure.Limit) string {
	if l.Amount == 0 && l.Percent > 0 {
		return fmt.Sprintf("%.4g%%", l.Percent*100)
	}
	return resource.NewQuantity(l.Amount, cmp.Or(l.Format, resource.BinarySI)).String()
}
