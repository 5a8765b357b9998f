// Command flash writes an image of a board to a card and reads it back.
//
//	go run ./packaging/flash [-fixed] [-unmount] [-yes] IMAGE.img[.xz] /dev/DEVICE
//
// IMAGE.sha256 (or IMAGE.img.xz.sha256) beside the image tells whether the download is whole. Without one that is said, and the
// image is taken all the same.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "flash:", err)
		os.Exit(1)
	}
}

type options struct {
	fixed, unmount, yes bool
	image, device       string
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("flash", flag.ContinueOnError)
	flags.BoolVar(&o.fixed, "fixed", false, "write to a disk that is not removable")
	flags.BoolVar(&o.unmount, "unmount", false, "unmount what is mounted of it")
	flags.BoolVar(&o.yes, "yes", false, "do not ask")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "flash [-fixed] [-unmount] [-yes] IMAGE.img[.xz] /dev/DEVICE")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() != 2 {
		flags.Usage()
		return o, errors.New("an image and a device are needed")
	}
	o.image, o.device = flags.Arg(0), flags.Arg(1)
	return o, nil
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	image, err := openImage(ctx, o.image)
	if err != nil {
		return err
	}
	defer image.Close()
	target, err := look("/sys", o.device)
	if err != nil {
		return err
	}
	if err := target.refuse(o, image.size); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s, %s\n%s: %s\n", filepath.Base(o.image), inWords(image.size), image.said, o.device, target)
	if !o.yes && !agrees(in, out, target) {
		return errors.New("nothing was written")
	}
	for _, dir := range target.mounted {
		if err := unix.Unmount(dir, 0); err != nil {
			return fmt.Errorf("unmount %s: %w; who uses it: fuser -vm %s", dir, err, dir)
		}
	}
	return burn(ctx, image, target, out)
}

// agrees asks the user to type the name of the disk: nobody types that by accident.
func agrees(in io.Reader, out io.Writer, d disk) bool {
	fmt.Fprintf(out, "All of it will be lost. Its name, to go on (%s): ", d.name)
	line, _ := bufio.NewReader(in).ReadString('\n')
	return strings.TrimSpace(line) == d.name
}

// burn writes the image, flushes it, reads the card again and compares.
func burn(ctx context.Context, image *image, d disk, out io.Writer) error {
	// Exclusive: the kernel refuses what is mounted or in use, whatever was seen before.
	card, err := os.OpenFile(d.path, os.O_RDWR|os.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w%s", d.path, err, remedy(err))
	}
	defer card.Close()
	if err := forget(card, d.size); err != nil {
		return fmt.Errorf("write to %s: %w", d.path, err)
	}
	bar := newBar(out, "writing", image.size)
	sums, err := write(ctx, card, image, bar)
	if err != nil {
		return fmt.Errorf("write %s to %s: %w", image.path, d.path, err)
	}
	bar.say("flushing")
	if err := card.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w; the card is bad or was pulled out", d.path, err)
	}
	// Out of the kernel's memory with it: what is compared must come from the card.
	if err := unix.IoctlSetInt(int(card.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return fmt.Errorf("drop the cache of %s: %w", d.path, err)
	}
	bar = newBar(out, "reading back", image.size)
	if err := compare(ctx, card, sums, bar); err != nil {
		return fmt.Errorf("read back %s: %w", d.path, err)
	}
	// So that the desktop shows the partitions; it has seen the old ones. Who still holds one is told at the next plug.
	_ = unix.IoctlSetInt(int(card.Fd()), unix.BLKRRPART, 0)
	bar.say("written and read back: put your ledge.yaml on its first partition, or plug it into the board")
	return nil
}

func remedy(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "; run it as root"
	case errors.Is(err, unix.EROFS):
		return "; slide the card's lock"
	case errors.Is(err, unix.EBUSY):
		return "; something uses it: lsblk shows what"
	case errors.Is(err, unix.ENOMEDIUM):
		return "; there is no card in the reader"
	}
	return ""
}
