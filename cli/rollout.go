package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/apps"
	"ledge/config"
)

type rolloutOpts struct {
	namespace string
	revision  int64
	watch     bool
	timeout   time.Duration
}

func rolloutFlags(c *Command) {
	o := &rolloutOpts{}
	namespaceFlag(c, &o.namespace)
	c.Flags.Int64Var(&o.revision, "revision", 0, "history: show the template of this one; undo: go back to it. 0: all, or the one before")
	c.Flags.BoolVar(&o.watch, "wait", true, "status: return when the rollout is done")
	c.Flags.DurationVar(&o.timeout, "timeout", 0, "status: wait no longer than this; 0: for ever")
	c.Opts = o
}

// roller describes a kind of objects with rollouts to the verb rollout.
type roller struct {
	kind *api.Kind
	// status says how far a rollout is, and whether it is done; err: it is stuck.
	status func(api.Object) (says string, done bool, err error)
	// revisions are the templates that the object has had, and its present one, the oldest first.
	revisions func(context.Context, api.Client, api.Object) ([]revision, error)
	// pause stops an object's rollouts, or has them go on; nil: they cannot be stopped.
	pause func(api.Object, bool)
}

// revision is one template that an object has had.
type revision struct {
	number   int64
	cause    string // that somebody gave for it
	template *corev1.PodTemplateSpec
	now      bool
}

func rollers() []roller {
	return []roller{
		{apps.Deployments, deploymentStatus, deploymentRevisions, pauseDeployment},
		{apps.StatefulSets, statefulSetStatus, rememberedBy(apps.StatefulSets), nil},
		{apps.DaemonSets, daemonSetStatus, rememberedBy(apps.DaemonSets), nil},
	}
}

const (
	changeCause = "kubernetes.io/change-cause"
	// restartedAt is written into a template to have its pods replaced. kubectl writes it too.
	restartedAt = "kubectl.kubernetes.io/restartedAt"
)

// rollout looks at how the pods of an object are replaced by those of another template, and steers it.
func rollout(ctx context.Context, c *Command) error {
	deeds := map[string]func(*rolling, context.Context) error{"status": (*rolling).follow, "history": (*rolling).history,
		"undo": (*rolling).undo, "restart": (*rolling).restart,
		"pause":  func(r *rolling, ctx context.Context) error { return r.hold(ctx, true) },
		"resume": func(r *rolling, ctx context.Context) error { return r.hold(ctx, false) }}
	if len(c.args) < 2 || deeds[c.args[0]] == nil {
		return config.Usagef("rollout: write status, history, undo, pause, resume or restart, and of what: ledge rollout status deployment NAME")
	}
	kind, name, err := kindAndName(c.args[1:])
	if err != nil {
		return err
	}
	i := slices.IndexFunc(rollers(), func(r roller) bool { return r.kind == kind })
	switch {
	case i < 0:
		return config.Usagef("rollout: %s have no rollouts", kind.Resource)
	case name == "":
		return config.Usagef("rollout: name the %s", kind.Singular)
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	obj, err := cl.Get(ctx, kind, c.Opts.(*rolloutOpts).namespace, name)
	if err != nil {
		return err
	}
	return deeds[c.args[0]](&rolling{roller: rollers()[i], out: c.out, opts: c.Opts.(*rolloutOpts), cl: cl, obj: obj}, ctx)
}

// rolling is one object whose pods are replaced.
type rolling struct {
	roller
	out  io.Writer
	opts *rolloutOpts
	cl   api.Client
	obj  api.Object // as last read
}

// String names the object.
func (r *rolling) String() string { return r.kind.Singular + "/" + r.obj.GetName() }

func (r *rolling) follow(ctx context.Context) error {
	if r.opts.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.opts.timeout)
		defer cancel()
	}
	for said := ""; ; {
		says, done, err := r.status(r.obj)
		if says != said && says != "" {
			say(r.out, "%s\n", says)
		}
		if done || err != nil || !r.opts.watch {
			return err
		}
		said = says
		select {
		case <-ctx.Done():
			return fmt.Errorf("the rollout of %s is not done after %v: ledge describe %s %s", r, r.opts.timeout, r.kind.Singular, r.obj.GetName())
		case <-time.After(200 * time.Millisecond):
		}
		now, err := r.cl.Get(ctx, r.kind, r.obj.GetNamespace(), r.obj.GetName())
		if err == nil {
			r.obj = now
		} else if ctx.Err() == nil {
			return err
		}
	}
}

