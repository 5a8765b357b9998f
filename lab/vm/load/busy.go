package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// busy keeps the node at work until the power goes. Each worker has names of its own, so that at most one change of an
// object is not acknowledged at any time.
func (g *guest) busy() error {
	if err := errors.Join(g.importProgram(), g.permanent()); err != nil {
		return err
	}
	ends := make(chan error, 8)
	worker := func(n uint64, f func(*rand.Rand) error) {
		go func() {
			r := rand.New(rand.NewPCG(g.seed, n))
			for {
				if err := f(r); err != nil {
					ends <- err
					return
				}
			}
		}()
	}
	for i := range 3 {
		maps, err := g.counters(fmt.Sprintf("c%d-", i))
		if err != nil {
			return err
		}
		worker(uint64(i), func(r *rand.Rand) error { return g.changeMap(r, maps) })
	}
	for i := range 2 {
		worker(uint64(10+i), func(r *rand.Rand) error { return g.changePod(r, fmt.Sprintf("p%d-%d", i, r.IntN(3))) })
	}
	worker(30, lasting{g}.changeClaim)
	supply := &supply{}
	worker(20, func(r *rand.Rand) error { return g.changeImage(r, supply) })
	g.host.say("busy")
	return <-ends
}

// permanent makes, once in the life of the disk, a pod that writes its log as fast as it can and one that does nothing.
func (g *guest) permanent() error {
	for name, args := range map[string][]string{"chat": {program, "/pod", "chat"}, "stays": {"ledge.local/self", "/bin/sleep", "1h"}} {
		_, err := g.ask("GET", objects+"pods/"+name, nil)
		if refused(err, http.StatusNotFound) {
			err = g.create(name, args[0], args[1:], `"restartPolicy":"Always"`)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refused: the node has answered, with this code.
func refused(err error, code int) bool {
	r := (*refusal)(nil)
	return errors.As(err, &r) && r.code == code
}

// try says that a change is tried. It has to be said of n when it is acknowledged.
func (g *guest) try(kind, name, value string) (n int) {
	g.mu.Lock()
	g.ops++
	n = g.ops
	g.mu.Unlock()
	g.host.say("try", n, kind, name, value)
	return n
}

// change makes one change and says before that it is tried, and after that it is acknowledged.
func (g *guest) change(kind, name, value, method, path string, body []byte) ([]byte, error) {
	n := g.try(kind, name, value)
	data, err := g.ask(method, path, body)
	if err == nil && bytes.Contains(data, []byte(`"error":`)) { // the last line of a pull
		err = fmt.Errorf("%s %s: %s", method, path, data)
	}
	if err != nil {
		return nil, err
	}
	var o object
	_ = json.Unmarshal(data, &o) // not every answer is an object
	revision := o.Metadata.ResourceVersion
	if revision == "" {
		revision = "0"
	}
	g.host.say("ack", n, revision)
	return data, nil
}

const absent = "-"

// counters are the config maps of a worker and what they hold now.
func (g *guest) counters(prefix string) (map[string]int, error) {
	have := map[string]int{}
	l, err := g.list(objects + "configmaps")
	for _, o := range l.Items {
		if strings.HasPrefix(o.Metadata.Name, prefix) {
			have[o.Metadata.Name], _ = strconv.Atoi(o.Data["n"]) // we wrote it
		}
	}
	for i := range 6 {
		name := prefix + strconv.Itoa(i)
		have[name] += 0 // 0: not there
	}
	return have, err
}

func (g *guest) changeMap(r *rand.Rand, have map[string]int) error {
	names := make([]string, 0, len(have))
	for name := range have {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[r.IntN(len(names))]
	path := objects + "configmaps"
	if have[name] > 0 && r.IntN(4) == 0 {
		have[name] = 0
		_, err := g.change("configmaps", name, absent, "DELETE", path+"/"+name, nil)
		return err
	}
	method := "PUT"
	if have[name] == 0 {
		method = "POST"
	} else {
		path += "/" + name
	}
	n := 1 + int(time.Now().UnixMicro()) // grows over all boots
	have[name] = n
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"n":"%d","fill":%q}}`, name, n,
		strings.Repeat("x", r.IntN(3000)))
	_, err := g.change("configmaps", name, strconv.Itoa(n), method, path, []byte(body))
	return err
}

// changePod creates a pod that is not there and deletes one that is, half of them without waiting for its end.
func (g *guest) changePod(r *rand.Rand, name string) error {
	path := objects + "pods/" + name
	time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	_, err := g.ask("GET", path, nil)
	if refused(err, http.StatusNotFound) {
		return g.create(name, "ledge.local/self", []string{"/bin/sleep", "1h"}, `"restartPolicy":"Always","terminationGracePeriodSeconds":1`)
	}
	if err != nil {
		return err
	}
	if r.IntN(2) == 0 {
		path += "?gracePeriodSeconds=0"
	}
	if _, err := g.change("pods", name, absent, "DELETE", path, nil); err != nil {
		return err
	}
	return wait(3*time.Minute, func() error {
		_, err := g.ask("GET", objects+"pods/"+name, nil)
		if refused(err, http.StatusNotFound) {
			return nil
		}
		return fmt.Errorf("%s does not go: %w", name, err)
	})
}

// create makes a pod; spec is more of its specification.
func (g *guest) create(name, image string, args []string, spec string) error {
	command, _ := json.Marshal(args) // strings always become JSON
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{%s,"containers":[{"name":"c","image":%q,`+
		`"imagePullPolicy":"Never","command":%s}]}}`, name, spec, image, command)
	_, err := g.change("pods", name, "there", "POST", objects+"pods", body)
	return err
}
