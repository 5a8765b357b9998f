package disk

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"
)

// memory is a disk of which only the written sectors take room.
type memory struct {
	sector, size int64
	data         map[int64][]byte
}

func newMemory(size int64, sector int) *memory {
	return &memory{sector: int64(sector), size: size, data: map[int64][]byte{}}
}

func (m *memory) ReadAt(p []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(p)) > m.size {
		return 0, io.EOF
	}
	for done := 0; done < len(p); {
		lba, off := (at+int64(done))/m.sector, (at+int64(done))%m.sector
		n := min(len(p)-done, int(m.sector-off))
		if s := m.data[lba]; s != nil {
			copy(p[done:done+n], s[off:])
		} else {
			clear(p[done : done+n])
		}
		done += n
	}
	return len(p), nil
}

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	if at%m.sector != 0 || int64(len(p))%m.sector != 0 || at < 0 || at+int64(len(p)) > m.size {
		return 0, fmt.Errorf("%d bytes at %d", len(p), at)
	}
	for i := int64(0); i < int64(len(p)); i += m.sector {
		m.data[(at+i)/m.sector] = bytes.Clone(p[i : i+m.sector])
	}
	return len(p), nil
}

func (m *memory) Sync() error { return nil }

// on is the same content on a larger disk: a card that an image was written to.
func (m *memory) on(size int64) *memory {
	out := newMemory(size, int(m.sector))
	for i, s := range m.data {
		out.data[i] = bytes.Clone(s)
	}
	return out
}

type span struct{ first, last int64 } // sectors

// must reads sectors that are there.
func (m *memory) must(lba, n int64) []byte {
	out := make([]byte, n*m.sector)
	if _, err := m.ReadAt(out, lba*m.sector); err != nil {
		panic(err)
	}
	return out
}

// writeMBR makes a table of these, in entries from the first.
func writeMBR(m *memory, parts ...span) *memory {
	first := make([]byte, m.sector)
	copy(first, "boot code")
	first[510], first[511] = 0x55, 0xaa
	for i, p := range parts {
		e := mbrEntry(first, i)
		e[4] = 0x83
		le.PutUint32(e[8:], uint32(p.first))
		le.PutUint32(e[12:], uint32(p.last+1-p.first))
	}
	_, _ = m.WriteAt(first, 0)
	return m
}

// writeGPT makes both copies, as a program for that does.
func writeGPT(m *memory, parts ...span) *memory {
	sectors := m.size / m.sector
	first := make([]byte, m.sector)
	first[510], first[511] = 0x55, 0xaa
	e := mbrEntry(first, 0)
	e[4] = protective
	le.PutUint32(e[8:], 1)
	le.PutUint32(e[12:], uint32(sectors-1))
	entries := make([]byte, 128*128)
	for i, p := range parts {
		e := header{entries[128*i:]}
		copy(e.raw, "a kind of it all")
		copy(e.raw[16:], fmt.Sprintf("partition %6d", i))
		e.set(entryFirst, p.first)
		e.set(entryLast, p.last)
	}
	n := int64(len(entries)) / m.sector
	h := header{make([]byte, m.sector)}
	copy(h.raw, "EFI PART\x00\x00\x01\x00")
	le.PutUint32(h.raw[hdrSize:], 92)
	h.set(hdrFirst, 2+n)
	h.set(hdrLast, sectors-2-n)
	copy(h.raw[56:], "the disk's GUID.")
	le.PutUint32(h.raw[hdrCount:], 128)
	le.PutUint32(h.raw[hdrEach:], 128)
	le.PutUint32(h.raw[hdrTableCRC:], crc32.ChecksumIEEE(entries))
	for _, c := range []struct{ self, other, entries int64 }{{1, sectors - 1, 2}, {sectors - 1, 1, sectors - 1 - n}} {
		h.set(hdrSelf, c.self)
		h.set(hdrOther, c.other)
		h.set(hdrEntries, c.entries)
		_, _ = m.WriteAt(h.seal(), c.self*m.sector)
		_, _ = m.WriteAt(entries, c.entries*m.sector)
	}
	_, _ = m.WriteAt(first, 0)
	return m
}

