package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"ledge/internal/testrun"
)

const pagePassword = "correct horse battery"

// rudePod writes markup, and has a mistake in it.
const rudePod = `apiVersion: v1
kind: Pod
metadata: {name: rude}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: ledge.local/self
    args: ["echo", "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"]
---
apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  containers:
  - name: main
    image: ledge.local/self
    args: ["httpd"]
    resources: {requests: {memory: 900Gi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: ledge.local/self, args: ["httpd", "-p", "8080"]}
`

// pageBoard is a board with its page on.
func pageBoard(t *testing.T) (b *testBoard, at string) {
	t.Helper()
	b = newBoard(t)
	port := freePort(t)
	must(t, os.WriteFile(b.config, fmt.Appendf(nil, "%spage:\n  listen: 127.0.0.1:%d\n  password: %s\n  acts: true\n", boardConfig, port, pagePassword),
		0o600))
	b.serve()
	text, err := os.ReadFile(b.config)
	must(t, err)
	if strings.Contains(string(text), pagePassword) || !strings.Contains(string(text), `password: "scrypt:`) {
		t.Errorf("the file still has the password:\n%s", text)
	}
	return b, fmt.Sprintf("https://127.0.0.1:%d", port)
}

// TestPage is the page in a real browser.
func TestPage(t *testing.T) {
	t.Parallel()
	onHost(t)
	b, at := pageBoard(t)
	b.apply(webPod)
	b.apply(rudePod)
	w := newBrowser(t, strings.TrimPrefix(at, "https://"), "--ignore-certificate-errors")
	w.size(1200, 900)
	w.open(at + "/pods")
	w.shows("Password")
	w.reachable("login")
	w.whileLoading(func() {
		w.eval(`document.getElementById("password").value = "wrong password"; document.querySelector("form.enter").submit()`, nil)
	})
	w.shows("That is not the password")
	w.quiet1(t) // the browser itself tells of a 403
	w.whileLoading(func() {
		w.eval(fmt.Sprintf(`document.getElementById("password").value = %q; document.querySelector("form.enter").submit()`, pagePassword), nil)
	})
	w.shows("web", "rude", "large", "Insufficient memory", "live")
	for path, words := range map[string][]string{
		"/": {b.name, "This board", "Memory", "no node takes it", "live"}, "/pods": {"web", "live"}, "/pods/default/web": {"Containers", "runs since"},
		"/workloads": {"shop", "Restart"}, "/services": {"kubernetes"}, "/disk": {"Who writes to it", "ledge.local/self"},
		"/power": {"The plan", "default/web", "Switch off"}, "/events": {"FailedScheduling"}, "/pods/default/rude/log": {"<script>document.title"},
	} {
		w.size(1200, 900)
		w.open(at + path)
		w.shows(words...)
		w.reachable(path)
		w.dark(true)
		w.reachable(path + ", dark")
		w.dark(false)
		w.picture("page" + strings.ReplaceAll(path, "/", "-"))
		w.size(360, 740)
		var wide bool
		w.eval("document.documentElement.scrollWidth > window.innerWidth", &wide)
		if wide {
			t.Errorf("%s is wider than a phone", path)
		}
		w.picture("phone" + strings.ReplaceAll(path, "/", "-"))
		var title string
		if w.eval("document.title", &title); title == "taken" {
			t.Errorf("%s: what a pod has written ran as a script", path)
		}
		w.quiet(path)
	}
	w.size(1200, 900)
	w.open(at + "/pods")
	w.shows("web", "live")
	w.eval("window.stays = true", nil)
	b.must("delete", "pod", "web")
	testrun.Succeeds(t, testrun.Patience(30*time.Second), "a pod that is gone is gone from the page, too", func() error {
		if strings.Contains(w.text(), "\nweb") || strings.Contains(w.text(), "\tweb\t") {
			return fmt.Errorf("it is there: %s", w.text())
		}
		return nil
	})
	var stays bool
	if w.eval("window.stays === true", &stays); !stays {
		t.Error("the page was loaded again")
	}
	pageActs(t, b, w, at)
	w.quiet("acts")
}

// quiet1 takes note of one complaint that is due: the browser tells of each error of HTTP.
func (b *browser) quiet1(t *testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.troubles) > 1 || len(b.troubles) == 1 && !strings.Contains(b.troubles[0], "status of 403") {
		t.Errorf("%q", b.troubles)
	}
	b.troubles = nil
}

// pageActs restarts a workload, and takes back a shutdown that somebody else has asked for while it is watched.
func pageActs(t *testing.T, b *testBoard, w *browser, at string) {
	t.Helper()
	w.open(at + "/workloads")
	w.shows("shop", "Restart")
	w.whileLoading(func() { w.eval(`document.querySelector("form[action='/act/restart'] button").click()`, nil) })
	b.eventually("the Deployment was restarted", func() error {
		return contains(b.ledge("get", "deployment", "shop", "-o", "yaml"), "kubectl.kubernetes.io/restartedAt")
	})
	w.open(at + "/power")
	w.shows("The board runs", "live")
	b.must("shutdown", "--in", "1h")
	w.shows("A shutdown is asked for and begins in", "Take the shutdown back")
	w.whileLoading(func() { w.eval(`document.querySelector("form[action='/act/cancel'] button").click()`, nil) })
	w.shows("The board runs")
}

