package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watch looks at the node through its socket and says on the console when its pods run; then it kills the brain, and says
// when another one has the same containers. Then it asks for the end of the machine: the node ("off"), or process 1 by a signal
// ("signal"); else it kills that brain too, for a power key that is pressed while there is none.
func watch(end string) {
	began := time.Now()
	go tellTime(began)
	before := awaitPods(nil)
	fmt.Println("@@running", len(before))
	awaitTime(began)
	if swaps, err := os.ReadFile("/proc/1/root/proc/swaps"); err != nil || !bytes.Contains(swaps, []byte("/dev/zram0 ")) {
		fmt.Printf("@@fault: nothing is swapped into memory: %q %v\n", swaps, err)
		return
	}
	if err := killBrain(); err != nil {
		fmt.Println("@@fault:", err)
		return
	}
	after := awaitPods(before)
	if !slices.Equal(before, after) {
		fmt.Println("@@fault: other containers:", before, after)
		return
	}
	fmt.Println("@@again", len(after))
	switch end {
	case "":
		if err := killBrain(); err != nil {
			fmt.Println("@@fault:", err)
			return
		}
		fmt.Println("@@gone")
		return
	case "signal":
		if err := unix.Kill(1, unix.SIGPWR); err != nil {
			fmt.Println("@@fault:", err)
		}
		return
	}
	var resp *http.Response
	req, err := http.NewRequest(http.MethodPost, "http://ledge/ledge/v1/shutdown?in=0s", nil)
	if err == nil {
		req.Header.Set("Ledge-Meant", "yes")
		resp, err = client.Do(req)
	}
	if err == nil && resp.StatusCode != http.StatusAccepted {
		err = errors.New(resp.Status)
	}
	if err != nil {
		fmt.Println("@@fault: ask for a shutdown:", err)
	}
}

// awaitPods gives the containers once every pod runs, and those of before are there again.
func awaitPods(before []string) []string {
	for said := 0; ; said++ {
		ids, err := containers()
		if err == nil && len(ids) > 0 && len(ids) >= len(before) {
			return ids
		}
		if said%50 == 49 {
			fmt.Println("@@waiting:", len(ids), err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// The root of this process is the initramfs as it was before ledge mounted anything.
var client = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", "/proc/1/root/run/ledge/ledge.sock")
	}}}

// ask reads an object of the API.
func ask(path string, to any) error {
	resp, err := client.Get("http://ledge" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(to)
}

// containers are the IDs of the running ones, once there is no pod without.
func containers() (ids []string, err error) {
	var list struct {
		Items []struct {
			Status struct {
				Phase             string
				ContainerStatuses []struct {
					ContainerID string
					State       struct{ Running *struct{} }
				}
			}
		}
	}
	if err := ask("/api/v1/pods", &list); err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if p.Status.Phase != "Running" {
			return ids, errors.New("a pod is " + p.Status.Phase)
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil {
				return ids, errors.New("a container does not run")
			}
			ids = append(ids, c.ContainerID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// killBrain kills the child of process 1 that serves.
func killBrain() error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, f := range files {
		line, err := os.ReadFile(f)
		pid, perr := strconv.Atoi(strings.Split(f, "/")[2])
		if err == nil && perr == nil && pid != 1 && bytes.HasPrefix(line, []byte("/ledge\x00serve\x00")) {
			return unix.Kill(pid, unix.SIGKILL)
		}
	}
	return errors.New("no brain found")
}