// kernel reads the table as Linux does without the word gpt: of a GPT only what stands at its beginning. copies says whether
// the copy at the end is whole too and says the same.
func kernel(m *memory) (parts []span, copies bool, err error) {
	first := m.must(0, 1)
	if first[510] != 0x55 || first[511] != 0xaa {
		return nil, false, errors.New("no signature")
	}
	if mbrEntry(first, 0)[4] != protective {
		for i := range 4 {
			e := mbrEntry(first, i)
			if n := int64(le.Uint32(e[12:])); n > 0 {
				parts = append(parts, span{int64(le.Uint32(e[8:])), int64(le.Uint32(e[8:])) + n - 1})
			}
		}
		return parts, true, nil
	}
	at := func(lba int64) ([]span, header, error) {
		h := header{m.must(lba, 1)}
		sectors := m.size / m.sector
		switch {
		case string(h.raw[:8]) != "EFI PART" || h.sum() != le.Uint32(h.raw[hdrCRC:]) || h.at(hdrSelf) != lba:
			return nil, h, errors.New("the header is not whole")
		case h.at(hdrFirst) > h.at(hdrLast) || h.at(hdrLast) >= sectors || h.at(hdrFirst) < 2:
			return nil, h, errors.New("what is usable is not on the disk")
		}
		entries := m.must(h.at(hdrEntries), 128*128/m.sector)
		if crc32.ChecksumIEEE(entries) != le.Uint32(h.raw[hdrTableCRC:]) {
			return nil, h, errors.New("the entries are not whole")
		}
		var parts []span
		for i := 0; i < len(entries); i += 128 {
			if e := (header{entries[i : i+128]}); e.raw[0] != 0 {
				p := span{e.at(entryFirst), e.at(entryLast)}
				if p.first < h.at(hdrFirst) || p.last > h.at(hdrLast) || h.at(hdrEntries) <= p.last && p.first < h.at(hdrEntries)+128*128/m.sector {
					return nil, h, fmt.Errorf("partition %v is not within what is usable", p)
				}
				parts = append(parts, p)
			}
		}
		return parts, h, nil
	}
	parts, h, err := at(1)
	if err != nil {
		return nil, false, err
	}
	copy, c, cerr := at(h.at(hdrOther))
	return parts, cerr == nil && fmt.Sprint(copy) == fmt.Sprint(parts) && c.at(hdrOther) == 1, nil
}

// fill puts something into every partition, and behind the table in front of them.
func fill(m *memory, rng *rand.Rand, parts ...span) {
	for _, p := range parts {
		for _, lba := range []int64{p.first, p.first + 1, (p.first + p.last) / 2, p.last - 1, p.last} {
			s := make([]byte, m.sector)
			for i := range s {
				s[i] = byte(rng.Uint32())
			}
			_, _ = m.WriteAt(s, lba*m.sector)
		}
	}
}

func same(a, b *memory, parts []span) error {
	for _, p := range parts {
		for lba := range a.data {
			if lba >= p.first && lba <= p.last && !bytes.Equal(a.data[lba], b.must(lba, 1)) {
				return fmt.Errorf("sector %d of partition %v has changed", lba, p)
			}
		}
		for lba, s := range b.data {
			if lba >= p.first && lba <= p.last && !bytes.Equal(s, a.must(lba, 1)) {
				return fmt.Errorf("sector %d of partition %v was written", lba, p)
			}
		}
	}
	return nil
}

