package pressure

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	l := newLooks(Policy{Thresholds: []Threshold{{Signal: MemoryAvailable, Below: Limit{Percent: 0.5}, Reclaim: Limit{Amount: 7}},
		{Signal: PIDAvailable, Below: Limit{Amount: 9}, Soft: true, Grace: time.Minute}}})
	l.at = epoch.UTC()
	seen := Readings{MemoryAvailable: {Available: 10, Capacity: 100}, NodeFSAvailable: {Available: 3, Capacity: 4}}
	l.look(0, seen)
	v := l.look(time.Second, seen)
	got, err := json.Marshal(Describe(l.all, l.state, v, seen, l.at))
	want := `{"at":"1970-01-01T00:16:41Z","conditions":[{"type":"MemoryPressure","status":true,"since":"1970-01-01T00:16:40Z"},` +
		`{"type":"DiskPressure","status":false},{"type":"PIDPressure","status":false}],"signals":[` +
		`{"signal":"memory.available","available":10,"capacity":100,"thresholds":[{"below":50,"minimumReclaim":7,"metSince":"1970-01-01T00:16:40Z"}]},` +
		`{"signal":"allocatableMemory.available","thresholds":[{"below":0,"minimumReclaim":7}]},` +
		`{"signal":"nodefs.available","available":3,"capacity":4},` +
		`{"signal":"pid.available","thresholds":[{"soft":true,"below":9,"gracePeriod":"1m0s"}]}]}`
	if err != nil || string(got) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, strings.ReplaceAll(want, "\n", ""))
	}
}
