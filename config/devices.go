package config

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"ledge/node/devices"
)

// deviceKeys name the devices that pods may have beside those of the classes that come with ledge.
type deviceKeys struct {
	Devices []DeviceClass `json:"devices,omitempty"`
	// DevicePlugins is where device plugins look for kubelet.sock; empty: none is served.
	DevicePlugins string `json:"devicePlugins,omitempty"`
}

// DeviceClass is a class of devices, or what of one of ledge's own is to be otherwise.
type DeviceClass struct {
	Name      string   `json:"name"`
	Globs     []string `json:"globs,omitempty"`
	USB       string   `json:"usb,omitempty"`
	Share     *int32   `json:"share,omitempty"`
	Unplugged string   `json:"unplugged,omitempty"`
}

const (
	mostClasses = 32
	mostGlobs   = 32
	mostGlob    = 200 // bytes
	mostShare   = 1000

	mostPluginDir = 90 // bytes: the kernel takes 107 for the path of a socket
)

var endsInNumber = regexp.MustCompile(`-[0-9]+$`)

var usbNumbers = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{4}$`)

func (k deviceKeys) check() error {
	if d := k.DevicePlugins; d != "" && (!path.IsAbs(d) || path.Clean(d) != d || d == "/" || len(d) > mostPluginDir) {
		return fmt.Errorf("devicePlugins %.200q is no directory by its whole path, of at most %d bytes: vendors' plugins look into "+
			"/var/lib/kubelet/device-plugins", d, mostPluginDir)
	}
	if len(k.Devices) > mostClasses {
		return fmt.Errorf("devices: %d are more than %d", len(k.Devices), mostClasses)
	}
	own := map[string]bool{}
	for _, c := range devices.Builtin() {
		own[c.Name] = true
	}
	names := map[string]bool{}
	for i, d := range k.Devices {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("devices[%d]: "+format, append([]any{i}, args...)...)
		}
		switch {
		case len(validation.IsDNS1123Label(d.Name)) > 0 || len(d.Name) > 40:
			return bad("name %q is no name of a class, such as zigbee: small letters, digits and -, at most 40", d.Name)
		case endsInNumber.MatchString(d.Name):
			return bad("name %s ends in a number, as the place of the second device of a class does", d.Name)
		case names[d.Name]:
			return bad("name %s stands there twice", d.Name)
		case len(d.Globs) > mostGlobs:
			return bad("globs: %d are more than %d", len(d.Globs), mostGlobs)
		case d.USB != "" && !usbNumbers.MatchString(d.USB):
			return bad("usb %q is not vendor and product as lsusb shows them, such as 0403:6001", d.USB)
		case len(d.Globs) == 0 && d.USB == "" && !own[d.Name]:
			return bad("%s is no class of ledge's own: say which devices it is, by globs or usb", d.Name)
		case d.Share != nil && (*d.Share < 0 || *d.Share > mostShare):
			return bad("share %d: say how many containers may have one at a time, 0 to %d", *d.Share, mostShare)
		case d.Unplugged != "" && d.Unplugged != string(devices.Restart) && d.Unplugged != string(devices.Leave):
			return bad("unplugged %q is neither %s nor %s", d.Unplugged, devices.Restart, devices.Leave)
		}
		for _, g := range d.Globs {
			if _, err := path.Match(g, "/dev/x"); err != nil || len(g) > mostGlob || !strings.HasPrefix(g, "/dev/") || path.Clean(g) != g {
				return bad("globs: %.200q is no pattern of names below /dev, such as /dev/serial/by-id/usb-ITead*", g)
			}
		}
		names[d.Name] = true
	}
	return nil
}

// DeviceClasses are all of this board, those of the file first.
func (k deviceKeys) DeviceClasses() []devices.Class {
	own := make([]devices.Class, len(k.Devices))
	for i, d := range k.Devices {
		own[i] = devices.Class{Name: d.Name, Globs: d.Globs, USB: d.USB, Share: -1, Gone: devices.Pulled(d.Unplugged)}
		if d.Share != nil {
			own[i].Share = int(*d.Share)
		}
	}
	return devices.With(own)
}
