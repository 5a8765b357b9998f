// Package pressed is what a hog has done to a board: the guest tells it, the machine that runs the guest judges it.
package pressed

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// AllHogs are those that lab/vm/load/press.go knows, in the order of a report.
const AllHogs = "leak5,leak20,leak40,leak20-deaf,leak40-deaf,cache,bomb,bytes,inodes,leak5-zram,full95,crowd"

// Board is a board of one size, with the result of each hog. A report has one for each size.
type Board struct {
	MemoryMiB int      `json:"memoryMiB"`
	Kernel    string   `json:"kernel"`
	Day       string   `json:"day"` // of the last hog
	Hogs      []Result `json:"hogs"`
}

// Read reads a report; there need not be one.
func Read(path string) (all []Board, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Add replaces the results of these hogs on a board of this size.
func Add(path string, now Board) error {
	all, err := Read(path)
	if err != nil {
		return err
	}
	for _, r := range all {
		for _, h := range r.Hogs {
			if r.MemoryMiB == now.MemoryMiB && !slices.ContainsFunc(now.Hogs, func(p Result) bool { return p.Hog == h.Hog }) {
				now.Hogs = append(now.Hogs, h)
			}
		}
	}
	order := strings.Split(AllHogs, ",")
	slices.SortStableFunc(now.Hogs, func(a, b Result) int { return slices.Index(order, a.Hog) - slices.Index(order, b.Hog) })
	all = append(slices.DeleteFunc(all, func(r Board) bool { return r.MemoryMiB == now.MemoryMiB }), now)
	slices.SortFunc(all, func(a, b Board) int { return a.MemoryMiB - b.MemoryMiB })
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Result is one hog at one board.
type Result struct {
	Hog        string   `json:"hog"`
	Signal     string   `json:"signal"`
	Line       int64    `json:"line"`        // the threshold of the signal
	Least      int64    `json:"least"`       // of what was left
	Rate       int64    `json:"rate"`        // how much of it went each second, from twice the line to the line
	Noticed    int64    `json:"noticedMs"`   // this and the next four: since the line was crossed; -1: never. ledge has seen it
	Condition  int64    `json:"conditionMs"` // the Node says so
	Evicted    int64    `json:"evictedMs"`   // the API says so
	Eased      int64    `json:"easedMs"`     // there is more than the line again
	Recovered  int64    `json:"recoveredMs"` // the condition is gone; its transition period is 10 s here
	End        string   `json:"end"`
	Kills      int      `json:"kernelKills"`
	Victims    []string `json:"killedOthers,omitempty"` // of these, what is neither the hog nor an innocent
	Hurt       int      `json:"innocentsHurt"`
	Answers    int      `json:"answers"`
	Slowest    int64    `json:"slowestAnswerMs"`
	AtTheLimit int      `json:"answersAtTheLimit"` // begun while there was nothing left, of memory a twentieth
	NoRoom     int      `json:"answersNoRoom"`     // of writes, that they have no room (507)
	Refused    int      `json:"notAnswered"`
	Lost       int      `json:"acknowledgedAndLost"`
	Wrong      []string `json:"wrong,omitempty"`
}

// bearable is how many bytes a second may go without the kernel having to kill. What needs the kernel, faults and forks, takes an
// emulated CPU some five times as long as that of a small board: fifty megabytes a second there are ten here.
const bearable = 10 << 20

// outrun: the kernel was faster than a machine so slow could be.
func (r *Result) outrun() bool { return r.Kills > 0 && r.Rate > bearable }

// Judge returns the promises that were broken.
func (r *Result) Judge() {
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...))
		}
	}
	wrong(r.Lost > 0, "%d acknowledged objects are lost", r.Lost)
	wrong(r.Hurt > 0, "%d innocents were hurt", r.Hurt)
	wrong(r.Answers == 0, "nothing was asked of the API")
	wrong(r.Refused > 0, "the API did not answer %d times", r.Refused)
	wrong(r.NoRoom > 0 && r.Hog != "bytes" && r.Hog != "inodes", "there was no room for %d writes", r.NoRoom)
	wrong(len(r.Victims) > 0, "the kernel has killed %q", r.Victims)
	wrong(r.Kills > 0 && !r.outrun(), "the kernel has killed %d processes", r.Kills)
	if r.Hog == "cache" || r.Hog == "full95" {
		wrong(r.End != "" || r.Condition >= 0, "a pod that was to be left alone: %s, condition after %d ms", r.End, r.Condition)
		wrong(r.Hog == "full95" && r.AtTheLimit == 0, "there was never so little left")
		return
	}
	wrong(r.End != "Failed Evicted" && !(r.outrun() && r.End == "Failed"), "it was not evicted but %q", r.End)
	wrong(r.Condition < 0 || r.Recovered < 0, "no condition came and went")
	wrong(r.Noticed > 1000, "ledge saw it after %d ms only", r.Noticed)
}
