package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/podspec"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

func withSysctl(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{}
		for _, n := range names {
			p.Spec.SecurityContext.Sysctls = append(p.Spec.SecurityContext.Sysctls, corev1.Sysctl{Name: n, Value: "1"})
		}
	}
}

func withAppArmor(kind corev1.AppArmorProfileType, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		profile := &corev1.AppArmorProfile{Type: kind}
		if name != "" {
			profile.LocalhostProfile = &name
		}
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: profile}
	}
}

// TestAdmission (N-7.4, N-7.7): what the board cannot enforce, it refuses for good, in Kubernetes' words.
func TestAdmission(t *testing.T) {
	plain, armed := runtime.Info{}, runtime.Info{AppArmor: true}
	annotated := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": value}
		}
	}
	selinux := func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"}}
	}
	const off = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
	for _, c := range []struct {
		what            string
		info            runtime.Info
		edit            func(*corev1.Pod)
		reason, message string
	}{
		{"nothing asked for", plain, func(*corev1.Pod) {}, "", ""},
		{"safe sysctls", plain, withSysctl("kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies"), "", ""},
		{"a safe sysctl with slashes", plain, withSysctl("net/ipv4/tcp_syncookies"), "", ""},
		{"an unsafe sysctl", plain, withSysctl("net.core.somaxconn"), "SysctlForbidden",
			`forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		{"an allowed one", plain, withSysctl("kernel.msgmax", "net.ipv4.route.min_pmtu"), "", ""},
		{"one like an allowed one", plain, withSysctl("kernel.msgmaxi"), "SysctlForbidden", `forbidden sysctl: "kernel.msgmaxi" not allowlisted`},
		{"AppArmor where there is none", plain, withAppArmor("RuntimeDefault", ""), "AppArmor", off},
		{"a profile where there is none", plain, withAppArmor("Localhost", "x"), "AppArmor", off},
		{"by annotation", plain, annotated("localhost/x"), "AppArmor", off},
		{"default by annotation", plain, annotated("runtime/default"), "AppArmor", off},
		{"unconfined", plain, withAppArmor("Unconfined", ""), "", ""},
		{"unconfined by annotation", plain, annotated("unconfined"), "", ""},
		{"a profile", armed, withAppArmor("Localhost", "x"), "", ""},
		{"SELinux where there is none", plain, selinux, "", ""},
		{"SELinux", runtime.Info{SELinux: true}, selinux, "UnexpectedAdmissionError",
			"Unexpected error seLinuxOptions: this board enforces SELinux and ledge cannot label containers yet"},
	} {
		allowed, err := podspec.NewSysctls([]string{"kernel/msgmax", "net.ipv4.route.*"})
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{cfg: Config{Sysctls: allowed}, engine: &engineView{info: c.info}}
		got := (admission{a}).admit(aPod("p", c.edit))
		if got == nil {
			got = &refusal{}
		}
		if got.reason != c.reason || got.message != c.message {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

// TestRefusedPod: a refused pod fails, is not tried again, and takes nothing.
func TestRefusedPod(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p", withSysctl("net.core.somaxconn"))
		r.pass(time.Minute)
		if s := r.get("p").Status; s.Phase != corev1.PodFailed || s.Reason != "SysctlForbidden" ||
			s.Message != `Pod was rejected: forbidden sysctl: "net.core.somaxconn" not allowlisted` {
			t.Errorf("%+v", s)
		}
		r.want("events", r.events.of("SysctlForbidden"), `Warning SysctlForbidden p: forbidden sysctl: "net.core.somaxconn" not allowlisted`)
		r.pod("q", withSysctl("net.ipv4.tcp_syncookies"), func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = new(true) })
		r.pass(time.Second)
		st, err := r.engine.List(r.Context())
		if err != nil || len(st.Pods) != 1 || st.Pods[0].Pod.Sysctls["net.ipv4.tcp_syncookies"] != "1" || !st.Pods[0].Pod.ShareProcess {
			t.Errorf("%+v %v", st.Pods, err)
		}
	})
}

// TestAppArmorName: the name of a profile that the kernel holds goes to the engine.
func TestAppArmorName(t *testing.T) {
	got := runtime.Container{}
	with(t, nil, func(r *rig) {
		r.engine = enginefake.New(enginefake.Config{AppArmor: true,
			Script: func(c runtime.Container) (b enginefake.Behaviour) { got = c; return b }})
		r.cfg.Engine = r.engine
		r.begin()
		r.pod("p", withAppArmor("Localhost", "mine"))
		r.pass(time.Second)
		if r.want("running", r.running(), "c.0"); got.AppArmor != "mine" {
			t.Errorf("%q", got.AppArmor)
		}
	})
}

// TestSeccompFile: a profile of the board is read below its directory and from nowhere else.
func TestSeccompFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("seccomp/profiles/a.json", `{"defaultAction":"SCMP_ACT_ALLOW"}`)
	write("seccomp/empty.json", "")
	write("seccomp/large.json", strings.Repeat(" ", maxSeccompFile+1))
	write("outside.json", "{}")
	if err := os.Symlink("../outside.json", filepath.Join(dir, "seccomp", "link.json")); err != nil {
		t.Fatal(err)
	}
	a := &Agent{cfg: Config{DataDir: dir}}
	for name, want := range map[string]string{"profiles/a.json": `{"defaultAction":"SCMP_ACT_ALLOW"}`, "none.json": "", "empty.json": "",
		"large.json": "", "link.json": "", "../outside.json": "", "profiles": ""} {
		got, err := specNeeds{a: a}.SeccompProfile(name)
		if string(got) != want {
			t.Errorf("%s: %q", name, got)
		}
		if (err == nil) != (want != "") || err != nil && !strings.Contains(err.Error(), "cannot load seccomp profile") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSysctlName(t *testing.T) {
	for in, want := range map[string]string{"net.ipv4.x": "net.ipv4.x", "net/ipv4/x": "net.ipv4.x",
		"net/ipv4/conf/eth0.1/x": "net.ipv4.conf.eth0/1.x",
		"net.ipv4.conf.eth0/1.x": "net.ipv4.conf.eth0/1.x", "x": "x"} {
		if got := api.SysctlName(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestOutOf (N-7.5): what does not fit beside the others is refused, whoever put it here; of two that come together the
// older one stays, and a restarted brain refuses nothing that it has taken.
func TestOutOf(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.cfg.Status.MaxPods = 4
		cpu := func(n string) func(*corev1.Pod) { return sizedPod(n, "-", "-", "-") }
		r.pod("first", cpu("3"))
		r.pass(time.Second) // they are told apart by the second
		r.pod("second", cpu("2"))
		r.begin()
		r.pass(time.Second)
		r.pod("large", cpu("5"))
		r.pod("fits", cpu("1"))
		r.pod("memory", sizedPod("-", "-", "5Gi", "-"))
		r.pass(time.Second)
		for name, want := range map[string]string{"first": "", "fits": "",
			"second": "OutOfcpu Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000",
			"large":  "OutOfcpu Pod was rejected: Node didn't have enough resource: cpu, requested: 5000, used: 3000, capacity: 4000",
			"memory": "OutOfmemory Pod was rejected: Node didn't have enough resource: memory, requested: 5368709120, used: 0, capacity: 4190109696",
		} {
			s := r.get(name).Status
			if got := strings.TrimSpace(s.Reason + " " + s.Message); got != want || (s.Phase == corev1.PodFailed) != (want != "") {
				t.Errorf("%s: %s %q, want %q", name, s.Phase, got, want)
			}
		}
		r.begin()
		r.pass(time.Minute)
		for _, name := range []string{"first", "fits"} {
			if s := r.get(name).Status; s.Phase != corev1.PodRunning {
				t.Errorf("%s after a restart: %s %s", name, s.Phase, s.Message)
			}
		}
		r.pod("third")
		r.pod("fourth")
		r.pod("fifth")
		r.pass(time.Second)
		if s := r.get("fourth").Status; s.Phase != corev1.PodRunning {
			t.Errorf("the fourth pod: %s %s", s.Phase, s.Message)
		}
		if s := r.get("fifth").Status; s.Reason != "OutOfpods" {
			t.Errorf("one pod more than the board takes: %s %s", s.Phase, s.Reason)
		}
		r.pod("critical", cpu("4"), func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" })
		r.pass(time.Second)
		if s := r.get("critical").Status; s.Phase != corev1.PodRunning {
			t.Errorf("a critical pod: %s %s", s.Phase, s.Message)
		}
	})
}

// TestUsersOfPods: each pod with users of its own has a block that no other has, also after the brain has restarted.
func TestUsersOfPods(t *testing.T) {
	with(t, nil, func(r *rig) {
		own := func(p *corev1.Pod) { p.Spec.HostUsers = new(false) }
		blocks := func() map[string]runtime.IDRange {
			st, err := r.engine.List(r.Context())
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]runtime.IDRange{}
			for _, p := range st.Pods {
				if p.Pod.Users != nil {
					out[p.Pod.Name] = *p.Pod.Users
				}
			}
			return out
		}
		r.begin()
		r.pod("plain")
		for _, name := range []string{"a", "b", "c"} {
			r.pod(name, own)
		}
		r.pass(time.Second)
		first := blocks()
		hosts := map[uint32]bool{}
		for _, b := range first {
			hosts[b.Host] = true
			if b.Size != 65536 || b.Host < 0x70000000 || b.Host%65536 != 0 {
				t.Errorf("%+v", b)
			}
		}
		if len(first) != 3 || len(hosts) != 3 {
			t.Fatalf("blocks: %v", first)
		}
		r.begin()
		r.delete("b", new(int64))
		r.pass(time.Minute)
		r.pod("d", own)
		r.pod("e", own)
		r.pass(time.Second)
		now := blocks()
		if now["a"] != first["a"] || now["c"] != first["c"] || now["d"] == now["e"] || len(now) != 4 || now["d"] == now["a"] ||
			now["e"] == now["c"] {
			t.Errorf("blocks: %v, were %v", now, first)
		}
	})
	a := &Agent{cfg: Config{NoPodNetwork: true}, engine: &engineView{}}
	if why := (admission{a}).admit(aPod("p", func(p *corev1.Pod) { p.Spec.HostUsers = new(false) })); why == nil {
		t.Error("users of its own and the board's network")
	}
}
