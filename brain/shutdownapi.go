package brain

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api/board"
	"ledge/shutdown"
)

var shutdownResource = schema.GroupResource{Group: "ledge", Resource: "shutdown"}

func (p *power) report() board.Shutdown {
	st := p.manager.Status()
	out := board.Shutdown{Running: st.Running, Stopped: st.Stopped, Source: st.Source, Due: optionalTime(p.requests.Due()),
		Until: optionalTime(st.Until), Backend: string(p.cfg.PowerBackend)}
	if out.Backend == "" {
		out.Backend = "logind, else direct"
	}
	out.Sources = p.manager.Live()
	out.Lock.Error = "this node is no unit of systemd: a shutdown is noticed by SIGTERM, or asked for by 'ledge shutdown'"
	out.Lock.WantedSeconds = int64(p.cfg.File.Shutdown().Total().Seconds())
	if p.logind != nil {
		out.Lock.Unit = true
		l := p.logind.Status()
		out.Lock.Held, out.Lock.GrantedSeconds, out.Lock.Error = l.Held, int64(l.Granted.Seconds()), ""
		if l.Err != nil {
			out.Lock.Error = l.Err.Error()
		}
	}
	out.Last.Begun, out.Last.Ended = optionalTime(st.Last.Begun), optionalTime(st.Last.Ended)
	out.Plan = reportPlan(p.manager.Plan())
	return out
}

func reportPlan(p shutdown.Plan) board.Plan {
	out := board.Plan{TotalSeconds: p.Total().Seconds(), WantedSeconds: p.Wanted.Seconds(), Stages: []board.Stage{}}
	for _, s := range p.Stages {
		stage := board.Stage{Priority: s.Priority, Seconds: s.Period.Seconds()}
		for _, p := range s.Pods {
			stage.Pods = append(stage.Pods, board.PodStop{Pod: p.Namespace + "/" + p.Name, Priority: p.Priority, Seconds: p.Grace.Seconds()})
		}
		out.Stages = append(out.Stages, stage)
	}
	return out
}

func optionalTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// takeBack refuses what it cannot do: a machine that is going down on another's word goes on doing so.
func (p *power) takeBack() error {
	wanted := p.manager.Status().Wanted
	others := slices.DeleteFunc(slices.Clone(wanted), func(s string) bool { return s == shutdown.RequestSource })
	switch {
	case len(others) > 0:
		return fmt.Errorf("this shutdown is wanted by %s and can only be cancelled there", strings.Join(others, ", "))
	case len(wanted) == 0 && p.requests.Due().IsZero():
		return errors.New("there is no shutdown to cancel")
	}
	return p.requests.Cancel()
}

func (b *boardAPI) showShutdown(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, b.power.report())
}

func (b *boardAPI) askShutdown(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	in, err := time.ParseDuration(q.Get("in"))
	if err != nil || in < 0 {
		return apierrors.NewBadRequest("in: how long to wait, such as 0s or 5m")
	}
	if err := b.power.requests.Ask(in, q.Get("reboot") == "true"); err != nil {
		return apierrors.NewConflict(shutdownResource, "", err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (b *boardAPI) cancelShutdown(w http.ResponseWriter, _ *http.Request) error {
	if err := b.power.takeBack(); err != nil {
		return apierrors.NewConflict(shutdownResource, "", err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
