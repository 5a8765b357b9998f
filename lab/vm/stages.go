package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// podLogs are the logs of the pods order-<priority>-<number>: word -> milliseconds, the last of each.
type podLogs map[string]map[string]int64

func (l podLogs) add(pod, word, millis string) {
	n, err := strconv.ParseInt(millis, 10, 64)
	if err != nil {
		return // a pod that has no time lacks a word
	}
	if l[pod] == nil {
		l[pod] = map[string]int64{}
	}
	l[pod][word] = n
}

// end keeps how the API says a pod has ended: "name phase reason".
func (l podLogs) end(args []string) {
	if len(args) > 0 && strings.Join(args[1:], " ") == "Failed Terminated" {
		l.add(args[0], "terminated", "1")
	}
}

// stage is how the pods of one priority ended, by their own clocks.
type stage struct {
	Priority int   `json:"priority"`
	Pods     int   `json:"pods"`
	From     int64 `json:"fromMs"` // the first signal, since the first of all
	Took     int64 `json:"tookMs"` // until the last pod's last word
	Deaf     int   `json:"deaf"`   // pods that ignored the signal

	first, last int64
}

// How the pods of the guest's load behave (lab/vm/load/order.go).
const (
	obeyTakes  = 1000
	deafGrace  = 3000
	orderPods  = 20
	priorities = 4
)

// stages tells who was stopped when, and which rules that breaks. A pod of higher priority gets its signal after the last word of all
// lower ones (N-5.10). Pods of one priority are stopped together. A pod that obeys has its time; one that does not is killed when its
// grace is over, and not before.
func (l podLogs) stages() (out []stage, wrong []string) {
	by := map[int]*stage{}
	for _, pod := range slices.Sorted(maps.Keys(l)) {
		words := l[pod]
		p, err := strconv.Atoi(strings.Split(pod+"--", "-")[1])
		if err != nil || words["up"] == 0 || words["term"] == 0 || words["terminated"] == 0 {
			wrong = append(wrong, fmt.Sprintf("%s was not stopped in order: %v", pod, words))
			continue
		}
		s := by[p]
		if s == nil {
			s = &stage{Priority: p, first: words["term"]}
			by[p] = s
		}
		last := words["end"]
		if last == 0 {
			s.Deaf++
			// Half of it: on an emulated machine under load a pod may not get to say a word for a while.
			if last = words["here"]; last < words["term"]+deafGrace/2 {
				wrong = append(wrong, fmt.Sprintf("%s was killed before its time: %v", pod, words))
			}
		}
		s.Pods++
		s.first, s.last = min(s.first, words["term"]), max(s.last, last)
	}
	total := 0
	for _, p := range slices.Sorted(maps.Keys(by)) {
		s := by[p]
		s.From, s.Took = s.first-by[slices.Min(slices.Collect(maps.Keys(by)))].first, s.last-s.first
		if n := len(out); n > 0 && s.first < out[n-1].last {
			wrong = append(wrong, fmt.Sprintf("priority %d got its signal %d ms before the end of priority %d", p, out[n-1].last-s.first,
				out[n-1].Priority))
		}
		if most := int64(s.Pods*obeyTakes + s.Deaf*deafGrace); s.Took >= most {
			wrong = append(wrong, fmt.Sprintf("priority %d took %d ms, as if its pods were stopped one by one (%d)", p, s.Took, most))
		}
		total += s.Pods
		out = append(out, *s)
	}
	if total != orderPods || len(out) != priorities {
		wrong = append(wrong, fmt.Sprintf("%d pods in %d priorities have told their end, want %d in %d", total, len(out), orderPods, priorities))
	}
	return out, wrong
}
