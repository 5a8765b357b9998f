package brain

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"ledge/config"
	"ledge/console"
	"ledge/firstboot"
	"ledge/firstboot/card"
	"ledge/node"
)

// showConsole tells who stands before the board how it is. A node beside the machine's own shows nothing.
func showConsole(ctx context.Context, b *Brain) error {
	if !b.File.ShowsConsole() || !b.UnderInit && b.RunDir != config.DefaultRunDir {
		return nil
	}
	return console.Run(ctx, console.Config{Facts: func(context.Context) console.Facts { return consoleFacts(b) }, Init: b.UnderInit,
		Dev: "/dev", Sys: "/sys", Run: "/run"})
}

func consoleFacts(b *Brain) console.Facts {
	f := console.Facts{Name: b.Name, Version: b.Build.Version, Pods: b.agent.Pods(), Mistakes: cardMistakes(b)}
	f.Addresses, _ = b.rims.Host.Addresses(b.Bridge)
	if r := b.found.report(); r != nil {
		f.Names = r.Names
	}
	f.Node, _ = node.Self(b.agent)
	if b.plane == nil {
		if f.Plane = strings.Join(b.Servers, " "); f.Plane == "" {
			f.Plane = "a Kubernetes"
		}
	} else {
		f.API, _ = b.plane.outward() // an address that is not there yet is none
		if port := b.plane.page.port(); port != 0 && len(f.Addresses) > 0 {
			f.Page = "https://" + pageHost(f)
			if port != 443 {
				f.Page += fmt.Sprintf(":%d", port)
			}
		}
	}
	if r := b.power.report(); r.Running {
		f.Power = "goes down now"
	} else if r.Due != nil {
		f.Power = "goes down at " + r.Due.UTC().Format("15:04") + " UTC"
	}
	return f
}

// pageHost is how people on this network name the board.
func pageHost(f console.Facts) string {
	if len(f.Names) > 0 {
		return f.Names[0]
	}
	if a := f.Addresses[0]; a.Is6() {
		return "[" + a.WithZone("").String() + "]"
	}
	return f.Addresses[0].String()
}

// cardMistakes are those that the boot partition tells too.
func cardMistakes(b *Brain) []string {
	boot, _, err := b.card().Places()
	if err != nil || boot == "" {
		return nil
	}
	file, err := os.Open(filepath.Join(boot, card.FileName))
	if err != nil {
		return nil // there are none
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, 16<<10))
	if err != nil {
		return nil
	}
	return firstboot.Reported(data)
}