// TestPageStrangers: nobody gets in without the password, or by another page's doing; `ledge page` opens once, for this machine.
func TestPageStrangers(t *testing.T) {
	t.Parallel()
	onHost(t)
	b, at := pageBoard(t)
	b.apply(webPod)
	b.running("web")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: testrun.Patience(30 * time.Second)}
	ask := func(method, path, body string, head ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, at+path, strings.NewReader(body))
		must(t, err)
		if method == "POST" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		for i := 0; i+1 < len(head); i += 2 {
			r.Header.Set(head[i], head[i+1])
		}
		resp, err := client.Do(r)
		must(t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp, string(data)
	}
	paths := []string{"/", "/pods", "/pods/default/web", "/pods/default/web/log", "/workloads", "/services", "/disk", "/power", "/events"}
	for _, path := range paths {
		for _, accept := range []string{"text/html", "application/json", "text/event-stream", "*/*"} {
			if resp, text := ask("GET", path, "", "Accept", accept); resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusSeeOther ||
				strings.Contains(text, b.name) {
				t.Errorf("a stranger gets %s as %s: %d %.200s", path, accept, resp.StatusCode, text)
			}
		}
	}
	if resp, text := ask("GET", "/ca.crt", ""); resp.StatusCode != 200 || !strings.HasPrefix(text, "-----BEGIN CERTIFICATE") {
		t.Errorf("%d %.100s", resp.StatusCode, text)
	}
	enter := "password=" + strings.ReplaceAll(pagePassword, " ", "+")
	if resp, _ := ask("POST", "/enter", enter, "Sec-Fetch-Site", "cross-site"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("another page may send the password: %d", resp.StatusCode)
	}
	resp, _ := ask("POST", "/enter", enter)
	if resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) != 1 {
		t.Fatalf("the password: %d", resp.StatusCode)
	}
	c := resp.Cookies()[0]
	if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || !strings.HasPrefix(c.Name, "__Host-") {
		t.Errorf("cookie %s", c)
	}
	cookie := c.Name + "=" + c.Value
	for _, path := range paths {
		resp, text := ask("GET", path, "", "Accept", "text/html", "Cookie", cookie)
		if resp.StatusCode != 200 || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") || len(text) > 60<<10 {
			t.Errorf("%s: %d, %d bytes", path, resp.StatusCode, len(text))
		}
	}
	_, text := ask("GET", "/pods/default/web", "", "Accept", "text/html", "Cookie", cookie)
	form := regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(text)
	if form == nil {
		t.Fatal("no form on it")
	}
	kill := "namespace=default&name=web&form="
	for _, c := range []struct {
		what, body string
		head       []string
	}{
		{"no session", kill + form[1], nil}, {"no secret", kill, []string{"Cookie", cookie}},
		{"another secret", kill + "x" + form[1], []string{"Cookie", cookie}},
		{"another origin", kill + form[1], []string{"Cookie", cookie, "Origin", "https://evil.example"}},
		{"another site", kill + form[1], []string{"Cookie", cookie, "Sec-Fetch-Site", "cross-site"}},
	} {
		if resp, _ := ask("POST", "/act/delete", c.body, c.head...); resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", c.what, resp.StatusCode)
		}
	}
	if err := contains(b.ledge("get", "pods"), "web"); err != nil {
		t.Error(err)
	}
	if resp, text := ask("POST", "/act/delete", kill+form[1], "Cookie", cookie); resp.StatusCode != 200 || !strings.Contains(text, "Do you mean it?") {
		t.Errorf("its own form, unasked: %d", resp.StatusCode)
	}
	if resp, _ := ask("POST", "/act/delete", kill+form[1]+"&sure=yes", "Cookie", cookie); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("its own form: %d", resp.StatusCode)
	}
	pageOnLaptop(t, b)
}

// pageOnLaptop opens the page by a kubeconfig.
func pageOnLaptop(t *testing.T, b *testBoard) {
	t.Helper()
	cmd := b.command(untilDone(t, 2*time.Minute), "--run-dir", b.runDir, "page", "--kubeconfig", b.runDir+"/admin.kubeconfig")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var link string
	for lines := bufio.NewScanner(out); link == "" && lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); strings.HasPrefix(line, "http://127.") {
			link = line
		}
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(link, "http://"), "/")
	w := newBrowser(t, host)
	w.open(link) // it leads on to the page
	w.shows(b.name, "This board", "live")
	w.quiet("the page on a laptop")
	w.open(link)
	w.shows("This board", "live")
	thief := newBrowser(t, host)
	thief.open(link)
	thief.shows("it opens once")
}
