package batch

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the zones of the toolchain")

type zone struct {
	name string
	data []byte
}

// toolchain are the zones that Go itself brings.
func toolchain(t *testing.T) (out []zone) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, f := range file.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, zone{f.Name, data})
	}
	slices.SortFunc(out, func(a, b zone) int { return cmp.Or(bytes.Compare(a.data, b.data), cmp.Compare(a.name, b.name)) })
	return out
}

func pack(t *testing.T, zones []zone) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range zones {
		head := append([]byte{byte(len(z.name))}, z.name...)
		if _, err := w.Write(append(binary.BigEndian.AppendUint16(head, uint16(len(z.data))), z.data...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestZones: what is packed are the zones of the toolchain, all of them, as they are there.
func TestZones(t *testing.T) {
	want := toolchain(t)
	if *update {
		packedZones = pack(t, want)
		if err := os.WriteFile("zones.gz", packedZones, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	z, err := gzip.NewReader(bytes.NewReader(packedZones))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	z, err = gzip.NewReader(bytes.NewReader(pack(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, fresh) {
		t.Error("zones.gz has other zones than the toolchain: go test ./api/batch -run TestZones -update")
	}
}

// TestUnpackZone: a zone is found wherever it stands, and reads as the toolchain's; what is not there is not found.
func TestUnpackZone(t *testing.T) {
	all := toolchain(t)
	for _, z := range []zone{all[0], all[len(all)/2], all[len(all)-1]} {
		if data, err := unpackZone(z.name); err != nil || !bytes.Equal(data, z.data) {
			t.Errorf("%s: %d bytes, want %d (%v)", z.name, len(data), len(z.data), err)
		}
	}
	for _, name := range []string{"", "Europe", "Europe/Nowhere"} {
		if data, err := unpackZone(name); data != nil || err != nil {
			t.Errorf("%q is a zone: %d bytes, %v", name, len(data), err)
		}
	}
}

// TestLoadZoneWithoutFiles: on a board without files of zones every zone is there, and what is kept of them has a bound.
func TestLoadZoneWithoutFiles(t *testing.T) {
	all := toolchain(t)
	for i := range 2 * maxZones {
		name := all[i*7].name
		data, err := unpackZone(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := time.LoadLocationFromTZData(name, data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := packedZone(name)
		if err != nil || got.String() != name {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
		if !at.In(got).Equal(at.In(want)) || at.In(got).Format(time.RFC3339) != at.In(want).Format(time.RFC3339) {
			t.Errorf("%s: %s, want %s", name, at.In(got), at.In(want))
		}
		if again, err := packedZone(name); err != nil || again != got {
			t.Errorf("%s is unpacked again (%v)", name, err)
		}
		if len(zones.known) > maxZones {
			t.Fatalf("%d zones are kept", len(zones.known))
		}
	}
	if zone, err := loadZone("Europe/Nowhere"); zone != nil || err == nil || err.Error() != "unknown time zone Europe/Nowhere" {
		t.Errorf("%v, %v", zone, err)
	}
}
