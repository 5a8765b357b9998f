package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const mostZram = 1 << 30

// SwapInMemory has the kernel swap into half of the memory, a gibibyte at most, compressed: what is needed seldom makes room, and
// no card is written to. A kernel that has no zram goes without.
func SwapInMemory() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("swap into memory: %w", err)
	}
	page := os.Getpagesize()
	size := min(int64(info.Totalram)*int64(info.Unit)/2, mostZram) / int64(page) * int64(page)
	err := os.WriteFile("/sys/block/zram0/disksize", strconv.AppendInt(nil, size, 10), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	const device = "/dev/zram0"
	if err == nil {
		err = os.WriteFile(device, swapHeader(size, page), 0)
	}
	if err == nil { // reading ahead costs time here and saves none
		err = os.WriteFile("/proc/sys/vm/page-cluster", []byte("0"), 0)
	}
	if err == nil {
		err = swapOn(device)
	}
	if err != nil {
		return fmt.Errorf("swap into memory, with zram: %w", err)
	}
	return nil
}

// swapHeader is the first page of a swap device, as mkswap writes it.
func swapHeader(size int64, page int) []byte {
	h := make([]byte, page)
	binary.NativeEndian.PutUint32(h[1024:], 1) // version
	binary.NativeEndian.PutUint32(h[1028:], uint32(size/int64(page)-1))
	copy(h[page-10:], "SWAPSPACE2")
	return h
}

func swapOn(device string) error {
	at, err := unix.BytePtrFromString(device)
	if err != nil {
		return err
	}
	const first = 0x8000 | 100 // SWAP_FLAG_PREFER: before a swap file that somebody adds
	if _, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(at)), first, 0); errno != 0 {
		return fmt.Errorf("swapon: %w", errno)
	}
	return nil
}
