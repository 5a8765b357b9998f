package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Spent is what processes have done so far: bytes that they gave to the block layer, and seconds of CPU.
func Spent(pids ...int) (written int64, cpu float64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			return 0, 0, err
		}
		for line := range strings.Lines(string(text)) {
			var bytes int64
			if n, _ := fmt.Sscanf(line, "write_bytes: %d", &bytes); n == 1 {
				written += bytes
			}
		}
		text, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, 0, err
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 13 {
			return 0, 0, fmt.Errorf("/proc/%d/stat is short", pid)
		}
		for _, f := range fields[11:13] { // utime, stime, in hundredths
			ticks, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return 0, 0, err
			}
			cpu += ticks / 100
		}
	}
	return written, cpu, nil
}
