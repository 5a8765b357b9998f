package shutdown

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRecord: the file of N-5.34, and what a start without an end means (N-5.35).
func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), RecordName)
	if r, err := LoadRecord(path); err != nil || r != (Record{}) || r.Unfinished() {
		t.Errorf("a new board: %+v %v", r, err)
	}
	begun := time.Date(2026, 11, 21, 10, 0, 0, 123456789, time.UTC)
	if err := (Record{Begun: begun}).save(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if want := `{"startTime":"2026-11-21T10:00:00.123456789Z","endTime":"0001-01-01T00:00:00Z"}`; err != nil || string(data) != want {
		t.Errorf("%s %v, want %s", data, err, want)
	}
	if r, err := LoadRecord(path); err != nil || !r.Begun.Equal(begun) || !r.Unfinished() {
		t.Errorf("%+v %v", r, err)
	}
	if err := (Record{Begun: begun, Ended: begun.Add(time.Second)}).save(path); err != nil {
		t.Fatal(err)
	}
	if r, err := LoadRecord(path); err != nil || r.Unfinished() {
		t.Errorf("%+v %v", r, err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("mode %v %v", st.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(path, []byte(`{"startTime":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRecord(path); err == nil {
		t.Error("half a file was read")
	}
}