// TestCuts: after any of the sectors of any write the table is whole and has the partitions as they were or as they will be,
// nothing in them has changed, and another try comes to the end. Sectors of one write may land in any order.
func TestCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, write := range map[string]func(*memory, ...span) *memory{"MBR": writeMBR, "GPT": writeGPT} {
		for _, sector := range []int{512, 4096} {
			for _, card := range []int64{9<<20 + 512*7, 40 << 20, 40<<20 + 3*4096} {
				mib := int64(align / sector)
				old := []span{{mib, 3*mib - 1}, {3 * mib, 7*mib - 1}}
				image := write(newMemory(8<<20, sector), old...)
				fill(image, rng, old...)
				for round := range 3 { // a card is copied to a larger one, and that to another
					disk := image.on((card + int64(round)<<22) &^ int64(sector-1))
					g, err := PlanGrowth(disk, disk.size, sector, 2)
					if err != nil {
						t.Fatal(name, sector, card, round, err)
					}
					last := (g.Start+g.Size)/int64(sector) - 1
					want := []span{old[0], {old[1].first, last}}
					if len(g.Writes) == 0 || last <= old[1].last || g.Start+g.Size > disk.size || disk.size-g.Start-g.Size >= 2*align {
						t.Fatalf("%s, %d, %d, %d: %+v", name, sector, card, round, g)
					}
					done := disk.on(disk.size)
					_ = apply(done, g.Writes)
					state := done
					for i := range g.Writes {
						for n := range 5 {
							state = disk.on(disk.size)
							_ = apply(state, g.Writes[:i])
							some(state, g.Writes[i], n, rng)
							got, _, err := kernel(state)
							if err != nil || fmt.Sprint(got) != fmt.Sprint(old) && fmt.Sprint(got) != fmt.Sprint(want) {
								t.Fatalf("%s, %d, %d, %d: cut in write %d: %v, %v", name, sector, card, round, i, got, err)
							}
							if err := same(disk, state, old); err != nil {
								t.Fatalf("%s: cut in write %d: %v", name, i, err)
							}
							again, err := PlanGrowth(state, state.size, sector, 2)
							if err != nil {
								t.Fatalf("%s, %d, %d, %d: after a cut in write %d: %v", name, sector, card, round, i, err)
							}
							_ = apply(state, again.Writes)
							if got, _, err := kernel(state); err != nil || fmt.Sprint(got) != fmt.Sprint(want) || again.Size != g.Size {
								t.Fatalf("%s: the try after a cut in write %d: %v, %v", name, i, got, err)
							}
						}
					}
					got, copies, err := kernel(done)
					if err != nil || !copies || fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("%s: %v, %v, %v", name, got, copies, err)
					}
					if g, err := PlanGrowth(done, done.size, sector, 2); err != nil || len(g.Writes) > 0 ||
						g.Size != (want[1].last+1-want[1].first)*int64(sector) {
						t.Fatalf("%s: there is more to do: %+v, %v", name, g, err)
					}
					image, old = done, want
				}
			}
		}
	}
}

// some lets a part of a write land: nothing, all, its beginning, its end, or any sectors.
func some(m *memory, w Write, how int, rng *rand.Rand) {
	count := len(w.Data) / int(m.sector)
	at := rng.IntN(count + 1)
	for i := range count {
		if how == 1 || how == 2 && i < at || how == 3 && i >= at || how > 3 && rng.IntN(2) == 0 {
			_, _ = m.WriteAt(w.Data[i*int(m.sector):(i+1)*int(m.sector)], w.At+int64(i)*m.sector)
		}
	}
}

