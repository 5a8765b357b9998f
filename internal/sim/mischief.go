package sim

import (
	"bytes"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/board"
	"ledge/images/imagestest"
)

// How a board of mischief is kept.
const (
	keptPods = 20
	recovery = 2 * time.Minute // after the end of any fault
)

// Mischief does things to the board for a time, as the seed says, and has it settle after each.
func (b *Board) Mischief(long time.Duration) {
	b.t.Helper()
	end := time.Now().Add(long)
	for n := 0; time.Now().Before(end) && !b.Broken(); n++ {
		b.stock(n)
		b.Settle(recovery)
		d := deeds[b.Rand.IntN(len(deeds))]
		b.Logf("%s", d.name)
		d.do(b)
		b.Settle(recovery)
		b.Pass(time.Duration(1+b.Rand.IntN(40*60)) * time.Second)
		b.Settle(recovery)
	}
}

// deeds are what may happen to a board, each as likely as the others.
var deeds = []struct {
	name string
	do   func(*Board)
}{
	{"kill -9 the brain", func(b *Board) { b.untouched((*Board).KillBrain) }},
	{"kill -9 the brain in the middle of things", func(b *Board) { b.stir(); b.Pass(b.upTo(3 * time.Second)); b.KillBrain() }},
	{"kill -9 the brain again and again", func(b *Board) {
		for range 4 {
			b.stir()
			b.Pass(b.upTo(time.Second))
			b.KillBrain()
		}
	}},
	{"restart the brain", func(b *Board) { b.untouched((*Board).Restart) }},
	{"cut the power", (*Board).CutPower},
	{"cut the power in the middle of things", func(b *Board) { b.stir(); b.Pass(b.upTo(3 * time.Second)); b.CutPower() }},
	{"power off and on", (*Board).PowerOff},
	{"restart the keeper", func(b *Board) { b.KeeperAway(b.upTo(20 * time.Second)) }},
	{"lose the keeper for long", func(b *Board) { b.stir(); b.KeeperAway(time.Minute + b.upTo(10*time.Minute)) }},
	{"cut the uplink for a moment", func(b *Board) { b.CutUplink(b.upTo(30 * time.Second)) }},
	{"cut the uplink for long", func(b *Board) { b.CutUplink(time.Minute + b.upTo(20*time.Minute)) }},
	{"break the pod network", func(b *Board) { b.NetworkDown(b.upTo(5 * time.Minute)) }},
	{"fill the disk", func(b *Board) { b.FillDisk(b.upTo(10*time.Minute), nil) }},
	{"fill the disk and kill the brain", func(b *Board) { b.FillDisk(b.upTo(10*time.Minute), b.KillBrain) }},
	{"fill the disk and cut the power", func(b *Board) { b.FillDisk(b.upTo(10*time.Minute), b.CutPower) }},
	{"kill containers", func(b *Board) { b.eachSome(func(p *corev1.Pod) { b.KillContainer(p.UID) }) }},
	{"kill containers while the uplink is cut", func(b *Board) {
		b.eachSome(func(p *corev1.Pod) { b.KillContainer(p.UID) })
		b.CutUplink(b.upTo(2 * time.Minute))
	}},
	{"change images", func(b *Board) { b.eachSome(b.changeImage) }},
	{"delete pods", func(b *Board) { b.eachSome(func(p *corev1.Pod) { b.Delete(p.Name, b.someGrace()) }) }},
	{"delete pods and kill the brain", func(b *Board) {
		b.eachSome(func(p *corev1.Pod) { b.Delete(p.Name, b.someGrace()) })
		b.Pass(b.upTo(4 * time.Second))
		b.KillBrain()
	}},
	{"delete pods while the uplink is cut", func(b *Board) {
		b.brain.uplink.set(true)
		b.eachSome(func(p *corev1.Pod) { b.Delete(p.Name, b.someGrace()) })
		b.CutUplink(b.upTo(2 * time.Minute))
	}},
	{"pods take all there is", func(b *Board) { b.Hogs(nil, false) }},
	{"pods take all there is, kill -9 the brain", func(b *Board) { b.Hogs((*Board).KillBrain, false) }},
	{"pods take all there is, cut the power", func(b *Board) { b.Hogs((*Board).CutPower, false) }},
	{"pods take all there is, lose the keeper", func(b *Board) { b.Hogs(func(b *Board) { b.KeeperAway(b.upTo(2 * time.Minute)) }, true) }},
	{"pods take all there is, cut the uplink", func(b *Board) { b.Hogs(func(b *Board) { b.CutUplink(b.upTo(10 * time.Minute)) }, false) }},
	{"pods take all there is, be busy", func(b *Board) { b.Hogs((*Board).stir, false) }},
	{"lose an image", func(b *Board) { b.awaitImage() }},
	{"nothing", func(*Board) {}},
}

