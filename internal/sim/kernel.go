package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ledge/node"
	"ledge/node/machine"
	machinefake "ledge/node/machine/fake"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

// kernel plays what the machine's kernel does about memory and process numbers: it counts what each container takes (Script: eats,
// forks), shows it as cgroups of version 2 do, says when tasks wait, and kills when nothing is left. While no container takes
// anything it does nothing, and shows no cgroups.
type kernel struct {
	engine *enginefake.Engine
	dir    string // where cgroups stand

	mu     sync.Mutex
	specs  map[string]runtime.Container // of what was started, by ID
	greedy map[string]bool              // of these, what takes more than an idle one; true: it has been listed
	state  runtime.State                // as last listed
	shown  map[string]string            // what the files of cgroups say
	told   func(resource string)        // whom it tells that tasks wait
	short  time.Time                    // when the board was last seen short
	killed []string                     // UIDs of the pods whose containers it killed
}

func newKernel(dir string) *kernel {
	return &kernel{dir: dir, specs: map[string]runtime.Container{}, greedy: map[string]bool{}, shown: map[string]string{}}
}

// What a container takes that has just begun, and the board when all are like that.
const (
	restingMemory, restingTasks = 6 << 20, 4
	freeMemory, freeTasks       = 3 << 30, 32768 - 200
	shortMemory, shortTasks     = 100 << 20, 32768 / 20 // N-6.8; ledge's own line for processes
)

// taken returns the memory and tasks that a container uses beyond an idle one, at this age.
func taken(c runtime.Container, age time.Duration) (memory, tasks int64) {
	for _, word := range c.Args {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "eats":
			memory = amount(value, age)
		case "forks":
			tasks = amount(value, age)
		}
	}
	return memory, tasks
}

// amount reads "RATE:MOST": so much a second, up to a maximum.
func amount(s string, age time.Duration) int64 {
	var rate, most int64
	if _, err := fmt.Sscanf(s, "%d:%d", &rate, &most); err != nil {
		panic("sim: bad amount in a command: " + s)
	}
	return min(most, int64(float64(rate)*age.Seconds()))
}

// script returns how a container behaves, and remembers it.
func (k *kernel) script(c runtime.Container) enginefake.Behaviour {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.specs[c.ID] = c
	if isGreedy(c) {
		k.greedy[c.ID] = false
	}
	return Script(c)
}

func isGreedy(c runtime.Container) bool {
	return slices.ContainsFunc(c.Args, func(word string) bool {
		return strings.HasPrefix(word, "eats=") || strings.HasPrefix(word, "forks=")
	})
}

// look counts, and gives what is left of the board's memory and process numbers. The agent looks four times a second: where nobody takes
// anything there is nothing to count.
func (k *kernel) look() (memory, tasks int64) {
	k.mu.Lock()
	if len(k.greedy) == 0 {
		defer k.mu.Unlock()
		k.hide()
		return freeMemory, freeTasks
	}
	k.mu.Unlock()
	st, err := k.engine.List(context.Background()) // which calls script with its lock held
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil { // a keeper that is away changes nothing: the containers are what they were
		k.state = st
		k.forget()
	}
	now, cgroups := time.Now(), map[string]string{}
	memory, tasks = freeMemory, freeTasks
	pods := map[string][2]int64{}
	places := map[string]string{}
	for _, p := range k.state.Pods {
		places[p.Pod.UID], pods[p.Pod.UID] = p.Pod.Cgroup, [2]int64{}
	}
	for _, c := range k.state.Containers {
		if c.Phase != runtime.Running {
			continue
		}
		m, t := taken(k.specs[c.ID], now.Sub(c.StartedAt))
		memory, tasks = memory-m, tasks-t
		m, t = m+restingMemory, t+restingTasks
		sum := pods[c.PodUID]
		pods[c.PodUID] = [2]int64{sum[0] + m, sum[1] + t}
		show(cgroups, filepath.Join(places[c.PodUID], c.ID), m, t)
	}
	if memory == freeMemory && tasks == freeTasks {
		k.hide()
		return memory, tasks
	}
	for uid, sum := range pods {
		show(cgroups, places[uid], sum[0], sum[1])
	}
	k.write(cgroups)
	if memory < shortMemory || tasks < shortTasks {
		k.short = now
	}
	return memory, tasks
}

