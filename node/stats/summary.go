package stats

import (
	"encoding/json"
	"time"
)

// The parts of a kubelet's /stats/summary that ledge knows.
type (
	summary struct {
		Node summaryNode  `json:"node"`
		Pods []summaryPod `json:"pods"`
	}
	summaryNode struct {
		NodeName string             `json:"nodeName"`
		CPU      *summaryCPU        `json:"cpu,omitempty"`
		Memory   *summaryMemory     `json:"memory,omitempty"`
		IO       *summaryIO         `json:"io,omitempty"`
		FS       *FSUsage           `json:"fs,omitempty"`
		Runtime  *summaryNodeImages `json:"runtime,omitempty"`
		Rlimit   *summaryRlimit     `json:"rlimit,omitempty"`
	}
	summaryNodeImages struct {
		ImageFS *FSUsage `json:"imageFs,omitempty"`
	}
	summaryRlimit struct {
		Time    time.Time `json:"time"`
		MaxPID  int64     `json:"maxpid"`
		CurProc int64     `json:"curproc"`
	}
	summaryPod struct {
		PodRef           podRef             `json:"podRef"`
		StartTime        time.Time          `json:"startTime"`
		Containers       []summaryContainer `json:"containers"`
		CPU              *summaryCPU        `json:"cpu,omitempty"`
		Memory           *summaryMemory     `json:"memory,omitempty"`
		IO               *summaryIO         `json:"io,omitempty"`
		Network          *summaryNetwork    `json:"network,omitempty"`
		Volume           []summaryVolume    `json:"volume,omitempty"`
		EphemeralStorage *FSUsage           `json:"ephemeral-storage,omitempty"`
		ProcessStats     *summaryProcesses  `json:"process_stats,omitempty"`
	}
	podRef struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		UID       string `json:"uid"`
	}
	summaryContainer struct {
		Name      string         `json:"name"`
		StartTime time.Time      `json:"startTime"`
		CPU       *summaryCPU    `json:"cpu,omitempty"`
		Memory    *summaryMemory `json:"memory,omitempty"`
		IO        *summaryIO     `json:"io,omitempty"`
		Rootfs    *FSUsage       `json:"rootfs,omitempty"`
		Logs      *FSUsage       `json:"logs,omitempty"`
		Swap      *summarySwap   `json:"swap,omitempty"`
	}
	summaryCPU struct {
		Time                 time.Time   `json:"time"`
		UsageNanoCores       *int64      `json:"usageNanoCores,omitempty"`
		UsageCoreNanoSeconds int64       `json:"usageCoreNanoSeconds"`
		PSI                  *summaryPSI `json:"psi,omitempty"`
	}
	summaryMemory struct {
		Time            time.Time   `json:"time"`
		AvailableBytes  *int64      `json:"availableBytes,omitempty"`
		UsageBytes      int64       `json:"usageBytes"`
		WorkingSetBytes int64       `json:"workingSetBytes"`
		RSSBytes        int64       `json:"rssBytes"`
		PageFaults      int64       `json:"pageFaults"`
		MajorPageFaults int64       `json:"majorPageFaults"`
		PSI             *summaryPSI `json:"psi,omitempty"`
	}
	summaryIO struct {
		Time time.Time   `json:"time"`
		PSI  *summaryPSI `json:"psi,omitempty"`
	}
	summarySwap struct {
		Time           time.Time `json:"time"`
		SwapUsageBytes int64     `json:"swapUsageBytes"`
	}
	summaryNetwork struct {
		Time       time.Time          `json:"time"`
		Interfaces []summaryInterface `json:"interfaces"`
		summaryInterface
	}
	summaryInterface struct {
		Name     string `json:"name"`
		RxBytes  int64  `json:"rxBytes"`
		RxErrors int64  `json:"rxErrors"`
		TxBytes  int64  `json:"txBytes"`
		TxErrors int64  `json:"txErrors"`
	}
	summaryVolume struct {
		FSUsage
		Name string `json:"name"`
	}
	summaryProcesses struct {
		ProcessCount int64 `json:"process_count"`
	}
	summaryPSI struct {
		Full summaryStall `json:"full"`
		Some summaryStall `json:"some"`
	}
	summaryStall struct {
		Total  int64   `json:"total"` // nanoseconds
		Avg10  float64 `json:"avg10"`
		Avg60  float64 `json:"avg60"`
		Avg300 float64 `json:"avg300"`
	}
)

// FSUsage is a file system, and what something uses of it.
type FSUsage struct {
	Time           time.Time `json:"time"`
	AvailableBytes int64     `json:"availableBytes"`
	CapacityBytes  int64     `json:"capacityBytes"`
	UsedBytes      int64     `json:"usedBytes"`
	InodesFree     int64     `json:"inodesFree"`
	Inodes         int64     `json:"inodes"`
	InodesUsed     int64     `json:"inodesUsed"`
}

