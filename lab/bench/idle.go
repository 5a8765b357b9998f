package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ledge/lab/bench/measure"
)

// idle watches a node that has nothing to do.
func (n *node) idle(ctx context.Context) error {
	if err := n.firstSnapshot(ctx); err != nil {
		return err
	}
	if err := measure.Rest(ctx); err != nil {
		return err
	}
	before, err := n.effort()
	if err != nil {
		return err
	}
	if err := measure.Sleep(ctx, n.b.idle); err != nil {
		return err
	}
	after, err := n.effort()
	if err != nil {
		return err
	}
	perDay := 24 * float64(time.Hour) / float64(n.b.idle) / 1e6
	note := fmt.Sprintf("%s watched, as a day", n.b.idle)
	n.b.add("written by an idle node (processes)", "ledge", float64(after.written-before.written)*perDay, "MB/day", note)
	if n.device != "" {
		n.b.add("written by an idle node (block device)", "ledge", float64(after.sectors-before.sectors)*512*perDay, "MB/day", note)
	}
	n.b.add("idle CPU", "ledge", 100*(after.cpu-before.cpu)/n.b.idle.Seconds(), "% of a core", note)
	return nil
}

// firstSnapshot waits until the store has been copied for the first time, some minutes after its start. The next copies
// are made hours later and only of what has changed, so one of them in the few minutes that are watched is no idle day.
func (n *node) firstSnapshot(ctx context.Context) error {
	for end := time.Now().Add(15 * time.Minute); time.Now().Before(end); {
		list, err := filepath.Glob(filepath.Join(n.data, "store", "snapshots", "[^.]*"))
		if err != nil || len(list) > 0 {
			return err
		}
		if err := measure.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return fmt.Errorf("the store in %s had no snapshot within 15 minutes", n.data)
}

// effort counts what brain and keeper have done so far.
type effort struct {
	written int64   // bytes handed to the block layer
	sectors int64   // that arrived at the device of the data directory
	cpu     float64 // seconds
}

func (n *node) effort() (effort, error) {
	var e effort
	syscall.Sync()
	var err error
	if e.written, e.cpu, err = measure.Spent(n.own()...); err != nil {
		return e, err
	}
	if n.device == "" {
		return e, nil
	}
	text, err := os.ReadFile(filepath.Join("/sys/block", n.device, "stat"))
	if err != nil {
		return e, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 7 {
		return e, fmt.Errorf("the statistics of %s are short", n.device)
	}
	e.sectors, err = strconv.ParseInt(fields[6], 10, 64)
	return e, err
}

// restarts measures process start to API answering, with a store of 1 MB after a clean stop; containers are not in it,
// the keeper stays.
func (n *node) restarts(ctx context.Context) error {
	if err := n.fill(ctx); err != nil {
		return err
	}
	ms, err := median(5, func(int) (time.Duration, error) { return n.again(ctx) })
	if err == nil {
		n.b.add("process start -> API answers", "ledge", ms, "ms", "store of 1 MB, clean stop")
	}
	return err
}

// fill gives the store 1 MB.
func (n *node) fill(ctx context.Context) error {
	for i := range 100 {
		object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("fill-%d", i)},
			"data": map[string]string{"text": strings.Repeat("0123456789", 1000)}}
		if _, err := n.call(ctx, "POST", "/api/v1/namespaces/default/configmaps", object); err != nil {
			return err
		}
	}
	return nil
}

// again ends the brain and starts it.
func (n *node) again(ctx context.Context) (time.Duration, error) {
	if err := n.stop(); err != nil {
		return 0, err
	}
	n.http.CloseIdleConnections()
	return n.start(ctx)
}
