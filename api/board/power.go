package board

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Shutdown is the answer of GET /ledge/v1/shutdown.
type Shutdown struct {
	Running bool         `json:"running"`
	Stopped bool         `json:"stopped"` // the pods have been stopped, the board takes no new ones
	Source  string       `json:"source,omitempty"`
	Due     *metav1.Time `json:"due,omitempty"` // a shutdown is asked for
	Until   *metav1.Time `json:"until,omitempty"`
	Backend string       `json:"backend"`
	Lock    Lock         `json:"lock"`
	Sources []string     `json:"sources"` // that would hear of a shutdown
	Last    struct {
		Begun *metav1.Time `json:"begun,omitempty"`
		Ended *metav1.Time `json:"ended,omitempty"`
	} `json:"last"`
	Plan Plan `json:"plan"`
}

// Lock says whether logind really waits: elsewhere this fails in silence (N-5.39).
type Lock struct {
	Unit           bool   `json:"unit"` // the node runs as a unit of systemd
	Held           bool   `json:"held"`
	GrantedSeconds int64  `json:"grantedSeconds"`
	WantedSeconds  int64  `json:"wantedSeconds"`
	Error          string `json:"error,omitempty"`
}

// Plan says who stops when, in stages one after the other.
type Plan struct {
	TotalSeconds  float64 `json:"totalSeconds"`
	WantedSeconds float64 `json:"wantedSeconds"`
	Stages        []Stage `json:"stages"`
}

// Stage is the pods that stop together.
type Stage struct {
	Priority int32     `json:"priority"`
	Seconds  float64   `json:"seconds"`
	Pods     []PodStop `json:"pods"`
}

// PodStop is one pod, and how long it may take to stop.
type PodStop struct {
	Pod      string  `json:"pod"`
	Priority int32   `json:"priority"`
	Seconds  float64 `json:"seconds"`
}

// SafeMode is the answer of GET /ledge/v1/safemode.
type SafeMode struct {
	Why string `json:"why,omitempty"` // empty: it is not in safe mode
	// Authority is why the certificate authority is another than the node had; empty: it is the same. DELETE takes it as it is.
	Authority string `json:"authority,omitempty"`
}
