package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// SuppliesRoot is where the kernel shows batteries, chargers and the UPS boards that have a driver.
const SuppliesRoot = "/sys/class/power_supply"

// Batteries reads all batteries of this machine as one supply.
type Batteries struct {
	Root string // empty is SuppliesRoot
}

// Read adds up what it finds: a board on two batteries goes down with the second. A machine without any is on mains.
func (b *Batteries) Read(context.Context) (Supply, error) {
	root := b.Root
	if root == "" {
		root = SuppliesRoot
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) { // a kernel without them
		return Supply{Absent: true, Charge: -1}, nil
	}
	if err != nil {
		return Supply{}, fmt.Errorf("read batteries: %w", err)
	}
	var mains, online bool
	out := Supply{Charge: -1, Low: true}
	batteries := 0
	for _, e := range entries {
		a := attributes(filepath.Join(root, e.Name()))
		if a["scope"] == "Device" { // of a mouse or a keyboard
			continue
		}
		if a["type"] != "Battery" && a["type"] != "UPS" {
			if a["online"] != "" {
				mains = true
				online = online || a["online"] != "0"
			}
			continue
		}
		if a["present"] == "0" {
			continue
		}
		batteries++
		out.OnBattery = out.OnBattery || a["status"] == "Discharging"
		out.Low = out.Low && a["capacity_level"] == "Critical"
		if n, err := strconv.Atoi(a["capacity"]); err == nil {
			out.Charge = max(out.Charge, n)
		}
		out.Runtime += runtimeLeft(a)
	}
	if batteries == 0 {
		return Supply{Absent: true, Charge: -1}, nil
	}
	// A battery that feeds a load bigger than its charger discharges on mains too: the charger has the last word.
	out.OnBattery = out.OnBattery && (!mains || !online)
	out.Low = out.Low && out.OnBattery
	return out, nil
}

// attributes are the files of one supply that are needed here; the kernel has more.
func attributes(dir string) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"type", "scope", "online", "present", "status", "capacity", "capacity_level",
		"time_to_empty_now", "time_to_empty_avg"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil { // a driver offers what its chip knows
			out[name] = strings.TrimSpace(string(data))
		}
	}
	return out
}

func runtimeLeft(a map[string]string) time.Duration {
	for _, name := range []string{"time_to_empty_now", "time_to_empty_avg"} {
		if n, err := strconv.Atoi(a[name]); err == nil && n > 0 {
			return time.Duration(n) * time.Second
		}
	}
	return 0
}
