package probe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestState: what counts before the first run, and how many results in a row change it (N-7.34, N-7.35).
func TestState(t *testing.T) {
	for _, tc := range []struct {
		name     string
		kind     Kind
		known    bool
		probe    corev1.Probe
		runs     string // + success, - failure
		counts   string // after each run: + - or . for unknown
		heldLast bool
	}{
		{name: "liveness begins alive", kind: Liveness, runs: "--+---", counts: "+++++-", heldLast: true},
		{name: "readiness begins unready", kind: Readiness, runs: "+--+---", counts: "++++++-"},
		{name: "startup begins unknown", kind: Startup, probe: corev1.Probe{FailureThreshold: 2}, runs: "-+", counts: ".+"},
		{name: "startup fails", kind: Startup, probe: corev1.Probe{FailureThreshold: 2}, runs: "--", counts: ".-", heldLast: true},
		{name: "success has a threshold", kind: Readiness, probe: corev1.Probe{SuccessThreshold: 3, FailureThreshold: 1},
			runs: "++-++++-", counts: "-----++-"},
		{name: "one failure", kind: Liveness, probe: corev1.Probe{FailureThreshold: 1}, runs: "+-", counts: "+-", heldLast: true},
		{name: "it was ready", kind: Readiness, known: true, runs: "--+", counts: "+++"},
		{name: "it had started", kind: Startup, known: true, runs: "", counts: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := begin(tc.kind, tc.known)
			if tc.known && s.result != Success {
				t.Errorf("begins with %q", s.result)
			}
			got := ""
			for _, c := range tc.runs {
				r := Success
				if c == '-' {
					r = Failure
				}
				s = s.after(tc.kind, &tc.probe, r)
				got += map[Result]string{Unknown: ".", Success: "+", Failure: "-"}[s.result]
			}
			if got != tc.counts || s.held != tc.heldLast {
				t.Errorf("runs %s: counts %s, want %s; held: %v", tc.runs, got, tc.counts, s.held)
			}
		})
	}
}

func TestFirstRun(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, tc := range []struct {
		kind  Kind
		probe corev1.Probe
		want  int
	}{
		{Readiness, corev1.Probe{PeriodSeconds: 10}, 0},
		{Readiness, corev1.Probe{PeriodSeconds: 10, InitialDelaySeconds: 7}, 7},
		{Liveness, corev1.Probe{}, 10},
		{Liveness, corev1.Probe{PeriodSeconds: 3, InitialDelaySeconds: 15}, 15},
		{Startup, corev1.Probe{PeriodSeconds: 1}, 1},
	} {
		if got := firstRun(tc.kind, &tc.probe, at); got.Sub(at) != time.Duration(tc.want)*time.Second {
			t.Errorf("%s %+v: after %s, want %d s", tc.kind, tc.probe, got.Sub(at), tc.want)
		}
	}
}

// FuzzHealthResponse: whatever a container answers is read without harm, and what Go's own encoder makes is understood.
func FuzzHealthResponse(f *testing.F) {
	f.Add([]byte{8, 1})
	f.Add([]byte{})
	f.Add([]byte{18, 1, 'x', 8, 2})
	f.Add([]byte{18, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := healthResponse(b); err == nil && s == "" {
			t.Errorf("%v: no status and no error", b)
		}
	})
}

func TestHealthMessages(t *testing.T) {
	for in, want := range map[string]string{"\x08\x01": "SERVING", "\x08\x02": "NOT_SERVING", "": "UNKNOWN", "\x08\x03": "SERVICE_UNKNOWN",
		"\x12\x01x\x08\x01": "SERVING", "\x08\x09": "9", "\x15aaaa\x08\x01": "SERVING", "\x11aaaaaaaa\x08\x02": "NOT_SERVING"} {
		if got, err := healthResponse([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"\x0b", "\x12\x7fx", "\x08", "\x00\x01"} {
		if got, err := healthResponse([]byte(bad)); err == nil {
			t.Errorf("%q was read as %q", bad, got)
		}
	}
	if got := string(healthRequest("ab")); got != "\x0a\x02ab" {
		t.Errorf("request %q", got)
	}
}
