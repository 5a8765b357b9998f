package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/network/netns"
)

// browser is a real one, without a screen, told what to do by its own protocol over a pair of pipes (remote debugging).
type browser struct {
	t       *testing.T
	out     *os.File
	session string // of the tab

	mu       sync.Mutex
	last     int
	waiting  map[int]chan answer
	troubles []string // errors and warnings of its console, scripts that failed, and what the page's own policy kept from it
	loaded   chan struct{}
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// newBrowser starts one that knows this address only, of 127.0.0.1. It has a network of its own: in this machine's it would hear of
// every pod that comes, and drop what it was loading.
func newBrowser(t *testing.T, at string, args ...string) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium (scripts/setup.sh browser)")
	}
	if _, err := axe(); err != nil {
		t.Skip(err)
	}
	in, theirOut, err := os.Pipe()
	must(t, err)
	theirIn, out, err := os.Pipe()
	must(t, err)
	home, space := t.TempDir(), fmt.Sprintf("%s-web%d", testrun.Mark(), browsers.Add(1))
	ip(t, "netns", "add", space)
	t.Cleanup(func() { ip(t, "netns", "del", space) })
	ip(t, "-n", space, "link", "set", "lo", "up")
	carry(t, space, at)
	cmd := exec.Command("nsenter", append([]string{"--net=/run/netns/" + space, program, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
		"--user-data-dir=" + home}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	must(t, errors.Join(theirIn.Close(), theirOut.Close()))
	b := &browser{t: t, out: out, waiting: map[int]chan answer{}, loaded: make(chan struct{}, 1)}
	go b.read(in)
	t.Cleanup(func() {
		_ = out.Close() // by which it ends
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

var browsers atomic.Int32

// carry has an address of this machine answer in another network, too.
func carry(t *testing.T, space, at string) {
	t.Helper()
	var l net.Listener
	must(t, netns.At("/run/netns/"+space, func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	}))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			there, err := l.Accept()
			if err != nil {
				return
			}
			here, err := net.Dial("tcp", at)
			if err != nil {
				_ = there.Close()
				continue
			}
			one := func(to, from net.Conn) { _, _ = io.Copy(to, from); _ = to.Close(); _ = from.Close() }
			go one(here, there)
			go one(there, here)
		}
	}()
}

// read takes what the browser says: answers, and what happens by itself.
func (b *browser) read(in *os.File) {
	defer in.Close()
	for lines := bufio.NewReaderSize(in, 1<<20); ; {
		line, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			answer
		}
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch m.Method {
		case "":
			if ch := b.waiting[m.ID]; ch != nil {
				delete(b.waiting, m.ID)
				ch <- m.answer
			}
		case "Page.loadEventFired":
			select {
			case b.loaded <- struct{}{}:
			default:
			}
		case "Page.javascriptDialogOpening":
			go b.try("Page.handleJavaScriptDialog", map[string]any{"accept": true}, nil) //nolint:errcheck // the test sees what comes of it
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
			if text := string(m.Params); !strings.Contains(text, `"level":"verbose"`) && !strings.Contains(text, `"level":"info"`) {
				b.troubles = append(b.troubles, text)
			}
		}
		b.mu.Unlock()
	}
}

func (b *browser) try(method string, params map[string]any, into any) error {
	ch := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	b.waiting[b.last] = ch
	data, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		data, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	}
	if err == nil {
		_, err = b.out.Write(append(data, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a := <-ch:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(a.Result, into)
	case <-time.After(testrun.Patience(60 * time.Second)):
		return fmt.Errorf("%s: no answer", method)
	}
}

func (b *browser) call(method string, params map[string]any, into any) {
	b.t.Helper()
	must(b.t, b.try(method, params, into))
}

// open loads a page and waits until it is there.
func (b *browser) open(url string) {
	b.t.Helper()
	b.whileLoading(func() { b.call("Page.navigate", map[string]any{"url": url}, nil) })
}

// whileLoading does something by which another page is loaded, and waits for that.
func (b *browser) whileLoading(do func()) {
	b.t.Helper()
	select {
	case <-b.loaded:
	default:
	}
	do()
	select {
	case <-b.loaded:
	case <-time.After(testrun.Patience(60 * time.Second)):
		b.t.Fatal("no page was loaded")
	}
}

// eval gives what a script says, as JSON.
func (b *browser) eval(script string, into any) {
	b.t.Helper()
	must(b.t, b.tryEval(script, into))
}

func (b *browser) tryEval(script string, into any) error {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := b.try("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true}, &got); err != nil {
		return err
	}
	if e := got.ExceptionDetails; e != nil {
		return fmt.Errorf("%.100s: %s %s", script, e.Text, e.Exception.Description)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(got.Result.Value, into)
}

// text is what the page says.
func (b *browser) text() (text string) {
	b.t.Helper()
	b.eval("document.body.innerText", &text)
	return text
}

// shows waits until the page says something, without being loaded again.
func (b *browser) shows(words ...string) {
	b.t.Helper()
	testrun.Succeeds(b.t, testrun.Patience(30*time.Second), fmt.Sprintf("the page says %q", words), func() error {
		var text string
		if err := b.tryEval("document.body.innerText", &text); err != nil {
			return err
		}
		for _, w := range words {
			if err := contains(text, w); err != nil {
				return err
			}
		}
		return nil
	})
}

// picture keeps a picture of the page, where somebody asks for it (LEDGE_PICTURES).
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("LEDGE_PICTURES")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600))
}

// size has the window be so large, as a desk's or a phone's.
func (b *browser) size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// dark says whether the visitor wants pages dark.
func (b *browser) dark(on bool) {
	b.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[on]
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}}}, nil)
}

// quiet fails the test if the browser has complained.
func (b *browser) quiet(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.troubles {
		b.t.Errorf("%s: %.600s", where, x)
	}
	b.troubles = nil
}

// reachable runs axe, which knows what keeps people who do not see or point from using a page.
func (b *browser) reachable(where string) {
	b.t.Helper()
	file, err := axe()
	must(b.t, err)
	script, err := os.ReadFile(file)
	must(b.t, err)
	b.eval(string(script)+";0", nil) // by the protocol: the page's policy does not concern it
	var violations []struct {
		ID, Help string
		Nodes    []struct{ HTML string }
	}
	b.eval("axe.run({resultTypes: ['violations']}).then((r) => r.violations)", &violations)
	for _, v := range violations {
		b.t.Errorf("%s: %s: %s: %d times, such as %.200s", where, v.ID, v.Help, len(v.Nodes), v.Nodes[0].HTML)
	}
}

// axe is where that script is.
func axe() (file string, err error) {
	cache := os.Getenv("LEDGE_CACHE")
	if cache == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, "ledge")
	}
	found, err := filepath.Glob(filepath.Join(cache, "axe", "axe-*.js"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("needs axe in %s (scripts/setup.sh browser)", cache)
	}
	return slices.Max(found), nil
}

// untilDone is a context of the test's with an end.
func untilDone(t *testing.T, most time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(most))
	t.Cleanup(cancel)
	return ctx
}
