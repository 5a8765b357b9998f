package plugins

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"ledge/node/grpc"
)

// The messages of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1, of which the numbers of the fields here are.

const (
	version  = "v1beta1"
	register = "/v1beta1.Registration/Register"
	plugin   = "/v1beta1.DevicePlugin/"
)

// Bounds of what a plugin may say.
const (
	mostMessage  = 4 << 20 // bytes, as gRPC's own libraries have it
	mostRequest  = 16 << 10
	mostAnswer   = 64 << 10 // what one container gets: it is kept in a file
	mostDevices  = 8192     // of a plugin
	mostID       = 256      // bytes
	mostPath     = 4096
	mostEntries  = 256 // variables, mounts, nodes of a container
	mostEndpoint = 100 // bytes of the name of a socket
)

// registration is RegisterRequest.
type registration struct{ version, endpoint, resource string }

func parseRegistration(b []byte) (r registration, err error) {
	err = grpc.Fields(b, func(f grpc.Field) error {
		return texts(f, map[uint64]*string{1: &r.version, 2: &r.endpoint, 3: &r.resource})
	})
	return r, err
}

// texts takes a field that is one of these; another is passed over.
func texts(f grpc.Field, into map[uint64]*string) error {
	to, ok := into[f.Number]
	switch {
	case !ok:
		return nil
	case f.Data == nil || len(f.Data) > mostPath || !utf8.Valid(f.Data):
		return fmt.Errorf("field %d is no text of at most %d bytes", f.Number, mostPath)
	}
	*to = string(f.Data)
	return nil
}

// options is DevicePluginOptions.
type options struct{ preStart, preferred bool }

func parseOptions(b []byte) (o options, err error) {
	err = grpc.Fields(b, func(f grpc.Field) error {
		switch f.Number {
		case 1:
			o.preStart = f.Varint != 0
		case 2:
			o.preferred = f.Varint != 0
		}
		return nil
	})
	return o, err
}

// parseDevices reads ListAndWatchResponse: whether each device is healthy.
func parseDevices(b []byte) (map[string]bool, error) {
	out := map[string]bool{}
	err := grpc.Fields(b, func(f grpc.Field) error {
		if f.Number != 1 {
			return nil
		}
		var id, health string
		err := grpc.Fields(f.Data, func(f grpc.Field) error { return texts(f, map[uint64]*string{1: &id, 2: &health}) })
		switch {
		case f.Data == nil || err != nil:
			return errors.Join(grpc.ErrMessage, err)
		case !plainID(id):
			return fmt.Errorf("device %.300q: an ID is a text of 1 to %d bytes that can be printed", id, mostID)
		}
		if out[id] = health == "Healthy"; len(out) > mostDevices {
			return fmt.Errorf("more than %d devices", mostDevices)
		}
		return nil
	})
	return out, err
}

