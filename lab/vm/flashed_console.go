package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// consoleLine begins the line by which a board in QEMU's network says on its console how it is reached.
const consoleLine = "Address     10.0.2.15"

// lookAtConsole is somebody who stands before the board: its login, or its serial line and its screen, say how it is reached.
func (b *flashed) lookAtConsole(ctx context.Context) error {
	if b.guest.firmware == "pi" { // QEMU's has no keys, and no screen that can be read
		return nil
	}
	if b.key != "" {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		for { // it is looked at now and then, and before there was an address
			text, err := b.shell(ctx, "agetty --show-issue")
			switch {
			case err != nil:
				return err
			case strings.Contains(text, consoleLine):
				return nil
			case ctx.Err() != nil:
				return fmt.Errorf("the login does not show how the board is reached: %s", text)
			}
			time.Sleep(3 * time.Second)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !b.console.Load() {
		if _, err := b.keys.WriteString("\n"); err != nil {
			return fmt.Errorf("press Enter on the serial line: %w", err)
		}
		select {
		case <-ctx.Done():
			return errors.New("the serial line does not say how the board is reached when Enter is pressed")
		case <-time.After(3 * time.Second):
		}
	}
	if b.guest.arch != "amd64" || b.guest.firmware != "bios" {
		return nil // the screen is no text
	}
	screen := filepath.Join(b.guest.dir, "screen")
	defer os.Remove(screen)
	var seen string
	for ctx.Err() == nil {
		if err := monitor(b.guest.qmp, fmt.Sprintf(`{"execute":"pmemsave","arguments":{"val":%d,"size":%d,"filename":%q}}`, 0xb8000, 32<<10, screen)); err != nil {
			return err
		}
		cells, err := os.ReadFile(screen)
		if err != nil {
			return err
		}
		if seen = textOf(cells); strings.Contains(seen, consoleLine) {
			return nil
		}
		time.Sleep(time.Second)
	}
	return fmt.Errorf("the screen does not show how the board is reached: %.2000s", seen)
}

// textOf is what a screen in text mode shows: each second byte is a colour.
func textOf(cells []byte) string {
	var text bytes.Buffer
	for i := 0; i < len(cells); i += 2 {
		text.WriteByte(cells[i])
	}
	return text.String()
}
