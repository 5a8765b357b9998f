package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/images"
	"ledge/images/registry"
)

// imageKeys are the configuration of images. The first six are a kubelet's, the others ledge's own words.
type imageKeys struct {
	SerializeImagePulls         *bool           `json:"serializeImagePulls,omitempty"`
	MaxParallelImagePulls       int             `json:"maxParallelImagePulls,omitempty"`
	ImageGCHighThresholdPercent *int            `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int            `json:"imageGCLowThresholdPercent,omitempty"`
	ImageMinimumGCAge           metav1.Duration `json:"imageMinimumGCAge,omitempty"`
	ImageMaximumGCAge           metav1.Duration `json:"imageMaximumGCAge,omitempty"`

	// Registries says how registries are reached that need more than their name.
	Registries []registryConfig `json:"registries,omitempty"`
	// RegistryCredentials is a file like Docker's config.json; it is read anew when it has changed.
	RegistryCredentials string `json:"registryCredentials,omitempty"`
	// KeepBlobs says of which images the compressed layers are kept: pinned (default), all, none.
	KeepBlobs string `json:"keepBlobs,omitempty"`
	// ImageArchives is a directory of archives to import at the start; empty: images/ on the boot partition.
	ImageArchives string `json:"imageArchives,omitempty"`
}

type registryConfig struct {
	Name      string   `json:"name"` // as it stands in image names
	Mirrors   []string `json:"mirrors,omitempty"`
	PlainHTTP bool     `json:"plainHTTP,omitempty"`
	CAFile    string   `json:"caFile,omitempty"`
}

// mostPulls is more than any board's uplink is good for.
const mostPulls = 32

func (k imageKeys) check() error {
	serial := k.SerializeImagePulls == nil || *k.SerializeImagePulls
	switch {
	case k.MaxParallelImagePulls < 0 || k.MaxParallelImagePulls > mostPulls:
		return fmt.Errorf("maxParallelImagePulls: %d must be between 1 and %d", k.MaxParallelImagePulls, mostPulls)
	case serial && k.MaxParallelImagePulls > 1: // a kubelet refuses it too
		return errors.New("maxParallelImagePulls cannot be larger than 1 unless serializeImagePulls is false")
	case k.RegistryCredentials != "" && !filepath.IsAbs(k.RegistryCredentials):
		return fmt.Errorf("registryCredentials: %q must be an absolute path", k.RegistryCredentials)
	case k.ImageArchives != "" && !filepath.IsAbs(k.ImageArchives):
		return fmt.Errorf("imageArchives: %q must be an absolute path", k.ImageArchives)
	case !slices.Contains([]string{"", "pinned", "all", "none"}, k.KeepBlobs):
		return fmt.Errorf("keepBlobs: %q is none of pinned, all, none", k.KeepBlobs)
	}
	if err := k.checkGC(); err != nil {
		return err
	}
	_, err := k.Registry("")
	return err
}

// checkGC has a kubelet's rules.
func (k imageKeys) checkGC() error {
	high, low := k.thresholds()
	switch {
	case high < 0 || high > 100:
		return fmt.Errorf("imageGCHighThresholdPercent: %d must be between 0 and 100", high)
	case low < 0 || low > 100:
		return fmt.Errorf("imageGCLowThresholdPercent: %d must be between 0 and 100", low)
	case low >= high:
		return fmt.Errorf("imageGCLowThresholdPercent: %d must be less than imageGCHighThresholdPercent, %d", low, high)
	case k.ImageMinimumGCAge.Duration < 0:
		return fmt.Errorf("imageMinimumGCAge: %s must not be negative", k.ImageMinimumGCAge.Duration)
	case k.ImageMaximumGCAge.Duration < 0:
		return fmt.Errorf("imageMaximumGCAge: %s must not be negative", k.ImageMaximumGCAge.Duration)
	case k.ImageMaximumGCAge.Duration > 0 && k.ImageMaximumGCAge.Duration <= k.Gc().MinAge:
		return fmt.Errorf("imageMaximumGCAge: %s must be longer than imageMinimumGCAge, %s", k.ImageMaximumGCAge.Duration, k.Gc().MinAge)
	}
	return nil
}

func (k imageKeys) thresholds() (high, low int) {
	high, low = 85, 80
	if k.ImageGCHighThresholdPercent != nil {
		high = *k.ImageGCHighThresholdPercent
	}
	if k.ImageGCLowThresholdPercent != nil {
		low = *k.ImageGCLowThresholdPercent
	}
	return high, low
}

func (k imageKeys) Gc() images.GCPolicy {
	high, low := k.thresholds()
	return images.GCPolicy{High: high, Low: max(low, 1), MinAge: cmp.Or(k.ImageMinimumGCAge.Duration, 2*time.Minute),
		MaxIdle: k.ImageMaximumGCAge.Duration}
}

// Pulls is how many images are pulled at the same time.
func (k imageKeys) Pulls() int {
	switch {
	case k.SerializeImagePulls == nil || *k.SerializeImagePulls:
		return 1
	case k.MaxParallelImagePulls > 0:
		return k.MaxParallelImagePulls
	}
	return 4 // a kubelet has no bound there; a board has one
}

func (k imageKeys) Keep() images.KeepBlobs {
	if k.KeepBlobs == "pinned" {
		return images.KeepPinned
	}
	return images.KeepBlobs(k.KeepBlobs)
}

func (k imageKeys) Registry(version string) (*registry.Client, error) {
	cfg, err := k.hosts(version)
	if err != nil {
		return nil, err
	}
	c, err := registry.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("registries: %w", err)
	}
	return c, nil
}

func (k imageKeys) hosts(version string) (registry.Config, error) {
	cfg := registry.Config{Hosts: map[string]registry.Host{}, UserAgent: "ledge/" + version}
	for _, r := range k.Registries {
		if _, twice := cfg.Hosts[r.Name]; twice {
			return cfg, fmt.Errorf("registries: %q is listed twice", r.Name)
		}
		cfg.Hosts[r.Name] = registry.Host{Mirrors: r.Mirrors, PlainHTTP: r.PlainHTTP, CAFile: r.CAFile}
	}
	if k.RegistryCredentials != "" {
		cfg.Keys = (&keyFile{path: k.RegistryCredentials}).keys
	}
	return cfg, nil
}

// keyFile reads the node's own credentials when they have changed.
type keyFile struct {
	path string

	mu    sync.Mutex
	mtime time.Time
	size  int64
	ring  images.Keyring
}

// keys gives what the file holds. One that is not there yet holds nothing.
func (f *keyFile) keys() (images.Keyring, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fi, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if fi.ModTime().Equal(f.mtime) && fi.Size() == f.size {
		return f.ring, nil
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	ring, err := images.ParseKeyring(data, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	f.mtime, f.size, f.ring = fi.ModTime(), fi.Size(), ring
	return ring, nil
}
