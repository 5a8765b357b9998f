package fake_test

import (
	"errors"
	"testing"

	"ledge/images"
	"ledge/images/fake"
	"ledge/images/imagestest"
)

func TestSuite(t *testing.T) {
	imagestest.Run(t, func(_ *testing.T, reg images.Registry) images.Store { return &fake.Store{Registry: reg} })
}

func TestAdd(t *testing.T) {
	s := &fake.Store{}
	img, err := s.Add(images.Image{Names: []string{images.SelfName}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), images.SelfName); !errors.Is(err, images.ErrBuiltIn) {
		t.Errorf("remove: %v", err)
	}
	if _, err := s.Add(images.Image{Names: []string{"No Name"}}); !errors.Is(err, images.ErrInvalidName) {
		t.Errorf("add: %v", err)
	}
	boom := errors.New("boom")
	s.Fail = func(op, what string) error {
		if op == "mount" && what == "k" {
			return boom
		}
		return nil
	}
	if _, err := s.Mount(t.Context(), img.ID, "k"); !errors.Is(err, boom) {
		t.Errorf("mount: %v", err)
	}
	if _, err := s.Mount(t.Context(), img.ID, "j"); err != nil || s.Mounts()["j"] != img.ID {
		t.Errorf("mount: %v, %v", err, s.Mounts())
	}
}
