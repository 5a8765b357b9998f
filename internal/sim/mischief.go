package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
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
	newMischief(b).run(long)
}

// mischief is the script of what is done to a board.
type mischief struct {
	b    *Board
	rand *rand.Rand
}

func newMischief(b *Board) *mischief {
	return &mischief{b: b, rand: rand.New(rand.NewPCG(b.cfg.Seed, 0x1ed6e))}
}

func (m *mischief) run(long time.Duration) {
	m.b.t.Helper()
	end := time.Now().Add(long)
	for n := 0; time.Now().Before(end) && !m.b.Broken(); n++ {
		m.stock(n)
		m.b.Settle(recovery)
		d := deeds[m.rand.IntN(len(deeds))]
		m.b.Logf("%s", d.name)
		d.do(m)
		m.b.Settle(recovery)
		m.b.Pass(time.Duration(1+m.rand.IntN(40*60)) * time.Second)
		m.b.Settle(recovery)
	}
}

// deeds are what may happen to a board, each as likely as the others.
var deeds = []struct {
	name string
	do   func(*mischief)
}{
	{"kill -9 the brain", func(m *mischief) { m.untouched(m.b.KillBrain) }},
	{"kill -9 the brain in the middle of things", func(m *mischief) { m.stir(); m.b.Pass(m.upTo(3 * time.Second)); m.b.KillBrain() }},
	{"kill -9 the brain again and again", func(m *mischief) {
		for range 4 {
			m.stir()
			m.b.Pass(m.upTo(time.Second))
			m.b.KillBrain()
		}
	}},
	{"restart the brain", func(m *mischief) { m.untouched(m.b.Restart) }},
	{"cut the power", func(m *mischief) { m.b.CutPower() }},
	{"cut the power in the middle of things", func(m *mischief) { m.stir(); m.b.Pass(m.upTo(3 * time.Second)); m.b.CutPower() }},
	{"power off and on", func(m *mischief) { m.b.PowerOff() }},
	{"restart the keeper", func(m *mischief) { m.b.KeeperAway(m.upTo(20 * time.Second)) }},
	{"lose the keeper for long", func(m *mischief) { m.stir(); m.b.KeeperAway(time.Minute + m.upTo(10*time.Minute)) }},
	{"cut the uplink for a moment", func(m *mischief) { m.b.CutUplink(m.upTo(30 * time.Second)) }},
	{"cut the uplink for long", func(m *mischief) { m.b.CutUplink(time.Minute + m.upTo(20*time.Minute)) }},
	{"break the pod network", func(m *mischief) { m.b.NetworkDown(m.upTo(5 * time.Minute)) }},
	{"fill the disk", func(m *mischief) { m.b.FillDisk(m.upTo(10*time.Minute), nil) }},
	{"fill the disk and kill the brain", func(m *mischief) { m.b.FillDisk(m.upTo(10*time.Minute), m.b.KillBrain) }},
	{"fill the disk and cut the power", func(m *mischief) { m.b.FillDisk(m.upTo(10*time.Minute), m.b.CutPower) }},
	{"kill containers", func(m *mischief) { m.eachSome(func(p *corev1.Pod) { m.b.KillContainer(p.UID) }) }},
	{"kill containers while the uplink is cut", func(m *mischief) {
		m.eachSome(func(p *corev1.Pod) { m.b.KillContainer(p.UID) })
		m.b.CutUplink(m.upTo(2 * time.Minute))
	}},
	{"change images", func(m *mischief) { m.eachSome(m.changeImage) }},
	{"delete pods", func(m *mischief) { m.eachSome(func(p *corev1.Pod) { m.b.Delete(p.Name, m.someGrace()) }) }},
	{"delete pods and kill the brain", func(m *mischief) {
		m.eachSome(func(p *corev1.Pod) { m.b.Delete(p.Name, m.someGrace()) })
		m.b.Pass(m.upTo(4 * time.Second))
		m.b.KillBrain()
	}},
	{"delete pods while the uplink is cut", func(m *mischief) {
		m.b.brain.uplink.set(true)
		m.eachSome(func(p *corev1.Pod) { m.b.Delete(p.Name, m.someGrace()) })
		m.b.CutUplink(m.upTo(2 * time.Minute))
	}},
	{"pods take all there is", func(m *mischief) { m.hogs(nil, false) }},
	{"pods take all there is, kill -9 the brain", func(m *mischief) { m.hogs(m.b.KillBrain, false) }},
	{"pods take all there is, cut the power", func(m *mischief) { m.hogs(m.b.CutPower, false) }},
	{"pods take all there is, lose the keeper", func(m *mischief) { m.hogs(func() { m.b.KeeperAway(m.upTo(2 * time.Minute)) }, true) }},
	{"pods take all there is, cut the uplink", func(m *mischief) { m.hogs(func() { m.b.CutUplink(m.upTo(10 * time.Minute)) }, false) }},
	{"pods take all there is, be busy", func(m *mischief) { m.hogs(m.stir, false) }},
	{"lose an image", func(m *mischief) { m.awaitImage() }},
	{"nothing", func(*mischief) {}},
}