func (r *rolling) history(ctx context.Context) error {
	all, err := r.revisions(ctx, r.cl, r.obj)
	if err != nil {
		return err
	}
	if n := r.opts.revision; n != 0 {
		i := slices.IndexFunc(all, func(rev revision) bool { return rev.number == n })
		if i < 0 {
			return r.noRevision(n, all)
		}
		data, err := visibleYAML(all[i].template)
		if err != nil {
			return err
		}
		_, err = r.out.Write(data)
		return err
	}
	w := tabwriter.NewWriter(r.out, 0, 8, 3, ' ', 0)
	row(w, "REVISION", "CHANGE-CAUSE")
	for _, rev := range all {
		cause := rev.cause
		if cause == "" {
			cause = "<none>"
		}
		row(w, rev.number, cause)
	}
	return w.Flush()
}

func (r *rolling) noRevision(n int64, all []revision) error {
	var there []string
	for _, rev := range all {
		there = append(there, fmt.Sprint(rev.number))
	}
	return fmt.Errorf("%s has no revision %d; there are %s", r, n, strings.Join(there, ", "))
}

// undo gives the object a template back that it has had.
func (r *rolling) undo(ctx context.Context) error {
	all, err := r.revisions(ctx, r.cl, r.obj)
	if err != nil {
		return err
	}
	to, err := r.goBackTo(all)
	if err != nil {
		return err
	}
	if to.now {
		_, err := say(r.out, "%s is at revision %d\n", r, to.number)
		return err
	}
	return r.change(ctx, fmt.Sprintf("rolled back to revision %d", to.number), func(obj api.Object) {
		*r.kind.Template(obj) = *to.template
		annotate(obj, changeCause, to.cause)
	})
}

// goBackTo is the revision that is asked for; none: the newest but the present one.
func (r *rolling) goBackTo(all []revision) (revision, error) {
	n := r.opts.revision
	for _, rev := range slices.Backward(all) {
		if rev.number == n || n == 0 && !rev.now {
			return rev, nil
		}
	}
	if n == 0 {
		return revision{}, fmt.Errorf("%s has had no other template", r)
	}
	return revision{}, r.noRevision(n, all)
}

// annotate gives an object, or a template, an annotation; an empty one is taken away.
func annotate(it interface {
	GetAnnotations() map[string]string
	SetAnnotations(map[string]string)
}, key, value string) {
	all := maps.Clone(it.GetAnnotations())
	if all == nil {
		all = map[string]string{}
	}
	if all[key] = value; value == "" {
		delete(all, key)
	}
	it.SetAnnotations(all)
}

// hold stops the object's rollouts, or has them go on.
func (r *rolling) hold(ctx context.Context, on bool) error {
	if r.pause == nil {
		return config.Usagef("rollout: those of %s cannot be paused", r.kind.Resource)
	}
	done := "resumed"
	if on {
		done = "paused"
	}
	return r.change(ctx, done, func(obj api.Object) { r.pause(obj, on) })
}

// restart has all pods replaced, though their template says the same.
func (r *rolling) restart(ctx context.Context) error {
	now := time.Now().UTC().Format(time.RFC3339)
	return r.change(ctx, "restarted", func(obj api.Object) { annotate(r.kind.Template(obj), restartedAt, now) })
}

// changeTries is how often a change is made again to an object that somebody else has changed.
const changeTries = 10

func (r *rolling) change(ctx context.Context, done string, edit func(api.Object)) error {
	for try := 1; ; try++ {
		edit(r.obj)
		_, err := r.cl.Update(ctx, r.kind, r.obj, api.WriteOptions{Manager: "ledge"})
		if apierrors.IsConflict(err) && try < changeTries {
			var now api.Object
			if now, err = r.cl.Get(ctx, r.kind, r.obj.GetNamespace(), r.obj.GetName()); err == nil {
				r.obj = now
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("change %s: %w", r, err)
		}
		_, err = say(r.out, "%s %s\n", r, done)
		return err
	}
}
