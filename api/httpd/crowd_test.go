package httpd_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"ledge/api/httpd"
)

// A hundred watchers begin at once with a large present state, a few of them never read, and lists and writes go on beside
// them. Whoever reads is told everything, in order.
func TestCrowdOfLargeAnswers(t *testing.T) {
	const watchers, idlers, maps, writes = 100, 3, 40, 20
	f := serve(t, httpd.Config{})
	filler := strings.Repeat("x", 4<<10)
	body := func(i, version int) string {
		return fmt.Sprintf(`{"metadata":{"name":"m%02d"},"data":{"version":"%d","filler":%q}}`, i, version, filler)
	}
	for i := range maps {
		f.must(201, "POST", mapsPath, body(i, 0))
	}
	for range idlers {
		conn, _ := f.raw("GET " + mapsPath + "?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
		defer conn.Close()
	}
	watch := func(n int) error {
		resp, err := f.send(admin, "GET", mapsPath+"?watch=1", "")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return fmt.Errorf("watcher %d: %s", n, resp.Status)
		}
		in := bufio.NewReader(resp.Body)
		for last := -1; last < writes; {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return fmt.Errorf("watcher %d, after %d: %w", n, last, err)
			}
			var e struct {
				Object struct {
					Metadata struct{ Name string }
					Data     struct {
						Version int `json:",string"`
					}
				}
			}
			if err := json.NewDecoder(bytes.NewReader(line)).Decode(&e); err != nil {
				return err
			}
			if e.Object.Metadata.Name != "m00" {
				continue
			}
			if e.Object.Data.Version != last+1 && last >= 0 {
				return fmt.Errorf("watcher %d was told %d after %d", n, e.Object.Data.Version, last)
			}
			last = e.Object.Data.Version
		}
		return nil
	}
	var all sync.WaitGroup
	for n := range watchers {
		all.Go(func() {
			if err := watch(n); err != nil {
				t.Error(err)
			}
		})
	}
	for version := 1; version <= writes; version++ {
		all.Go(func() {
			resp, err := f.send(admin, "GET", mapsPath, "")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || n < maps*4<<10 {
				t.Errorf("a list: %s, %d bytes, %v", resp.Status, n, err)
			}
		})
		f.must(200, "PUT", mapsPath+"/m00", body(0, version))
		time.Sleep(10 * time.Millisecond) // spreads the writes over the watches that begin
	}
	all.Wait()
}
