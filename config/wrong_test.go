package config

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestWrongKeys: what is wrong in the configuration is said with the key, the value and what is wanted. Every key has a wrong value here.
func TestWrongKeys(t *testing.T) {
	wrong := map[string]string{ // text -> what is said of it; one key may be wrong in several ways
		"maxPods: [1":                  "line 1: did not find expected ',' or ']'",
		"- a":                          "keys and their values are wanted, as in maxPods: 20; [\"a\"] stands there",
		"maxPodz: 5":                   `key "maxPodz" is not known. Did you mean maxPods?`,
		"MaxPods: 5":                   `key "MaxPods" is not known. Did you mean maxPods?`,
		"zzzzzzzz: 1":                  `key "zzzzzzzz" is not known`,
		"maxPods: 1\nmaxPods: 2":       `key "maxPods" already set in map`,
		"maxPods: 1\n---\nmaxPods: 2":  "more than one document",
		"apiVersion: v9":               `apiVersion: "v9" is not that of this file: say kubelet.config.k8s.io/v1beta1, or nothing`,
		"kind: Pod":                    `kind: "Pod" is not what this file is: say KubeletConfiguration, or nothing`,
		"registerNode: maybe":          `registerNode: "maybe" is neither true nor false`,
		"nodeStatusReportFrequency: 5": "nodeStatusReportFrequency: 5 is no duration such as 5s or 1m30s",

		"registerWithTaints: [{key: a}]":                                       `registerWithTaints: taint "a" has no effect: write key=value:NoSchedule`,
		"registerWithTaints: a:NoSchedule":                                     `registerWithTaints: "a:NoSchedule" is no list`,
		"registerWithTaints: [{key: a, effect: Never}]":                        `registerWithTaints: taint "a:Never": the effect must be`,
		"registerWithTaints: [{key: a b, effect: NoSchedule}]":                 `registerWithTaints: taint "a b:NoSchedule": name part`,
		"registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: today}]": `registerWithTaints[0].timeAdded: "today" is no time`,

		"nodeStatusUpdateFrequency: 10ms":       "nodeStatusUpdateFrequency: 10ms is less than 1s, the least",
		"nodeStatusReportFrequency: -5s":        "nodeStatusReportFrequency: -5s is negative: say such as 5m, or 0s for the default",
		"nodeLeaseDurationSeconds: -5":          "nodeLeaseDurationSeconds: -5 is no number of seconds: say 1 to 2147483647, or 0 for 40",
		"nodeLeaseDurationSeconds: 99999999999": "nodeLeaseDurationSeconds: 99999999999 is too large",
		"maxPods: -1":                           "maxPods: -1 is no number of pods: say 1 to 2147483647, or 0 for 110",
		"maxPods: many":                         `maxPods: "many" is no whole number`,
		"maxPods: 1.5":                          "maxPods: 1.5 is no whole number",
		"podsPerCore: -1":                       "podsPerCore: -1 is no number of pods: say 1 to 2147483647, or 0 for no such bound",

		"kubeReserved: {memory: lots}":                             `kubeReserved: memory: "lots" is not a quantity`,
		"kubeReserved: 5":                                          "kubeReserved: 5 is no map of keys and values",
		"kubeReserved: {memory: 10000000Gi}":                       "kubeReserved: memory: 10000000Gi is more than there is, ",
		"kubeReserved: {cpu: 5000}\nsystemReserved: {cpu: 100000}": "kubeReserved and systemReserved: cpu: 105k is more than there is, ",
		"systemReserved: {gpu: 1}":                                 `systemReserved: "gpu" cannot be reserved: only cpu, memory, ephemeral-storage, pid`,
		"systemReserved: {pid: 1000000000000}":                     "systemReserved: pid: 1T is more than there is, ",
		"systemReserved: {ephemeral-storage: 1000Pi}":              "systemReserved: ephemeral-storage: 1000Pi is more than there is, ",

		"seccompDefault: 5":                                         "seccompDefault: 5 is neither true nor false",
		"resolvConf: x":                                             `resolvConf: "x" must be an absolute path`,
		"clusterDNS: [d.lan]":                                       `clusterDNS: "d.lan" is not an address`,
		"clusterDNS: 1.1.1.1":                                       `clusterDNS: "1.1.1.1" is no list`,
		"mdns: shed":                                                `mdns: "shed" is neither true nor false`,
		"page: {listen: \":443\"}":                                  "page.password: give one; nobody gets in without",
		"page: {password: geheim12}":                                "page.listen: say where, such as :443; without it there is no page",
		"page: {listen: \":443\", password: 0123456701}":            "page.password: put it in quotes",
		"page: {acts: true}":                                        "page.listen: say where",
		"page: {listen: here, password: geheim12}":                  `page.listen: "here" is no address and port`,
		"page: {listen: \":443\", password: kurz}":                  "page.password: it must have 8 to 256 characters",
		"page: {listen: \":443\", password: \"scrypt:14:8:1:x:y\"}": "page.password: it is no hash that ledge has made",
		"page: {listen: \":443\", password: geheim12, act: true}":   `key "page.act" is not known. Did you mean acts?`,
		"names: {serve: 5}":                                         "names.serve: 5 is neither true nor false",
		"names: {serve: true}\nclusterDNS: [10.0.0.1]":              "names.serve: pods ask 10.0.0.1, which clusterDNS names: remove one of the two",

		"clusterDomain: a b":    `clusterDomain: "a b" is no domain such as cluster.local`,
		"staticPodPath: [a]":    `staticPodPath: ["a"] is no text`,
		"tokenFile: {a: b}":     `tokenFile: {"a":"b"} is no text`,
		"server: 10.0.0.1":      `server: "10.0.0.1" is no server such as https://10.0.0.1:6443`,
		"listen: x":             `listen: "x" is no address and port such as 0.0.0.0:6443`,
		"listen: 0.0.0.0:99999": `listen: "0.0.0.0:99999" is no address and port`,
		"port: -1":              "port: -1 is no port",

		"containerLogMaxSize: big":  `containerLogMaxSize: "big" is not a size such as 10Mi`,
		"containerLogMaxFiles: 1":   "containerLogMaxFiles: 1 must be greater than 1",
		"logging: disk":             `logging: "disk" is no map of keys and values`,
		"logging: {medium: tape}":   `logging.medium: "tape" is neither disk nor memory`,
		"logging: {totalSize: 1Ki}": "logging.totalSize: 1Ki must be at least 64Ki, or 0 for no limit",
		"logging: {rate: -1}":       `logging.rate: "-1" is not a size such as 10Mi`,
		"logging: {rat: 5}":         `key "logging.rat" is not known. Did you mean rate?`,

		"enforceNodeAllocatable: [system-reserved]": `enforceNodeAllocatable: "system-reserved" is not supported`,
		"podPidsLimit: 0":                      "podPidsLimit: 0 is neither -1",
		"singleProcessOOMKill: 1":              "singleProcessOOMKill: 1 is neither true nor false",
		"cpuCFSQuota: 1":                       "cpuCFSQuota: 1 is neither true nor false",
		"cpuCFSQuotaPeriod: 2s":                "cpuCFSQuotaPeriod: 2s must be between 1ms and 1s",
		"failSwapOn: 1":                        "failSwapOn: 1 is neither true nor false",
		"memorySwap: {swapBehavior: Some}":     `memorySwap.swapBehavior "Some" must be one of`,
		"memoryThrottlingFactor: 2":            "memoryThrottlingFactor: 2 is not above 0 and at most 1",
		"memoryThrottlingFactor: x":            `memoryThrottlingFactor: "x" is no number`,
		"memoryReservationPolicy: All":         `memoryReservationPolicy: "All" is neither`,
		"featureGates: {X: true}":              `featureGates: "X" is not a gate of ledge`,
		"featureGates: {MemoryQoS: 5}":         "featureGates.MemoryQoS: 5 is neither true nor false",
		"allowedUnsafeSysctls: [a b]":          `allowedUnsafeSysctls: the sysctls "a b" are not known`,
		"console: screen":                      `console: "screen" is neither true nor false`,
		"network: calico":                      `network: "calico" is not known`,
		"serviceCIDR: 10.43.0.1/16":            `serviceCIDR: "10.43.0.1/16" is no network such as 10.43.0.0/16`,
		"serviceCIDR: 10.43.0.0/30":            `serviceCIDR: "10.43.0.0/30" is no network such as 10.43.0.0/16, of eight addresses or more`,
		"serviceCIDR: 10.1.0.0/16,10.2.0.0/16": `serviceCIDR: "10.1.0.0/16,10.2.0.0/16" is more than one network of each family`,
		"serviceNodePortRange: 9-5":            `serviceNodePortRange: "9-5" is no range of ports: write it as 30000-32767`,
		"podSecurity: low":                     `podSecurity: "low" must be one of`,
		"audit: {medium: tape}":                `audit.medium: "tape" is neither disk nor memory`,

		"serializeImagePulls: x":                    `serializeImagePulls: "x" is neither true nor false`,
		"maxParallelImagePulls: -1":                 "maxParallelImagePulls: -1 must be between 1 and 32",
		"imageGCHighThresholdPercent: 101":          "imageGCHighThresholdPercent: 101 must be between 0 and 100",
		"imageGCLowThresholdPercent: 90":            "imageGCLowThresholdPercent: 90 must be less than imageGCHighThresholdPercent, 85",
		"imageMinimumGCAge: -5s":                    "imageMinimumGCAge: -5s must not be negative",
		"imageMaximumGCAge: -5s":                    "imageMaximumGCAge: -5s must not be negative",
		"imageMaximumGCAge: 1s":                     "imageMaximumGCAge: 1s must be longer than imageMinimumGCAge, 2m0s",
		"registries: [{name: a b}]":                 `registries: registry "a b": not a registry's name`,
		"registries: [{nam: x}]":                    `key "registries[0].nam" is not known. Did you mean name?`,
		"registryCredentials: x":                    `registryCredentials: "x" must be an absolute path`,
		"authentication: {x509: {clientCAFile: x}}": `authentication.x509.clientCAFile: "x" must be an absolute path`,
		"keepBlobs: some":                           `keepBlobs: "some" is none of pinned, all, none`,
		"imageArchives: x":                          `imageArchives: "x" must be an absolute path`,

		"evictionHard: {memory.available: -1}":             `evictionHard: memory.available: "-1" is not a positive quantity`,
		"evictionSoft: {memory.available: 1Gi}":            "evictionSoft: grace period must be specified for the soft eviction threshold memory.available",
		"evictionSoftGracePeriod: {memory.available: x}":   `evictionSoftGracePeriod: memory.available: "x" is not a duration`,
		"evictionMinimumReclaim: {memory.available: -1Gi}": `evictionMinimumReclaim: memory.available: "-1Gi" is not a quantity`,
		"evictionMaxPodGracePeriod: x":                     `evictionMaxPodGracePeriod: "x" is no whole number`,
		"evictionPressureTransitionPeriod: -1s":            "evictionPressureTransitionPeriod: -1s is negative",
		"mergeDefaultEvictionSettings: x":                  `mergeDefaultEvictionSettings: "x" is neither true nor false`,
		"evictionMemorySignal: x":                          `evictionMemorySignal: "x" is neither MemAvailable nor WorkingSet`,
		"reclaimBeforeEvict: x":                            `reclaimBeforeEvict: "x" is neither true nor false`,

		"shutdownGracePeriod: 5":              "shutdownGracePeriod: 5 is no duration such as 5s or 1m30s",
		"shutdownGracePeriod: -5s":            "shutdownGracePeriod: -5s must be 0 or at least 1s",
		"shutdownGracePeriodCriticalPods: 5s": "shutdownGracePeriodCriticalPods: 5s is longer than shutdownGracePeriod 0s",
		"shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]": "shutdownGracePeriodByPodPriority: priority 1 has a negative period",
		"power: {batteryLow: 100}": "power.batteryLow: 100 is not a percentage from 1 to 99",
		"power: {reserve: -1s}":    "power.reserve: -1s must not be negative",
		"power: {ups: 'a b'}":      "power.ups: ",
		"resumePods: x":            `resumePods: "x" is neither true nor false`,
		"devices: [{name: x}]":     `devices[0]: x is no class of ledge's own: say which devices it is, by globs or usb`,
		"devicePlugins: plugins":   `devicePlugins "plugins" is no directory by its whole path`,
		"disks: [{name: local}]":   `disks[0]: name "local" is the class of the card itself`,
		"ntpServers: [a b]":        `ntpServers[0]: "a b" is no server`,
	}
	for text, want := range wrong {
		_, err := resolvedWith(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "json") ||
			strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[File]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		named := name == ""
		for text, want := range wrong {
			named = named || strings.HasPrefix(text, name+":") && strings.Contains(want, name)
		}
		if !named {
			t.Errorf("%s has no wrong value here", name)
		}
	}
}

