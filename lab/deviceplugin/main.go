// Command deviceplugin is a device plugin as a vendor ships one, with Kubernetes' own messages and Google's gRPC, to test ledge's by hand
// made ones against. It is a module of its own: none of it reaches ledge.
//
//	deviceplugin DIRECTORY RESOURCE HOST-DEVICE CONTAINER-PATH MOUNT ID...
//
// It registers again whenever kubelet.sock is another one, and logs each call. A device whose ID is named in the file DIRECTORY/unhealthy
// is not healthy.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	dir, resource, host, at, mount string
	ids                            []string
}

func (p plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

func (p plugin) list() (out []*api.Device) {
	ill, _ := os.ReadFile(filepath.Join(p.dir, "unhealthy"))
	for _, id := range p.ids {
		d := &api.Device{ID: id, Health: api.Healthy, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 0}}}}
		if slices.Contains(strings.Fields(string(ill)), id) {
			d.Health = api.Unhealthy
		}
		out = append(out, d)
	}
	return out
}

func (p plugin) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for last := ""; s.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
		list := p.list()
		if now := fmt.Sprint(list); now != last {
			last = now
			if err := s.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
	return nil
}

// GetPreferredAllocation prefers the last ones, so that a test sees who has chosen.
func (p plugin) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	c := r.ContainerRequests[0]
	log.Print("preferred of ", c.AvailableDeviceIDs)
	ids := c.AvailableDeviceIDs[len(c.AvailableDeviceIDs)-int(c.AllocationSize):]
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: ids}}}, nil
}

func (p plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	ids := strings.Join(r.ContainerRequests[0].DevicesIds, ",")
	log.Print("allocate ", ids)
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{{
		Envs:        map[string]string{"PLUGGED": ids},
		Mounts:      []*api.Mount{{ContainerPath: "/plugged", HostPath: p.mount, ReadOnly: true}},
		Devices:     []*api.DeviceSpec{{ContainerPath: p.at, HostPath: p.host, Permissions: "rw"}},
		Annotations: map[string]string{"example.com/x": "y"},
	}}}, nil
}

func (p plugin) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	log.Print("prestart ", r.DevicesIds)
	return &api.PreStartContainerResponse{}, nil
}

// serve registers, and returns when kubelet.sock is another one.
func (p plugin) serve() error {
	const name = "lab.sock"
	own, door := filepath.Join(p.dir, name), filepath.Join(p.dir, "kubelet.sock")
	var was, is syscall.Stat_t
	if err := syscall.Stat(door, &was); err != nil {
		return err
	}
	_ = os.Remove(own)
	l, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, p)
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	c, err := grpc.NewClient("unix://"+door, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(os.Getenv("AUTHORITY")))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(c).Register(ctx, &api.RegisterRequest{Version: api.Version, Endpoint: name, ResourceName: p.resource})
	_ = c.Close()
	if err != nil {
		return err
	}
	log.Print("registered")
	for {
		time.Sleep(100 * time.Millisecond)
		if syscall.Stat(door, &is) != nil || is.Ino != was.Ino || is.Ctim != was.Ctim { // numbers are used again
			return nil
		}
	}
}

func main() {
	a := os.Args
	if len(a) < 7 {
		log.Fatal("usage: deviceplugin DIRECTORY RESOURCE HOST-DEVICE CONTAINER-PATH MOUNT ID...")
	}
	p := plugin{dir: a[1], resource: a[2], host: a[3], at: a[4], mount: a[5], ids: a[6:]}
	for {
		if err := p.serve(); err != nil {
			log.Print(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
