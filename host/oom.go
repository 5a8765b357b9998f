package host

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
)

// spared is what a kubelet gives itself (N-7.38): the kernel kills any pod before it.
const spared = -999

// SpareFromOOM keeps the kernel, when memory runs out, from killing this process before the pods: they would go on
// unwatched, or with the keeper gone their ends would be lost.
func SpareFromOOM() {
	const file = "/proc/self/oom_score_adj"
	data, err := os.ReadFile(file)
	if now, perr := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && perr == nil && now <= spared {
		return
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(spared)), 0); err != nil {
		slog.Warn("this process is not spared when memory runs out; give it CAP_SYS_RESOURCE, or OOMScoreAdjust=-999 in its unit", "err", err)
	}
}