// TestRightKeys: what a kubelet's file says of itself is heard, and a number is a text where one is wanted.
func TestRightKeys(t *testing.T) {
	s, err := resolvedWith(t, "---\n# a kubelet's\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\nclusterDomain: Shed.local.\n"+
		"evictionHard: {nodefs.inodesFree: 1073741824}\nkubeReserved: {cpu: 1}\nmaxPods: null\nregisterWithTaints: [{key: a, effect: NoSchedule}]\n")
	must(t, err)
	if s.File.EvictionHard["nodefs.inodesFree"] != "1073741824" || s.File.KubeReserved["cpu"] != "1" || s.Status.MaxPods != 0 ||
		len(s.Reg.Taints) != 1 {
		t.Errorf("%+v", s.File)
	}
}

// TestWrongFlags: the same of flags.
func TestWrongFlags(t *testing.T) {
	for text, want := range map[string]string{
		"--frobnicate":                                "frobnicate",
		"--listen=0.0.0.0:99999":                      `--listen: "0.0.0.0:99999" is no address and port`,
		"--bridge=9x":                                 `--bridge: "9x": want a letter`,
		"--pod-cidr=x":                                `--pod-cidr: "x" is no network`,
		"--cgroup-root=x":                             `--cgroup-root: "x" must begin with /`,
		"--on-term=x":                                 `--on-term: "x" is neither`,
		"--power-backend=x":                           `--power-backend: "x" is not`,
		"--safe-mode-after=-1":                        "--safe-mode-after: -1 is no number of ends",
		"--config-dir=/nonesuch":                      "/nonesuch: no such file",
		"--node-ip=192.0.2.1,192.0.2.2":               "--node-ip: must contain",
		"--node-external-ip=x":                        `--node-external-ip: "x" is not an address`,
		"--node-labels=a":                             `--node-labels: label "a": write key=value`,
		"--register-with-taints=a":                    `--register-with-taints: taint "a" has no effect`,
		"--register-with-taints=:NoSchedule":          `--register-with-taints: taint ":NoSchedule": name part must be non-empty`,
		"--node-status-update-frequency=-5s":          "--node-status-update-frequency: -5s is less than 1s",
		"--node-status-update-frequency=5":            `invalid value "5" for flag -node-status-update-frequency`,
		"--swap-compat=x":                             `--swap-compat: "x" must be one of`,
		"--allowed-unsafe-sysctls=a b":                `--allowed-unsafe-sysctls: the sysctls "a b"`,
		"--shutdown-grace-period=-5s":                 "shutdownGracePeriod: -5s must be",
		"--inhibit-shortfall=x":                       `--inhibit-shortfall: "x" is neither`,
		"--shutdown-pod-reason=x":                     `--shutdown-pod-reason: "x" is neither`,
		"--cloud-provider=x":                          `--cloud-provider: "x" is not known`,
		"--hostname-override=a_b":                     "give one with --hostname-override",
		"--eviction-hard=x":                           `--eviction-hard: "x": write signal<value`,
		"--eviction-soft=x":                           `--eviction-soft: "x": write signal<value`,
		"--eviction-soft-grace-period=x":              `--eviction-soft-grace-period: "x": write signal=value`,
		"--eviction-minimum-reclaim=x":                `--eviction-minimum-reclaim: "x": write signal=value`,
		"--node-monitor-period=0":                     "--node-monitor-period: 0s is less than a second",
		"--node-monitor-grace-period=-5s":             "--node-monitor-grace-period: -5s is less",
		"--node-startup-grace-period=-5s":             "--node-startup-grace-period: -5s is less",
		"--node-eviction-rate=-1":                     "--node-eviction-rate: -1 is no rate",
		"--secondary-node-eviction-rate=NaN":          "--secondary-node-eviction-rate: NaN is no rate",
		"--large-cluster-size-threshold=-1":           "--large-cluster-size-threshold: -1 is no number",
		"--unhealthy-zone-threshold=2":                "--unhealthy-zone-threshold: 2 is no part",
		"--pod-eviction-timeout=-5s":                  "--pod-eviction-timeout: -5 s is negative",
		"--schedule-against=x":                        `--schedule-against: "x" is neither`,
		"--cluster-cidr=10.0.0.0/8":                   "--cluster-cidr: has no meaning without --allocate-node-cidrs",
		"--service-cluster-ip-range=x":                "--service-cluster-ip-range: has no meaning without",
		"--node-cidr-mask-size=99":                    "--node-cidr-mask-size: has no meaning without",
		"--allocate-node-cidrs":                       "--allocate-node-cidrs: say with --cluster-cidr",
		"--machine-lister=/nonesuch":                  "--machine-lister: ",
		"--kubeconfig=/x":                             "--kubeconfig: 'ledge agent' joins",
		"--default-not-ready-toleration-seconds=-1":   "--default-not-ready-toleration-seconds: -1 s is negative",
		"--default-unreachable-toleration-seconds=-1": "--default-unreachable-toleration-seconds: -1 s is negative",
	} {
		f := flag.NewFlagSet("serve", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		o := ServeFlags(f)
		_, err := ParseFlags(f, []string{"--config", written(t, FirstFile), "--config-dir", "", text})
		if err == nil {
			_, err = o.Resolve(f)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestWrongDropIn: an error names the file it is in, also where the value is one that its kind allows.
func TestWrongDropIn(t *testing.T) {
	dir := t.TempDir()
	config, drop := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "d", "9.conf")
	must(t, os.Mkdir(filepath.Dir(drop), 0o700))
	for _, c := range []struct{ config, drop, want string }{
		{"maxPods: 5", "maxPods: many", "configuration " + drop + `: maxPods: "many"`},
		{"maxPods: 5", "podsPerCore: -1", "configuration " + drop + ": podsPerCore: -1"},
		{"maxPods: -5", "podsPerCore: 1", "configuration " + config + ": maxPods: -5"},
		// the two together
		{"shutdownGracePeriod: 5s", "shutdownGracePeriodCriticalPods: 6s", "configuration " + config + ": shutdownGracePeriodCriticalPods: 6s"},
	} {
		must(t, os.WriteFile(config, []byte(c.config), 0o600))
		must(t, os.WriteFile(drop, []byte(c.drop), 0o600))
		if _, err := Load(config, filepath.Dir(drop)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %s", c.config, c.drop, err, c.want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