// untouched does something that concerns no pod: those that just run are not even written, and the node stays ready.
func (m *mischief) untouched(do func()) {
	steady := func() map[types.UID]string {
		out := map[types.UID]string{}
		for _, p := range m.b.Pods() {
			if p.Labels[wantLabel] == WantSteady {
				out[p.UID] = p.ResourceVersion
			}
		}
		return out
	}
	before, ready := steady(), readySince(m.b.Node())
	do()
	m.b.Pass(5 * time.Second)
	if now := readySince(m.b.Node()); !now.Equal(ready) {
		m.b.Errorf("the node was not ready for a moment: ready since %s, before since %s", now, ready)
	}
	for uid, rev := range steady() {
		if was, ok := before[uid]; ok && was != rev {
			m.b.Errorf("pod %s was written: revision %s, was %s", uid, rev, was)
		}
	}
}

func readySince(n *corev1.Node) time.Time {
	if c := api.NodeCondition(n, corev1.NodeReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func (m *mischief) upTo(d time.Duration) time.Duration {
	return time.Duration(m.rand.Int64N(int64(d))).Truncate(time.Millisecond)
}

// stir makes the board busy.
func (m *mischief) stir() {
	m.eachSome(func(p *corev1.Pod) { m.b.KillContainer(p.UID) })
	m.eachSome(func(p *corev1.Pod) { m.b.Delete(p.Name, m.someGrace()) })
	m.stock(m.rand.IntN(1 << 30))
}

func (m *mischief) someGrace() *int64 {
	switch m.rand.IntN(3) {
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
func (m *mischief) eachSome(do func(*corev1.Pod)) {
	for _, p := range m.b.Pods() {
		if m.rand.IntN(5) == 0 && p.DeletionTimestamp == nil {
			do(p)
		}
	}
}

// changeImage gives a pod the other image.
func (m *mischief) changeImage(p *corev1.Pod) {
	image := map[string]string{ImageOne: ImageTwo, ImageTwo: ImageOne}[p.Spec.Containers[0].Image]
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"c","image":%q}]}}`, image)
	_, err := m.b.brain.user.Patch(m.b.ctx, api.Pods, p.Namespace, p.Name,
		api.Patch{Type: types.StrategicMergePatchType, Data: []byte(patch)}, api.WriteOptions{})
	m.b.must(err, "change the image of "+p.Name)
	if p.Spec.RestartPolicy == corev1.RestartPolicyNever {
		m.b.starts.mayRepeat(string(p.UID))
	}
}

// awaitImage has a pod wait for an image that comes later.
func (m *mischief) awaitImage() {
	const name = "sim.local/late:v1"
	p := Pod("late", WantSteady, corev1.RestartPolicyAlways, "run")
	p.Spec.Containers[0].Image = name
	m.b.Delete(p.Name, new(int64))
	m.b.Pass(5 * time.Second)
	m.b.Apply(p)
	m.b.Pass(m.upTo(time.Hour))
	if m.phase(p.Name) != corev1.PodPending {
		m.b.Errorf("pod %s is %s without its image", p.Name, m.phase(p.Name))
	}
	archive := imagestest.OCI(imagestest.Sample(name))
	m.b.must(m.b.brain.ask(board.ImagesPath, nil, bytes.NewReader(archive)), "import the image")
	m.b.Settle(10 * time.Second) // at once, not after the back-off
	m.b.Delete(p.Name, nil)
	m.b.Settle(time.Minute)
	m.b.must(m.b.images.Remove(m.b.ctx, name), "remove the image")
}

func (m *mischief) phase(name string) corev1.PodPhase {
	for _, p := range m.b.Pods() {
		if p.Name == name {
			return p.Status.Phase
		}
	}
	return ""
}

// stock brings the board back to its number of pods, of all sorts.
func (m *mischief) stock(n int) {
	live := 0
	for _, p := range m.b.Pods() {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			live++
		}
	}
	for i := range keptPods - live {
		m.b.Apply(m.somePod(fmt.Sprintf("p-%d-%d", n, i)))
	}
}

// somePod is one of the sorts of pods that boards run.
func (m *mischief) somePod(name string) *corev1.Pod {
	switch m.rand.IntN(13) {
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
		p := Pod(name, WantEnd, corev1.RestartPolicyOnFailure, fmt.Sprintf("exit=%s:0", m.upTo(time.Hour)))
		p.Spec.InitContainers = []corev1.Container{sidecar("side")}
		return p
	case 0:
		return Pod(name, WantCrash, corev1.RestartPolicyAlways, fmt.Sprintf("exit=%s:1", m.upTo(time.Minute)))
	case 1:
		return Pod(name, WantEnd, corev1.RestartPolicyNever, fmt.Sprintf("exit=%s:0", m.upTo(time.Hour)))
	case 2:
		return Pod(name, WantEnd, corev1.RestartPolicyOnFailure, fmt.Sprintf("exit=%s:0", m.upTo(time.Hour)), "start=2s")
	case 3:
		return Pod(name, WantEnd, corev1.RestartPolicyNever, fmt.Sprintf("exit=%s:3", m.upTo(time.Minute)))
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