// Places says where a pod's files are, for whoever counts them.
type Places struct {
	Rootfs, Logs map[string]string // by container
	Volumes      map[string]string // those that count as the pod's own
}

// Machine is what a summary says of the board beside its cgroup.
type Machine struct {
	Node            string
	FS              FSUsage
	MemoryAvailable int64
	MemoryUnknown   bool
	MaxPID, CurPID  int64
}

// Summary is a kubelet's /stats/summary. It counts the files of every pod, which takes longer the more files there
// are, so it is made only on request.
func Summary(p Pass, m Machine, places func(Pod) Places) ([]byte, error) {
	out := summary{Node: summaryNode{NodeName: m.Node, CPU: cpuOf(p.Node), Memory: memoryOf(p.Node), IO: ioOf(p.Node), FS: &m.FS,
		Runtime: &summaryNodeImages{ImageFS: &m.FS}, Rlimit: &summaryRlimit{p.At, m.MaxPID, m.CurPID}}, Pods: []summaryPod{}}
	if out.Node.Memory != nil && !m.MemoryUnknown {
		out.Node.Memory.AvailableBytes = &m.MemoryAvailable
	}
	for _, pod := range p.Pods {
		s, err := podSummary(pod, m.FS, places(pod.Pod))
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, s)
	}
	return json.MarshalIndent(out, "", " ")
}

func podSummary(pod PodUsage, fs FSUsage, at Places) (summaryPod, error) {
	out := summaryPod{PodRef: podRef{pod.Name, pod.Namespace, pod.UID}, StartTime: pod.StartedAt, Containers: []summaryContainer{},
		CPU: cpuOf(pod.Usage), Memory: memoryOf(pod.Usage), IO: ioOf(pod.Usage)}
	if pod.Pids != nil {
		out.ProcessStats = &summaryProcesses{*pod.Pids}
	}
	for i, t := range pod.Network {
		in := summaryInterface(t)
		if i == 0 {
			out.Network = &summaryNetwork{Time: pod.At, summaryInterface: in}
		}
		out.Network.Interfaces = append(out.Network.Interfaces, in)
	}
	all := fs
	all.UsedBytes, all.InodesUsed = 0, 0
	count := func(dir string) (*FSUsage, error) {
		d, err := DiskUsage(dir)
		if err != nil {
			return nil, err
		}
		all.UsedBytes += d.Bytes
		all.InodesUsed += d.Inodes
		one := fs
		one.UsedBytes, one.InodesUsed = d.Bytes, d.Inodes
		return &one, nil
	}
	var err error
	for _, c := range pod.Containers {
		s := summaryContainer{Name: c.Name, StartTime: c.StartedAt, CPU: cpuOf(c.Usage), Memory: memoryOf(c.Usage), IO: ioOf(c.Usage)}
		if s.Rootfs, err = count(at.Rootfs[c.Name]); err != nil {
			return out, err
		}
		if s.Logs, err = count(at.Logs[c.Name]); err != nil {
			return out, err
		}
		if n, ok := swap(c.Usage); ok {
			s.Swap = &summarySwap{c.At, int64(n)}
		}
		out.Containers = append(out.Containers, s)
	}
	for name, dir := range at.Volumes {
		used, err := count(dir)
		if err != nil {
			return out, err
		}
		out.Volume = append(out.Volume, summaryVolume{*used, name})
	}
	out.EphemeralStorage = &all
	return out, nil
}

func cpuOf(u Usage) *summaryCPU {
	if u.CPU == nil {
		return nil
	}
	out := &summaryCPU{Time: u.At, UsageCoreNanoSeconds: int64(u.CPU.Total), PSI: psiOf(u, "cpu")}
	if u.CPU.Window > 0 {
		out.UsageNanoCores = &u.CPU.NanoCores
	}
	return out
}

func memoryOf(u Usage) *summaryMemory {
	if u.Memory == nil {
		return nil
	}
	m := u.Memory
	return &summaryMemory{Time: u.At, UsageBytes: m.Usage, WorkingSetBytes: m.WorkingSet, RSSBytes: m.RSS, PageFaults: m.PageFaults,
		MajorPageFaults: m.MajorFaults, PSI: psiOf(u, "memory")}
}

func ioOf(u Usage) *summaryIO {
	if p := psiOf(u, "io"); p != nil {
		return &summaryIO{u.At, p}
	}
	return nil
}

func psiOf(u Usage, what string) *summaryPSI {
	p, ok := u.Stalls[what]
	if !ok {
		return nil
	}
	of := func(s Stall) summaryStall { return summaryStall{int64(s.Total), s.Avg10, s.Avg60, s.Avg300} }
	return &summaryPSI{Full: of(p.Full), Some: of(p.Some)}
}