// TestNoGrowth: what cannot grow stays as it is, and nothing is written where something lies.
func TestNoGrowth(t *testing.T) {
	const mib = 2048
	two := []span{{mib, 3*mib - 1}, {3 * mib, 7*mib - 1}}
	for name, c := range map[string]struct {
		disk   *memory
		number int
		want   error // nil: there is nothing to do; io.EOF: any
	}{
		"not the last of an MBR":   {writeMBR(newMemory(32<<20, 512), two...), 1, ErrNotLast},
		"not the last of a GPT":    {writeGPT(newMemory(8<<20, 512), two...).on(32 << 20), 1, ErrNotLast},
		"no table":                 {newMemory(32<<20, 512), 1, io.EOF},
		"logical":                  {writeMBR(newMemory(32<<20, 512), two...), 5, io.EOF},
		"none such in an MBR":      {writeMBR(newMemory(32<<20, 512), two...), 3, io.EOF},
		"none such in a GPT":       {writeGPT(newMemory(8<<20, 512), two...).on(32 << 20), 3, io.EOF},
		"number 0":                 {writeGPT(newMemory(8<<20, 512), two...).on(32 << 20), 0, io.EOF},
		"MBR that is full":         {writeMBR(newMemory(7<<20, 512), two...), 2, nil},
		"MBR that is nearly full":  {writeMBR(newMemory(8<<20-512, 512), two...), 2, nil},
		"GPT that is full":         {writeGPT(newMemory(8<<20, 512), two...), 2, nil},
		"a loader behind a GPT":    {loader(writeGPT(newMemory(8<<20, 512), two...).on(32 << 20)), 2, io.EOF},
		"no room in front":         {writeGPT(newMemory(8<<20, 512), span{40, mib}).on(32 << 20), 1, io.EOF},
		"a damaged header":         {damage(writeGPT(newMemory(8<<20, 512), two...).on(32<<20), 1), 2, io.EOF},
		"damaged entries":          {damage(writeGPT(newMemory(8<<20, 512), two...).on(32<<20), 2), 2, io.EOF},
		"a disk smaller than that": {writeGPT(newMemory(8<<20, 512), two...).on(6 << 20), 2, io.EOF},
	} {
		g, err := PlanGrowth(c.disk, c.disk.size, 512, c.number)
		if len(g.Writes) > 0 || c.want == nil && err != nil || c.want == io.EOF && err == nil || c.want == ErrNotLast &&
			!errors.Is(err, ErrNotLast) {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	// An MBR ends at 2 TiB.
	huge := writeMBR(newMemory(4<<40, 512), two...)
	g, err := PlanGrowth(huge, huge.size, 512, 2)
	if err != nil || g.Start+g.Size != 2<<40 {
		t.Errorf("%+v, %v", g, err)
	}
}

func loader(m *memory) *memory { return damage(m, 64) }

func damage(m *memory, lba int64) *memory {
	s := m.must(lba, 1)
	s[60] ^= 1
	_, _ = m.WriteAt(s, lba*m.sector)
	return m
}

// FuzzPlanGrowth: whatever stands there, nothing is planned inside of a partition or outside of the disk.
func FuzzPlanGrowth(f *testing.F) {
	flat := func(m *memory) []byte { return m.must(0, 80) }
	two := []span{{2048, 4095}, {4096, 8191}}
	f.Add(flat(writeMBR(newMemory(8<<20, 512), two...)), 2)
	f.Add(flat(writeGPT(newMemory(8<<20, 512), two...)), 2)
	f.Fuzz(func(t *testing.T, front []byte, number int) {
		m := newMemory(32<<20, 512)
		front = front[:min(len(front), 80*512)&^511]
		_, _ = m.WriteAt(front, 0)
		g, err := PlanGrowth(m, m.size, 512, number)
		if err != nil || len(g.Writes) == 0 {
			return
		}
		before, _, err := kernel(m)
		if err != nil {
			return // there is more to a table than we need
		}
		if g.Start < 512 || g.Start+g.Size > m.size {
			t.Fatalf("%+v", g)
		}
		for _, w := range g.Writes {
			for _, p := range before {
				if w.At/512 <= p.last && (w.At+int64(len(w.Data)))/512 > p.first && p.first > 0 && p.last < m.size/512 {
					t.Fatalf("%d bytes at %d are in %v", len(w.Data), w.At, p)
				}
			}
		}
	})
}
