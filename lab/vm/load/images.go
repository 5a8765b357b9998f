package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"ledge/api/board"
	"ledge/images/imagestest"
)

// supply makes images: the program of the pods, and a file whose sum is the image's tag.
type supply struct {
	registry  imagestest.Registry
	listening bool
}

const registryAt = "127.0.0.1:5000"

// program is the image of all pods but those that check an image. Nothing removes it.
const program = "load.local/program:1"

func (g *guest) importProgram() error {
	im, err := newImage(program, nil)
	if err != nil {
		return err
	}
	_, err = g.change("images", program, "there", "POST", board.ImagesPath, imagestest.OCI(im))
	return err
}

func newImage(name string, data []byte) (imagestest.Image, error) {
	text, err := os.ReadFile("/payload/bin/pod")
	if err != nil {
		return imagestest.Image{}, err
	}
	f := imagestest.File("pod", string(text))
	f.Mode = 0o755
	return imagestest.Image{Names: []string{name}, Compress: imagestest.Gzip,
		Layers: [][]byte{imagestest.Layer(f), imagestest.Layer(imagestest.File("data", string(data)))}}, nil
}

func tagOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

const mostImages = 3

// changeImage imports or pulls an image, or removes the oldest when there are many.
func (g *guest) changeImage(r *rand.Rand, s *supply) error {
	have, err := g.images()
	if err != nil {
		return err
	}
	have = slices.DeleteFunc(have, func(name string) bool { return name == program })
	if len(have) >= mostImages {
		name := have[r.IntN(len(have))]
		_, err := g.change("images", name, absent, "DELETE", board.ImagesPath+"?name="+name, nil)
		return err
	}
	data := make([]byte, 10<<10+r.IntN(400<<10))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	name, path := "load.local/x:"+tagOf(data), board.ImagesPath
	pull := r.IntN(2) == 0
	if pull {
		name = registryAt + "/y:" + tagOf(data)
		path += "/pull?name=" + name
	}
	im, err := newImage(name, data)
	if err != nil {
		return err
	}
	var body []byte
	if pull {
		s.registry.Push(im)
		err = s.serve()
	} else {
		body = imagestest.OCI(im)
	}
	if err == nil {
		_, err = g.change("images", name, "there", "POST", path, body)
	}
	return err
}

// serve begins to answer pulls, once.
func (s *supply) serve() error {
	if s.listening {
		return nil
	}
	l, err := net.Listen("tcp", registryAt)
	if err != nil {
		return err
	}
	s.listening = true
	go func() {
		_ = http.Serve(l, s.registry.Handler(registryAt)) // ends with the machine
	}()
	return nil
}

// images are the images in the store that this program made.
func (g *guest) images() (names []string, err error) {
	data, err := g.ask("GET", board.ImagesPath, nil)
	if err != nil {
		return nil, err
	}
	var l struct{ Images []struct{ Names []string } }
	err = json.Unmarshal(data, &l)
	for _, i := range l.Images {
		for _, name := range i.Names {
			if strings.HasPrefix(name, "load.local/") || strings.HasPrefix(name, registryAt) {
				names = append(names, name)
			}
		}
	}
	return names, err
}

// tellImages runs a pod of each image, which reads the image's file.
func (g *guest) tellImages() error {
	names, err := g.images()
	if err != nil {
		return err
	}
	tag := func(name string) string { return name[strings.LastIndex(name, ":")+1:] }
	for _, name := range names {
		if name == program {
			continue
		}
		err := g.create("check-"+tag(name), name, []string{"/pod", "check", "/data", tag(name)}, `"restartPolicy":"Never"`)
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		if name != program {
			if err := g.checked("check-" + tag(name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		g.host.say("have", "images", name, "there")
	}
	return nil
}

// checked waits for the end of a pod that checks an image, and removes it.
func (g *guest) checked(pod string) error {
	var p object
	err := wait(3*time.Minute, func() error {
		data, err := g.ask("GET", objects+"pods/"+pod, nil)
		if err == nil {
			err = json.Unmarshal(data, &p)
		}
		if err == nil && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" {
			err = fmt.Errorf("%s is %s", pod, p.Status.Phase)
		}
		return err
	})
	if err == nil && p.Status.Phase == "Failed" {
		err = errors.New("the image is damaged")
	}
	if err == nil {
		err = g.removePods(pod)
	}
	return err
}

// removePods removes the pods whose names begin with prefix.
func (g *guest) removePods(prefix string) error {
	l, err := g.list(objects + "pods")
	for _, p := range l.Items {
		if name := p.Metadata.Name; err == nil && strings.HasPrefix(name, prefix) {
			_, err = g.change("pods", name, absent, "DELETE", objects+"pods/"+name+"?gracePeriodSeconds=0", nil)
		}
	}
	return err
}