// forget takes out what was listed and is no more. What has yet to begin is not listed.
func (k *kernel) forget() {
	here := map[string]bool{}
	for _, c := range k.state.Containers {
		here[c.ID] = true
	}
	for id, listed := range k.greedy {
		switch {
		case here[id]:
			k.greedy[id] = true
		case listed:
			delete(k.greedy, id)
			delete(k.specs, id)
		}
	}
}

func show(to map[string]string, cgroup string, memory, tasks int64) {
	to[filepath.Join(cgroup, "memory.current")] = fmt.Sprintln(memory)
	to[filepath.Join(cgroup, "memory.stat")] = fmt.Sprintf("anon %d\nfile 0\ninactive_file 0\n", memory)
	to[filepath.Join(cgroup, "pids.current")] = fmt.Sprintln(tasks)
}

// write makes the files of cgroups say that.
func (k *kernel) write(files map[string]string) {
	for name := range k.shown {
		if _, stays := files[name]; !stays {
			_ = os.RemoveAll(filepath.Join(k.dir, filepath.Dir(name))) // a cgroup goes as a whole
		}
	}
	for name, text := range files {
		if k.shown[name] == text {
			continue
		}
		file := filepath.Join(k.dir, name)
		err := os.WriteFile(file, []byte(text), 0o600)
		if os.IsNotExist(err) {
			if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
				err = os.WriteFile(file, []byte(text), 0o600)
			}
		}
		if err != nil {
			panic("sim: cannot show a cgroup: " + err.Error())
		}
	}
	k.shown = files
}

func (k *kernel) hide() {
	if len(k.shown) > 0 {
		_ = os.RemoveAll(k.dir)
		clear(k.shown)
	}
}

// tick is what the kernel does by itself: it says that tasks wait when little is left, and when nothing is kills whoever has
// most, by the kernel's own measure.
func (k *kernel) tick() {
	memory, _ := k.look()
	k.mu.Lock()
	tell, victim := k.told, ""
	if memory <= 0 {
		victim = k.fattest()
	}
	k.mu.Unlock()
	if tell != nil && memory < shortMemory/4 {
		tell("memory")
	}
	if victim != "" {
		k.engine.End(victim, runtime.Exit{Code: 137, Signal: 9, OOMKilled: true})
	}
}

func (k *kernel) fattest() (id string) {
	most, pod := int64(0), ""
	for _, c := range k.state.Containers {
		if c.Phase != runtime.Running {
			continue
		}
		spec := k.specs[c.ID]
		badness, _ := taken(spec, time.Since(c.StartedAt))
		if adj := spec.Resources.OOMScoreAdj; adj != nil {
			badness += int64(*adj) * (4 << 30) / 1000
		}
		if badness += 1 << 40; badness > most { // a score may be below zero
			most, id, pod = badness, c.ID, c.PodUID
		}
	}
	k.killed = append(k.killed, pod)
	return id
}

// stalled tells of tasks that wait, until ctx ends.
func (k *kernel) stalled(ctx context.Context, fn func(resource string)) error {
	k.mu.Lock()
	k.told = fn
	k.mu.Unlock()
	<-ctx.Done()
	return nil
}

// shortSince says whether the board has been short since then.
func (k *kernel) shortSince(at time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.short.Before(at)
}

// victims are the pods whose containers it has killed since it was asked last.
func (k *kernel) victims() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.killed
	k.killed = nil
	return out
}

// counted is the machine as an agent sees it that has a kernel to ask.
type counted struct {
	machinefake.Machine
	*kernel
}

var _ node.Machine = counted{}

func newCounted(m *Machine, k *kernel) counted {
	see := func() (machine.Sample, error) {
		s, err := m.look()
		memory, tasks := k.look()
		s.MemoryAvailable, s.PIDUsed = memory, s.PIDMax-tasks
		return s, err
	}
	return counted{machinefake.Machine{See: see}, k}
}

// Stalled implements node.Machine.
func (c counted) Stalled(ctx context.Context, fn func(string)) error { return c.stalled(ctx, fn) }
