package door

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// alone makes this program a door and nothing else, so that its memory can be read.
const alone = "door-alone"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == alone {
		if err := openAlone(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// openAlone leads a.test to an endpoint until the input ends, and says where.
func openAlone(to string) error {
	end, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	r := &rig{d: &follower{}}
	r.lead(at(end), nil)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	encrypted, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println(plain.Addr())
	return newServer(r.d, 1024, newTally(false)).run(ctx, plain, encrypted)
}

const nginxConf = `daemon off; worker_processes auto; pid %[1]s/pid; error_log /dev/null;
events { worker_connections 1024; }
http {
	access_log off; client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
	upstream ends { server %[2]s; keepalive 32; }
	server {
		listen %[3]s; server_name a.test;
		location / {
			proxy_pass http://ends; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;
		}
	}
}
`

// BenchmarkDoor is what a request costs on its way through the door, beside Debian's nginx where that is there, and without either.
// Clients, endpoint and what leads from one to the other share the machine.
func BenchmarkDoor(b *testing.B) {
	end := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1024))
	}))
	b.Cleanup(end.Close)
	to := end.Listener.Addr().String()
	b.Run("direct", func(b *testing.B) { ride(b, to) })
	b.Run("ledge", func(b *testing.B) {
		self, err := os.Executable()
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command(self, alone, to)
		cmd.Env = append(os.Environ(), "GOGC="+cmp.Or(os.Getenv("DOOR_GOGC"), "200"), "GOMEMLIMIT=160MiB") // as the pod has (controller)
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
		var where string
		if _, err := fmt.Fscan(out, &where); err != nil {
			b.Fatal(err)
		}
		ride(b, where, cmd.Process.Pid)
	})
	b.Run("nginx", func(b *testing.B) {
		binary, err := exec.LookPath("nginx")
		if err != nil {
			b.Skip("Debian's nginx is not there: apt-get install nginx-light, or put it into PATH")
		}
		where := gone(b).String()
		dir := b.TempDir()
		conf := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, to, where), 0o600); err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command(binary, "-e", "/dev/null", "-p", dir, "-c", conf)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _ = cmd.Process.Signal(syscall.SIGTERM), cmd.Wait() })
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if c, err := net.Dial("tcp", where); err == nil {
				_ = c.Close()
				break
			} else if time.Now().After(until) {
				b.Fatal(err)
			}
		}
		ride(b, where, append(children(cmd.Process.Pid), cmd.Process.Pid)...)
	})
}

// ride has 32 clients ask, each again and again on one connection.
func ride(b *testing.B, where string, pids ...int) {
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true}}
	defer c.CloseIdleConnections()
	var mu sync.Mutex
	var all []time.Duration
	b.SetParallelism(16)
	b.ResetTimer()
	began := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		var took []time.Duration
		for pb.Next() {
			req, _ := http.NewRequest("GET", "http://"+where+"/", nil) // the address is a good one
			req.Host = "a.test"
			began := time.Now()
			resp, err := c.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			n, err := io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if err != nil || n != 1024 || resp.StatusCode != 200 {
				b.Errorf("%d, %d bytes, %v", resp.StatusCode, n, err)
				return
			}
			took = append(took, time.Since(began))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, took...)
	})
	b.StopTimer()
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/time.Since(began).Seconds(), "req/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	kib, ticks := 0, 0
	for _, pid := range pids {
		kib += anonymous(b, pid)
		ticks += processorTicks(b, pid)
	}
	if len(pids) > 0 {
		b.ReportMetric(float64(kib)/1024, "anon-MiB")
		b.ReportMetric(float64(ticks)*10000/float64(len(all)), "cpu-µs/req") // of a hundredth of a second each
	}
}

func children(pid int) (out []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid)) // kernels without it: the master alone
	for f := range strings.FieldsSeq(string(text)) {
		var child int
		_, _ = fmt.Sscan(f, &child)
		out = append(out, child)
	}
	return out
}

// anonymous is the memory of a process that no file has, in KiB, shared out among those who share it.
func anonymous(b *testing.B, pid int) (kib int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "Pss_Anon: %d kB", &kib) // the other lines are others
	}
	return kib
}

func processorTicks(b *testing.B, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	var user, system int
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) > 12 {
		_, _ = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	}
	return user + system
}
