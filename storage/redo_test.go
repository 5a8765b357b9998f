package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"ledge/api"
	"ledge/internal/testrun"
)

func aRecord(n uint64, values ...string) record {
	r := record{before: tally{n, n * 7}, after: tally{n + 1, (n + 1) * 7}}
	for _, v := range values {
		c := change{bucket: []byte("b"), key: []byte("k"), raw: []byte(v)}
		if v == "" {
			c.raw = nil
		}
		r.changes = append(r.changes, c)
	}
	return r
}

func aSegment(number uint64, start tally, records ...record) []byte {
	out := frame(number, encodeHead("store", start))
	for _, r := range records {
		out = append(out, frame(number, encodeRecord(r))...)
	}
	return out
}

// TestRedoFrames: what was written is read, as far as it goes, and an end that was torn is told from a hole.
func TestRedoFrames(t *testing.T) {
	records := []record{aRecord(1, "x", ""), aRecord(2, strings.Repeat("y", 70000)), aRecord(3, "z")}
	whole := aSegment(5, tally{1, 7}, records...)
	ends := []int{len(aSegment(5, tally{1, 7})), len(aSegment(5, tally{1, 7}, records[:1]...)), len(aSegment(5, tally{1, 7}, records[:2]...)),
		len(whole)}
	hole := append([]byte(nil), whole...)
	hole[ends[1]+100] ^= 4
	for name, tt := range map[string]struct {
		data           []byte
		records        int
		clean, hidden  bool
		number         uint64
		headIsNotThere bool
	}{
		"whole":          {data: append(append([]byte(nil), whole...), make([]byte, 1000)...), records: 3, clean: true, number: 5},
		"to the byte":    {data: whole, records: 3, clean: true, number: 5},
		"torn":           {data: append(whole[:ends[2]-1:ends[2]-1], make([]byte, 500)...), records: 1, number: 5},
		"hole":           {data: hole, records: 1, hidden: true, number: 5},
		"another number": {data: whole, number: 6, headIsNotThere: true},
		"empty":          {number: 5, headIsNotThere: true},
		"zeros":          {data: make([]byte, 4096), number: 5, headIsNotThere: true},
		"no head":        {data: whole[ends[0]:], number: 5, headIsNotThere: true},
	} {
		s, err := decodeSegment(tt.number, tt.data)
		if tt.headIsNotThere {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || s.store != "store" || s.start != (tally{1, 7}) || s.end != int64(ends[tt.records]) || s.clean != tt.clean ||
			s.hidden != tt.hidden {
			t.Errorf("%s: %+v %v", name, s, err)
		}
		if len(s.records) != tt.records || tt.records > 0 && !reflect.DeepEqual(s.records, records[:tt.records]) {
			t.Errorf("%s: %d records, want %d", name, len(s.records), tt.records)
		}
	}
}

// TestRedoTail: from any state that the log knows it leads on, up to where something is missing.
func TestRedoTail(t *testing.T) {
	at := func(n uint64) tally { return tally{n, n * 7} }
	seg := func(start uint64, records ...record) segment { return segment{start: at(start), records: records} }
	back := record{before: at(4), after: at(2), changes: []change{{[]byte("b"), []byte("k"), nil}}}
	line := []segment{seg(1, aRecord(1, "a"), aRecord(2, "b")), seg(3, aRecord(3, "c")), seg(4)}
	for name, tt := range map[string]struct {
		segments []segment
		from     uint64
		want     string // states that are reached
		whole    bool
	}{
		"from the beginning": {line, 1, "2 3 4", true},
		"from the middle":    {line, 2, "3 4", true},
		"from a head":        {line, 3, "4", true},
		"there already":      {line, 4, "", true},
		"unknown":            {line, 9, "", false},
		"no log":             {nil, 1, "", false},
		"only heads":         {[]segment{seg(1), seg(1)}, 1, "", true},
		"a file is missing":  {[]segment{line[0], line[2]}, 1, "2 3", false},
		"a record is":        {[]segment{seg(1, aRecord(1, "a"), aRecord(3, "c"))}, 1, "2", false},
		"after that":         {[]segment{seg(1, aRecord(1, "a"), aRecord(3, "c"))}, 3, "4", true},
		"there and back":     {[]segment{seg(1, aRecord(1, "a"), aRecord(2, "b"), aRecord(3, "c"), back)}, 2, "", true},
		"the end is hidden":  {[]segment{{start: at(1), records: []record{aRecord(1, "a")}, hidden: true}}, 1, "2", false},
	} {
		rest, whole := tail(tt.segments, at(tt.from))
		var got []string
		for _, r := range rest {
			if len(r.changes) > 0 {
				got = append(got, strconv.FormatUint(r.after.count, 10))
			}
		}
		if strings.Join(got, " ") != tt.want || whole != tt.whole {
			t.Errorf("%s: %v %v, want %s %v", name, got, whole, tt.want, tt.whole)
		}
	}
}

// FuzzRedo: no file makes it fail otherwise than by an end, and what it reads is what was written.
func FuzzRedo(f *testing.F) {
	f.Add(aSegment(5, tally{1, 7}, aRecord(1, "x", ""), aRecord(2, "y")))
	f.Add(aSegment(5, tally{}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeRecord(data); err == nil && !reflect.DeepEqual(encodeRecord(r), data) {
			t.Errorf("%q is read as %+v", data, r)
		}
		framed := frame(5, append([]byte{recordFrame}, data...)) // past the checksum
		for _, in := range [][]byte{data, append(aSegment(5, tally{1, 7}), framed...)} {
			s, err := decodeSegment(5, in)
			if err == nil && (s.end > int64(len(in)) || string(aSegment2(s)) != string(in[:s.end])) {
				t.Errorf("%q is read as %+v", in, s)
			}
		}
	})
}

func aSegment2(s segment) []byte {
	out := frame(5, encodeHead(s.store, s.start))
	for _, r := range s.records {
		out = append(out, frame(5, encodeRecord(r))...)
	}
	return out
}

// busy writes for a while: puts, deletions and lazy writes, with snapshots in between. It says what must be there.
func busy(t *testing.T, s *Store, r *rand.Rand, want map[string]string, n int) {
	t.Helper()
	for i := range n {
		name, v := "k"+strconv.Itoa(r.IntN(30)), fmt.Sprint(i, " ", r.Uint64())
		err := s.Update(func(tx *Tx) error {
			if _, there := want[name]; there && r.IntN(4) == 0 {
				v = ""
				_, err := tx.Delete(api.ConfigMaps, "ns", name)
				return err
			}
			return tx.Put(api.ConfigMaps, cm(name, v))
		})
		if err != nil {
			t.Fatal(err)
		}
		if want[name] = v; v == "" {
			delete(want, name)
		}
		switch r.IntN(25) {
		case 0:
			err = s.Snapshot(t.Context())
		case 1:
			err = s.Table("rows").Put(name, []byte(v))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// same says whether the store has exactly this.
func same(t *testing.T, s *Store, want map[string]string) error {
	t.Helper()
	have := map[string]string{}
	err := s.View(func(tx *Tx) error {
		l, err := tx.List(api.ConfigMaps, "")
		for _, o := range l {
			have[o.GetName()] = value(t, s, o.GetName())
		}
		return err
	})
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(have, want) {
		return fmt.Errorf("the store has\n%v\nwant\n%v", have, want)
	}
	return nil
}

// TestNothingIsLost: whatever becomes of state.db, and of the newest snapshot with it, every acknowledged write is there
// after the next start, also over several starts (reliability A3, F4).
func TestNothingIsLost(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(7, seed(t)))
	want := map[string]string{}
	old := []byte(nil)
	rounds := 6 + trials(300)/6
	for round := range rounds {
		s, err := Open(t.Context(), Config{Dir: dir, Check: checker(t)})
		if err != nil {
			t.Fatal(err)
		}
		h := s.Health()
		if err := same(t, s, want); err != nil {
			t.Fatalf("round %d: %v\n%+v", round, err, h)
		}
		if h.Restored != "" != h.Complete {
			t.Fatalf("round %d: %+v", round, h)
		}
		busy(t, s, r, want, 20+r.IntN(60))
		mustClose(t, s)
		db := filepath.Join(dir, dbName)
		now, err := os.ReadFile(db)
		if err != nil {
			t.Fatal(err)
		}
		switch round % 5 {
		case 0:
			err = os.Remove(db)
		case 1:
			err = os.Truncate(db, 0)
		case 2:
			var snaps []string
			if snaps, err = (&copies{cfg: Config{Dir: dir}}).list(); err == nil {
				err = errors.Join(os.Remove(db), os.WriteFile(snaps[0], []byte("damaged too"), 0o600))
			}
		case 3: // the disk forgot everything since the last round
			err = os.WriteFile(db, old, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		old = now
		if files, err := redoFiles(filepath.Join(dir, redoDir)); err != nil || len(files) > redoKeep {
			t.Fatalf("files of the log: %v %v", files, err)
		}
	}
}

// TestLogIsDamagedToo: then something may be missing; but nothing is wrong, nobody claims that all is there when it is
// not, and the board comes up.
func TestLogIsDamagedToo(t *testing.T) {
	master := t.TempDir()
	r := rand.New(rand.NewPCG(8, seed(t)))
	s := open(t, master)
	want := map[string]string{}
	ever := map[string]bool{}
	for range 60 {
		busy(t, s, r, want, 1)
		for name, v := range want {
			ever[name+"="+v] = true
		}
	}
	mustClose(t, s)
	complete := 0
	for trial := range 2 * trials(300) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(master)); err != nil {
			t.Fatal(err)
		}
		files, err := redoFiles(filepath.Join(dir, redoDir))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, redoDir, redoName(files[r.IntN(len(files))]))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		used := len(strings.TrimRight(string(data), "\x00"))
		switch at := r.IntN(used); r.IntN(3) {
		case 0:
			data[at] ^= 1 << r.IntN(8)
		case 1:
			data = data[:at]
		case 2:
			clear(data[at:min(at+512, len(data))])
		}
		if err := errors.Join(os.WriteFile(path, data, 0o600), os.Remove(filepath.Join(dir, dbName))); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Config{Dir: dir, Check: checker(t)})
		if err != nil {
			t.Fatalf("trial %d: %v", trial, err)
		}
		h := s.Health()
		err = s.View(func(tx *Tx) error {
			l, err := tx.List(api.ConfigMaps, "")
			for _, o := range l {
				if text := o.GetName() + "=" + value(t, s, o.GetName()); !ever[text] {
					t.Errorf("trial %d: %s was never written", trial, text)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, "after", "damage")
		mustClose(t, s)
		// The store that came up has a log of its own again.
		if err := os.Remove(filepath.Join(dir, dbName)); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, dir)
		if value(t, s, "after") != "damage" || !s.Health().Complete {
			t.Fatalf("trial %d: %+v", trial, s.Health())
		}
		if h.Complete {
			complete++
		}
		mustClose(t, s)
	}
	t.Logf("%d of %d were whole all the same", complete, 2*trials(300))
}

// TestLogCannotBeWritten: the store goes on without, and the next snapshot begins a new log.
func TestLogCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	put(t, s, "a", "1")
	s.writing.Lock()
	if err := s.log.file.Close(); err != nil {
		t.Fatal(err)
	}
	s.writing.Unlock()
	put(t, s, "a", "2")
	put(t, s, "b", "2")
	if at, err := (&opener{Store: s}).logNumber(); err != nil || at != s.log.number+1 {
		t.Fatalf("what is not in the log claims to be in file %d, %v", at, err)
	}
	if h := s.Health(); h.LastError != nil || h.Broken != nil || value(t, s, "a") != "2" {
		t.Fatalf("%+v", h)
	}
	asked := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }() // has been asked for a snapshot
	testrun.Until(t, 30*time.Second, "a new log is begun", func() bool { return s.Health().Snapshot.After(asked) })
	put(t, s, "a", "3")
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if err := os.Remove(filepath.Join(dir, dbName)); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	if value(t, s, "a") != "3" || !s.Health().Complete {
		t.Fatalf("%q %+v", value(t, s, "a"), s.Health())
	}
}

// TestLogStaysSmall: a busy store makes a snapshot before its log grows.
func TestLogStaysSmall(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	number := func() uint64 {
		s.writing.Lock()
		defer s.writing.Unlock()
		return s.log.number
	}
	first := number()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	big := strings.Repeat("x", 100<<10)
	for i := 0; number() == first; i++ {
		if i > 10000 {
			t.Fatal("the log only grows")
		}
		put(t, s, "k"+strconv.Itoa(i%3), big+strconv.Itoa(i))
		if i > 20 {
			time.Sleep(time.Millisecond)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