// untouched does something that concerns no pod: those that just run are not even written, and the node stays ready.
func (b *Board) untouched(do func(*Board)) {
	steady := func() map[types.UID]string {
		out := map[types.UID]string{}
		for _, p := range b.Pods() {
			if p.Labels[wantLabel] == WantSteady {
				out[p.UID] = p.ResourceVersion
			}
		}
		return out
	}
	before, ready := steady(), readySince(b.Node())
	do(b)
	b.Pass(5 * time.Second)
	if now := readySince(b.Node()); !now.Equal(ready) {
		b.Errorf("the node was not ready for a moment: ready since %s, before since %s", now, ready)
	}
	for uid, rev := range steady() {
		if was, ok := before[uid]; ok && was != rev {
			b.Errorf("pod %s was written: revision %s, was %s", uid, rev, was)
		}
	}
}

func readySince(n *corev1.Node) time.Time {
	if c := api.NodeCondition(n, corev1.NodeReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func (b *Board) upTo(d time.Duration) time.Duration {
	return time.Duration(b.Rand.Int64N(int64(d))).Truncate(time.Millisecond)
}

// stir makes the board busy.
func (b *Board) stir() {
	b.eachSome(func(p *corev1.Pod) { b.KillContainer(p.UID) })
	b.eachSome(func(p *corev1.Pod) { b.Delete(p.Name, b.someGrace()) })
	b.stock(b.Rand.IntN(1 << 30))
}

func (b *Board) someGrace() *int64 {
	switch b.Rand.IntN(3) {
	case 0:
		zero := int64(0)
		return &zero
	case 1:
		one := int64(1)
		return &one
	}
	return nil
}

// eachSome does something to a few pods.
func (b *Board) eachSome(do func(*corev1.Pod)) {
	for _, p := range b.Pods() {
		if b.Rand.IntN(5) == 0 && p.DeletionTimestamp == nil {
			do(p)
		}
	}
}

// changeImage gives a pod the other image.
func (b *Board) changeImage(p *corev1.Pod) {
	image := map[string]string{ImageOne: ImageTwo, ImageTwo: ImageOne}[p.Spec.Containers[0].Image]
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"c","image":%q}]}}`, image)
	_, err := b.brain.user.Patch(b.ctx, api.Pods, p.Namespace, p.Name,
		api.Patch{Type: types.StrategicMergePatchType, Data: []byte(patch)}, api.WriteOptions{})
	b.must(err, "change the image of "+p.Name)
	if p.Spec.RestartPolicy == corev1.RestartPolicyNever {
		b.starts.mayRepeat(string(p.UID))
	}
}

// awaitImage has a pod wait for an image that comes later.
func (b *Board) awaitImage() {
	const name = "sim.local/late:v1"
	p := Pod("late", WantSteady, corev1.RestartPolicyAlways, "run")
	p.Spec.Containers[0].Image = name
	b.Delete(p.Name, new(int64))
	b.Pass(5 * time.Second)
	b.Apply(p)
	b.Pass(b.upTo(time.Hour))
	if b.phase(p.Name) != corev1.PodPending {
		b.Errorf("pod %s is %s without its image", p.Name, b.phase(p.Name))
	}
	archive := imagestest.OCI(imagestest.Sample(name))
	b.must(b.brain.ask(board.ImagesPath, nil, bytes.NewReader(archive)), "import the image")
	b.Settle(10 * time.Second) // at once, not after the back-off
	b.Delete(p.Name, nil)
	b.Settle(time.Minute)
	b.must(b.images.Remove(b.ctx, name), "remove the image")
}

func (b *Board) phase(name string) corev1.PodPhase {
	for _, p := range b.Pods() {
		if p.Name == name {
			return p.Status.Phase
		}
	}
	return ""
}

// stock brings the board back to its number of pods, of all sorts.
func (b *Board) stock(n int) {
	live := 0
	for _, p := range b.Pods() {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			live++
		}
	}
	for i := range keptPods - live {
		b.Apply(b.somePod(fmt.Sprintf("p-%d-%d", n, i)))
	}
}

// somePod is one of the sorts of pods that boards run.
func (b *Board) somePod(name string) *corev1.Pod {
	switch b.Rand.IntN(13) {
	case 8:
		p := probed(Pod(name, WantSteady, corev1.RestartPolicyAlways, "run", "stop=1s"))
		p.Spec.AutomountServiceAccountToken = nil
		return p
	case 9:
		p := Pod(name, WantSteady, corev1.RestartPolicyAlways, "run")
		p.Spec.InitContainers = []corev1.Container{sidecar("first"), {Name: "second", Image: ImageTwo, Command: []string{"exit=1s:0"}},
			sidecar("third")}
		return probed(p)
	case 10:
		p := Pod(name, WantEnd, corev1.RestartPolicyOnFailure, fmt.Sprintf("exit=%s:0", b.upTo(time.Hour)))
		p.Spec.InitContainers = []corev1.Container{sidecar("side")}
		return p
	case 0:
		return Pod(name, WantCrash, corev1.RestartPolicyAlways, fmt.Sprintf("exit=%s:1", b.upTo(time.Minute)))
	case 1:
		return Pod(name, WantEnd, corev1.RestartPolicyNever, fmt.Sprintf("exit=%s:0", b.upTo(time.Hour)))
	case 2:
		return Pod(name, WantEnd, corev1.RestartPolicyOnFailure, fmt.Sprintf("exit=%s:0", b.upTo(time.Hour)), "start=2s")
	case 3:
		return Pod(name, WantEnd, corev1.RestartPolicyNever, fmt.Sprintf("exit=%s:3", b.upTo(time.Minute)))
	case 4:
		return Pod(name, WantSteady, corev1.RestartPolicyAlways, "deaf")
	case 5:
		p := Pod(name, WantSteady, corev1.RestartPolicyAlways, "run", "stop=3s")
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: ImageOne, Command: []string{"exit=1s:0"}},
			{Name: "second", Image: ImageTwo, Command: []string{"exit=2s:0", "start=500ms"}}}
		return p
	case 6:
		p := Pod(name, WantSteady, corev1.RestartPolicyAlways, "run")
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "beside", Image: ImageTwo, Command: []string{"run", "start=1s"},
			VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}})
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		return p
	case 7:
		p := Pod(name, WantSteady, corev1.RestartPolicyAlways, "run")
		p.Spec.HostNetwork = true
		return p
	}
	return Pod(name, WantSteady, corev1.RestartPolicyAlways, "run", "stop=500ms")
}

func sidecar(name string) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{Name: name, Image: ImageOne, Command: []string{"run", "stop=2s"}, RestartPolicy: &always,
		StartupProbe: &corev1.Probe{ProbeHandler: runs("100ms:0"), PeriodSeconds: 1}}
}

func runs(command string) corev1.ProbeHandler {
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
}

// probed gives a pod probes that pass, and hooks.
func probed(p *corev1.Pod) *corev1.Pod {
	c := &p.Spec.Containers[0]
	c.StartupProbe = &corev1.Probe{ProbeHandler: runs("200ms:0"), PeriodSeconds: 2}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: runs("100ms:0"), PeriodSeconds: 600}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: runs("100ms:0"), PeriodSeconds: 300}
	c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: runs("300ms:0").Exec},
		PreStop: &corev1.LifecycleHandler{Exec: runs("2s:0").Exec}}
	return p
}
