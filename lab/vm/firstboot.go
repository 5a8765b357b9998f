package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ledge/images/imagestest"
)

// A card as people make one. After first boots that were cut, what is right on it must run, and each mistake on it must be reported.
const cardYAML = "\ufeffhostname: shed\r\nwifi: {ssid: a}\r\nconfiguration:\r\n  maxPods: 20\r\n  maxPodz: 2\r\nnetwork:\r\n\taddress: dhcp\r\n"

var cardFiles = map[string]string{
	"ledge.yaml.txt":      cardYAML,
	"manifests/low.yaml":  boardPod("low", ""),
	"manifests/high.yaml": boardPod("high", "system-node-critical"),
	"manifests/web.yaml": `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: "card.local/web:1", imagePullPolicy: Never, command: [/pod, ignore]}
`,
	"manifests/bad.yaml": "kind: Pod\napiVersion: v1\nmetadata: {name: bad}\nspec:\n  restartPolici: Never\n",
	"images/broken.tar":  "no archive",
}

// cardMistakes are how the lines begin that the card must have in ledge-errors.txt in the end.
var cardMistakes = []string{
	"ledge.yaml.txt, line 2: Wi-Fi has no effect here",
	`ledge.yaml.txt, line 5: there is no key "maxPodz" below configuration:. Did you mean maxPods?`,
	"ledge.yaml.txt, line 7: this line begins with a tab",
	"manifests/bad.yaml, line 5: ",
	"images/broken.tar: is not imported: ",
}

const (
	cardImage = 112 << 20 // the image's size
	cardSize  = 400<<20 + 512*3
	cardFAT   = 40 << 20
	cardData  = cardImage - cardFAT - 2<<20
)

type firstBoot struct {
	dir, work, ledge string
	memory           int
	limit            time.Duration
	rng              *rand.Rand
	image            map[string]string // by table
}

// runFirstBoot makes an image and takes fresh cards of it through some cuts, then through a boot in which everything must be right.
func runFirstBoot(ctx context.Context, ledge string, memory, cuts int, seed uint64, limit time.Duration) error {
	dir, err := prepare(ctx, "amd64")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	f := &firstBoot{dir: dir, work: work, ledge: ledge, memory: memory, limit: limit, rng: rand.New(rand.NewPCG(seed, 55)),
		image: map[string]string{}}
	fmt.Println("vm: seed", seed)
	if err := applianceRoot(ctx, "amd64", dir, ledge, work, f.initrd(), nil); err != nil {
		return err
	}
	if err := f.make(ctx); err != nil {
		return fmt.Errorf("make the card: %w", err)
	}
	begin, done := time.Now(), 0
	for round := 0; done < cuts; round++ {
		table := []string{"GPT", "MBR"}[round%2]
		n := min(1+f.rng.IntN(3), cuts-done)
		if err := f.round(ctx, table, n); err != nil {
			return fmt.Errorf("seed %d, after %d cuts, %s: %w", seed, done, table, err)
		}
		done += n
	}
	fmt.Printf("ok  \tfirst boot, %d cuts\t%.3fs\n", done, time.Since(begin).Seconds())
	return nil
}

func (f *firstBoot) initrd() string { return filepath.Join(f.work, "board.cpio") }

