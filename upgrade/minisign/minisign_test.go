package minisign

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ledge/internal/testrun"
)

func sum(pieces ...[]byte) [digestSize]byte {
	d := NewDigest()
	for _, p := range pieces {
		_, _ = d.Write(p) // it never fails
	}
	return d.Sum()
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDigest: RFC 7693's example, and around the borders of blocks, what b2sum says. Where a piece ends does not matter.
func TestDigest(t *testing.T) {
	abc := "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d17d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"
	if got := sum([]byte("abc")); hex.EncodeToString(got[:]) != abc {
		t.Errorf("abc: %x", got)
	}
	testrun.OnHost(t)                    // one fork in hundreds never comes back under qemu-user, and held up a whole run
	b2sum, err := exec.LookPath("b2sum") // of coreutils
	if err != nil {
		t.Skip("no b2sum: ", err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 127, 128, 129, 255, 256, 257, 4096, 100_001} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		cut := rnd.IntN(n + 1)
		whole, parts := sum(data), sum(data[:cut], nil, data[cut:])
		if whole != parts {
			t.Errorf("%d bytes in two pieces, cut at %d, are not the same", n, cut)
		}
		cmd := exec.Command(b2sum)
		cmd.Stdin = bytes.NewReader(data)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if want, _, _ := strings.Cut(string(out), " "); hex.EncodeToString(whole[:]) != want {
			t.Errorf("%d bytes: %x, b2sum says %s", n, whole, want)
		}
	}
}

// TestVerify: what minisign itself has signed passes, and nothing else does.
func TestVerify(t *testing.T) {
	keys, err := ParseKeys(append(read(t, "other.pub"), read(t, "key.pub")...))
	if err != nil || len(keys) != 2 {
		t.Fatalf("%v %v", keys, err)
	}
	text, digest := read(t, "signed.minisig"), sum(read(t, "signed"))
	sig, err := ParseSignature(text)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := sig.Verify(keys, digest); err != nil || k.String() != "EBE8A6113030B814" {
		t.Errorf("%v by %v", err, k)
	}
	if sig.Word("version") != "v1.2.3" || sig.Word("file") != "ledge-linux-arm64" || sig.Word("fil") != "" {
		t.Errorf("comment %q", sig.Comment)
	}
	if _, err := sig.Verify(keys[:1], digest); !errors.Is(err, ErrKey) {
		t.Errorf("by another key: %v", err)
	}
	impostor := keys[0]
	impostor.id = keys[1].id
	if _, err := sig.Verify([]Key{impostor}, digest); !errors.Is(err, ErrSignature) {
		t.Errorf("by another key of the same number: %v", err)
	}
	if _, err := sig.Verify([]Key{impostor, keys[1]}, digest); err != nil {
		t.Errorf("two keys of one number: %v", err)
	}
	if _, err := sig.Verify(keys, sum([]byte("hello!"))); !errors.Is(err, ErrSignature) {
		t.Errorf("of another file: %v", err)
	}
	// Whatever single byte is changed, it does not pass, unless it stands in the comment that is not trusted.
	from := bytes.IndexByte(text, '\n')
	for i := from; i < len(text)-1; i++ {
		bad := bytes.Clone(text)
		bad[i] ^= 4
		sig, err := ParseSignature(bad)
		if err == nil {
			_, err = sig.Verify(keys, digest)
		}
		if err == nil {
			t.Errorf("byte %d changed: it passes", i)
		}
	}
}

func TestParse(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "a page": "<html>\n\n\n\n", "cut": string(read(t, "signed.minisig")[:200]),
		"too large": strings.Repeat("x", SizeLimit+1), "a key": string(read(t, "key.pub")),
		"a line more": string(read(t, "signed.minisig")) + "x\n"} {
		if _, err := ParseSignature([]byte(text)); err == nil {
			t.Errorf("signature: %s passes", name)
		}
	}
	if _, err := ParseSignature(read(t, "old.minisig")); err == nil || !strings.Contains(err.Error(), "old kind") {
		t.Errorf("a signature of the old kind: %v", err)
	}
	windows := bytes.ReplaceAll(read(t, "signed.minisig"), []byte("\n"), []byte("\r\n"))
	if _, err := ParseSignature(windows); err != nil {
		t.Errorf("a signature that came through Windows: %v", err)
	}
	bare := "# rotated in 2026\n\nRWQUuDAwEabo6yr1DduXvLntoi6rmIFaqvV2PX18SCJLFmaeLxyEyPGS\r\n"
	if keys, err := ParseKeys([]byte(bare)); err != nil || len(keys) != 1 {
		t.Errorf("a bare key: %v %v", keys, err)
	}
	for name, text := range map[string]string{"a secret key": "RWRTY0IyWORD", "words": "hello\n",
		"a signature": string(read(t, "signed.minisig")),
		"too large":   strings.Repeat("\n", SizeLimit+1)} {
		if keys, err := ParseKeys([]byte(text)); err == nil {
			t.Errorf("keys: %s passes: %v", name, keys)
		}
	}
}

// TestTool: as the program minisign signs today, where there is one.
func TestTool(t *testing.T) {
	testrun.OnHost(t)
	tool, err := exec.LookPath("minisign")
	if err != nil {
		t.Skip("no minisign (scripts/setup.sh images installs it): ", err)
	}
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(tool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("minisign %v: %v\n%s", args, err, out)
		}
	}
	data := bytes.Repeat([]byte("ledge"), 100_000)
	if err := os.WriteFile(filepath.Join(dir, "f"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	run("-G", "-W", "-p", "k.pub", "-s", "k.sec")
	run("-S", "-s", "k.sec", "-m", "f", "-t", "file:ledge version:v9")
	pub, err := os.ReadFile(filepath.Join(dir, "k.pub"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "f.minisig"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys(pub)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := ParseSignature(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sig.Verify(keys, sum(data)); err != nil || sig.Word("version") != "v9" {
		t.Error(err, sig.Comment)
	}
	data[3]++
	if _, err := sig.Verify(keys, sum(data)); !errors.Is(err, ErrSignature) {
		t.Errorf("another file: %v", err)
	}
}

func FuzzParseSignature(f *testing.F) {
	for _, name := range []string{"signed.minisig", "old.minisig"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		sig, err := ParseSignature(text)
		if err == nil && (len(sig.sig) != 64 || len(sig.global) != 64) {
			t.Errorf("%+v", sig)
		}
	})
}