func plainID(id string) bool {
	return id != "" && len(id) <= mostID && !strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Mount is a directory or a file of the board that a container gets.
type Mount struct {
	Host     string `json:"host"`
	At       string `json:"at"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Node is a device of the board that a container gets.
type Node struct {
	Host     string `json:"host"`
	At       string `json:"at"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Answer is what a plugin says a container needs for its devices.
type Answer struct {
	Env    map[string]string `json:"env,omitempty"`
	Mounts []Mount           `json:"mounts,omitempty"`
	Nodes  []Node            `json:"nodes,omitempty"`
}

// strings1 reads a message of texts in field 1.
func strings1(b []byte) (out []string, err error) {
	err = grpc.Fields(b, func(f grpc.Field) error {
		var s string
		if err := texts(f, map[uint64]*string{1: &s}); f.Number != 1 || err != nil {
			return err
		}
		if out = append(out, s); len(out) > mostDevices {
			return fmt.Errorf("more than %d texts", mostDevices)
		}
		return nil
	})
	return out, err
}

// only is field 1 of a message that answers for one container.
func only(b []byte) (inner []byte, err error) {
	n := 0
	err = grpc.Fields(b, func(f grpc.Field) error {
		if f.Number == 1 {
			inner = f.Data
			n++
		}
		return nil
	})
	if err == nil && (n != 1 || inner == nil) {
		err = fmt.Errorf("it answers for %d containers, and was asked for 1", n)
	}
	return inner, err
}

// parseAnswer reads AllocateResponse for one container. Annotations are for the hooks of a container runtime; noted says that there are
// some.
func parseAnswer(b []byte) (a Answer, noted bool, err error) {
	inner, err := only(b)
	if err != nil {
		return a, false, err
	}
	if len(inner) > mostAnswer {
		return a, false, fmt.Errorf("its answer has %d bytes, more than %d", len(inner), mostAnswer)
	}
	n := 0
	err = grpc.Fields(inner, func(f grpc.Field) (err error) {
		if f.Number > 5 {
			return nil
		}
		if n++; n > mostEntries {
			return fmt.Errorf("its answer has more than %d entries", mostEntries)
		}
		if f.Data == nil {
			return grpc.ErrMessage
		}
		switch f.Number {
		case 1:
			return a.addEnv(f.Data)
		case 2, 3:
			return a.addPath(f)
		case 4:
			noted = true
			var key string
			err = grpc.Fields(f.Data, func(f grpc.Field) error { return texts(f, map[uint64]*string{1: &key}) })
			if strings.HasPrefix(key, "cdi.k8s.io/") {
				return errCDI
			}
			return err
		}
		return errCDI
	})
	return a, noted, err
}

var errCDI = errors.New("it hands out its devices by CDI, which ledge does not speak: configure the plugin to name device nodes and mounts " +
	"(NVIDIA's: DEVICE_LIST_STRATEGY=envvar)")

func (a *Answer) addEnv(b []byte) error {
	var name, value string
	if err := grpc.Fields(b, func(f grpc.Field) error { return texts(f, map[uint64]*string{1: &name, 2: &value}) }); err != nil {
		return err
	}
	if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
		return fmt.Errorf("%.100q is no name of a variable, or its value has a zero byte", name)
	}
	if a.Env == nil {
		a.Env = map[string]string{}
	}
	a.Env[name] = value
	return nil
}

// addPath takes a Mount or a DeviceSpec.
func (a *Answer) addPath(outer grpc.Field) error {
	var at, host, permissions string
	var readOnly bool
	into := map[uint64]*string{1: &at, 2: &host}
	if outer.Number == 3 {
		into[3] = &permissions
	}
	err := grpc.Fields(outer.Data, func(f grpc.Field) error {
		if outer.Number == 2 && f.Number == 3 {
			readOnly = f.Varint != 0
		}
		return texts(f, into)
	})
	if err != nil {
		return err
	}
	for _, p := range []string{at, host} {
		if !path.IsAbs(p) || strings.ContainsRune(p, 0) || path.Clean(p) == "/" {
			return fmt.Errorf("%.300q is no absolute path, or the root", p)
		}
	}
	at, host = path.Clean(at), path.Clean(host)
	if outer.Number == 2 {
		for _, own := range []string{"/proc", "/sys", "/dev"} {
			if at == own || own != "/dev" && strings.HasPrefix(at, own+"/") {
				return fmt.Errorf("a mount at %s would hide what every container has there", at)
			}
		}
		a.Mounts = append(a.Mounts, Mount{host, at, readOnly})
		return nil
	}
	switch read, write := strings.Contains(permissions, "r"), strings.Contains(permissions, "w"); {
	case strings.Trim(permissions, "rwm") != "" || !read:
		return fmt.Errorf("device %s: the permissions %.20q are none of r, rw and rwm", host, permissions)
	case !strings.HasPrefix(at, "/dev/"):
		return fmt.Errorf("device %s: its node in the container is to be below /dev, not at %s", host, at)
	default:
		a.Nodes = append(a.Nodes, Node{host, at, !write})
	}
	return nil
}

// idsMessage is a message whose field 1 is these texts: PreStartContainerRequest and its like.
func idsMessage(ids []string) (b []byte) {
	for _, id := range ids {
		b = grpc.AppendBytes(b, 1, id)
	}
	return b
}

// allocateRequest is AllocateRequest for one container.
func allocateRequest(ids []string) []byte { return grpc.AppendBytes(nil, 1, idsMessage(ids)) }

// preferredRequest is PreferredAllocationRequest for one container.
func preferredRequest(available, must []string, n int) []byte {
	b := idsMessage(available)
	for _, id := range must {
		b = grpc.AppendBytes(b, 2, id)
	}
	return grpc.AppendBytes(nil, 1, grpc.AppendVarint(b, 3, uint64(n)))
}

// parsePreferred reads PreferredAllocationResponse for one container.
func parsePreferred(b []byte) ([]string, error) {
	inner, err := only(b)
	if err != nil {
		return nil, err
	}
	return strings1(inner)
}