// make writes both images: the partitions' content is the same.
func (f *firstBoot) make(ctx context.Context) error {
	fat, data, top := filepath.Join(f.work, "fat"), filepath.Join(f.work, "data"), filepath.Join(f.work, "card")
	program := filepath.Join(f.work, "pod")
	build := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./lab/vm/load/pod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	entry := imagestest.File("pod", string(text))
	entry.Mode = 0o755
	archive := imagestest.Docker(imagestest.Image{Names: []string{"card.local/web:1"}, Layers: [][]byte{imagestest.Layer(entry)}})
	files := map[string]string{"images/web.tar": string(archive)}
	for name, text := range cardFiles {
		files[name] = text
	}
	for name, text := range files {
		path := filepath.Join(top, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	for _, c := range [][]string{
		{"truncate", "-s", fmt.Sprint(cardFAT), fat}, {"mkfs.vfat", "-n", "LEDGE", fat},
		{"sh", "-c", "mcopy -s -i " + fat + " " + top + "/* ::/"},
		{"truncate", "-s", fmt.Sprint(cardData), data}, {"mke2fs", "-q", "-t", "ext4", "-L", "ledge-data", data},
	} {
		if out, err := command(ctx, c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c[0], err, out)
		}
	}
	for _, table := range []string{"MBR", "GPT"} {
		path := filepath.Join(f.work, table)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		err = file.Truncate(cardImage)
		for at, data := range partitionTable(table) {
			_, werr := file.WriteAt(data, at)
			err = errors.Join(err, werr)
		}
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		for at, from := range map[int]string{1: fat, 1 + cardFAT>>20: data} {
			if out, err := command(ctx, "dd", "if="+from, "of="+path, "bs=1M", fmt.Sprintf("seek=%d", at),
				"conv=notrunc,sparse").CombinedOutput(); err != nil {
				return fmt.Errorf("dd: %w: %s", err, out)
			}
		}
		f.image[table] = path
	}
	return nil
}

// partitionTable gives what stands where: a FAT from 1 MiB on, and data behind it.
func partitionTable(kind string) map[int64][]byte {
	const sectors = cardImage / 512
	le := binary.LittleEndian
	parts := [][2]uint64{{2048, 2048 + cardFAT/512 - 1}, {2048 + cardFAT/512, 2048 + cardFAT/512 + cardData/512 - 1}}
	first := make([]byte, 512)
	first[510], first[511] = 0x55, 0xaa
	entry := func(i int, kind byte, start, length uint64) {
		e := first[446+16*i:]
		e[4] = kind
		le.PutUint32(e[8:], uint32(start))
		le.PutUint32(e[12:], uint32(length))
	}
	if kind == "MBR" {
		for i, p := range parts {
			entry(i, []byte{0x0c, 0x83}[i], p[0], p[1]+1-p[0])
		}
		return map[int64][]byte{0: first}
	}
	entry(0, 0xee, 1, sectors-1)
	entries := make([]byte, 128*128)
	for i, p := range parts {
		e := entries[128*i:]
		copy(e, "\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4card's partition") // Linux file system
		e[31] = byte(i)
		le.PutUint64(e[32:], p[0])
		le.PutUint64(e[40:], p[1])
	}
	header := func(self, other, table uint64) []byte {
		h := make([]byte, 512)
		copy(h, "EFI PART\x00\x00\x01\x00")
		le.PutUint32(h[12:], 92)
		for off, v := range map[int]uint64{24: self, 32: other, 40: 34, 48: sectors - 34, 72: table} {
			le.PutUint64(h[off:], v)
		}
		copy(h[56:], "the card's GUID.")
		le.PutUint32(h[80:], 128)
		le.PutUint32(h[84:], 128)
		le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
		le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:92]))
		return h
	}
	return map[int64][]byte{0: first, 512: header(1, sectors-1, 2), 1024: entries, (sectors - 33) * 512: entries,
		(sectors - 1) * 512: header(sectors-1, 1, sectors-33)}
}

// round takes a fresh card through some cuts, then looks at one more boot.
func (f *firstBoot) round(ctx context.Context, table string, cuts int) error {
	card, socket := filepath.Join(f.work, "card.img"), filepath.Join(f.work, "nbd")
	if err := copyCard(ctx, f.image[table], card, cardSize); err != nil {
		return err
	}
	p := &pulled{socket: socket, rng: f.rng, within: 15 * time.Second, from: func(text string) bool { return text == "@@ledge" },
		limit: f.limit}
	g := guest{arch: "amd64", kernel: filepath.Join(f.dir, "vmlinux"), initrd: f.initrd(), memory: f.memory,
		append: "rdinit=/init watch=card ledge.data=LABEL=ledge-data -- serve --watchdog /dev/watchdog"}
	return p.round(ctx, card, cuts, g, func(g guest) error {
		if err := tear(card, 1<<20+cardFAT); err != nil { // which hardly ever comes by chance
			return err
		}
		return f.look(ctx, g, card)
	})
}

// look boots for the last time and reads what the watcher prints, on lines that begin with @@. Then it reads the card as a laptop would.
func (f *firstBoot) look(ctx context.Context, g guest, card string) error {
	var all, wrong []string
	end := ""
	said := map[string]string{}
	err := g.boot(ctx, f.limit, func(text string) bool {
		all = append(all, text)
		word, rest, _ := strings.Cut(text, " ")
		if strings.HasPrefix(word, "@@") {
			said[word] = rest
		}
		end = word
		return word == "@@fault:" || word == "@@end" || strings.Contains(text, "Kernel panic")
	})
	if err != nil || end != "@@end" {
		return fmt.Errorf("it did not come up: %w; its console:\n%s", err, strings.Join(all, "\n"))
	}
	if said["@@hostname"] != "shed" || said["@@running"] != "3" {
		wrong = append(wrong, fmt.Sprintf("%s containers on %s, not 3 on shed", said["@@running"], said["@@hostname"]))
	}
	var bytes int64
	if _, err := fmt.Sscan(said["@@data"], &bytes); err != nil || bytes < (cardSize-cardFAT)*85/100 {
		wrong = append(wrong, fmt.Sprintf("the data partition has %d bytes (%v)", bytes, err))
	}
	out, err := command(ctx, "mcopy", "-n", "-i", card+"@@1M", "::/ledge-errors.txt", "-").CombinedOutput()
	if err != nil {
		wrong = append(wrong, fmt.Sprintf("the card's ledge-errors.txt: %v: %s", err, out))
	}
	for _, want := range cardMistakes {
		if strings.Count(string(out), "\r\n"+want) != 1 {
			wrong = append(wrong, "the card does not say once: "+want)
		}
		if want != cardMistakes[len(cardMistakes)-1] && !strings.Contains(strings.ReplaceAll(strings.Join(all, "\n"), `\"`, `"`), want) {
			wrong = append(wrong, "the console does not say: "+want)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s\nthe card says:\n%s\nits console:\n%s", strings.Join(wrong, "\n"), out, strings.Join(all, "\n"))
	}
	fmt.Printf("vm: up as it is to be, data partition %d MB\n", bytes>>20)
	return nil
}
