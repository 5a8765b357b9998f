package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api/websocket"
	"ledge/brain/place"
)

// exitCode is the end of a command in a container: the process ends with the same code.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("command terminated with exit code %d", int(e)) }

// The protocol of sessions, and its channels: the first byte of each message.
const (
	sessionProtocol = "v5.channel.k8s.io"

	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
	channelEnd    = 3
	channelResize = 4
	channelClose  = 255
)

// session joins what this process reads and writes with a container, until the container's side has ended.
func (c *Command) session(ctx context.Context, path string, query url.Values, stdin, tty bool) error {
	query.Set("stdout", "true")
	query.Set("stdin", strconv.FormatBool(stdin))
	query.Set("tty", strconv.FormatBool(tty))
	query.Set("stderr", strconv.FormatBool(!tty))
	conn, err := c.dialSession(ctx, path+"?"+query.Encode())
	if err != nil {
		return err
	}
	defer conn.Close()
	if tty {
		restore := rawTerminal(os.Stdin)
		defer restore()
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, unix.SIGWINCH)
		defer signal.Stop(resized)
		resized <- unix.SIGWINCH // the size at the beginning
		go sendSizes(conn, resized)
	}
	if stdin {
		go sendInput(conn, os.Stdin)
	}
	return c.receive(conn)
}

// dialSession asks the node for a WebSocket.
func (c *Command) dialSession(ctx context.Context, path string) (*websocket.Conn, error) {
	if err := c.reachable(); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", place.Socket(c.RunDir))
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	random := make([]byte, 16)
	rand.Read(random) // never fails
	key := base64.StdEncoding.EncodeToString(random)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://ledge"+path, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": key, "Sec-WebSocket-Protocol": sessionProtocol} {
		req.Header.Set(name, value)
	}
	in := bufio.NewReader(conn)
	err = req.Write(conn)
	var answer *http.Response
	if err == nil {
		answer, err = http.ReadResponse(in, req)
	}
	if err == nil && answer.StatusCode != http.StatusSwitchingProtocols {
		err = place.StatusError(answer)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return websocket.Client(conn, in, answer, key, []string{sessionProtocol})
}

// receive writes what comes until the end is told.
func (c *Command) receive(conn *websocket.Conn) error {
	var channel byte
	var end []byte
	buf := make([]byte, 32<<10)
	for {
		n, first, last, err := conn.Next(buf)
		if err != nil {
			return fmt.Errorf("the session was cut: %w", err)
		}
		data := buf[:n]
		if first && n > 0 {
			channel, data = data[0], data[1:]
		}
		switch channel {
		case channelStdout:
			_, err = stream(c.out).Write(data)
		case channelStderr:
			_, err = stream(c.Err).Write(data)
		case channelEnd:
			if end = append(end, data...); last {
				return endOf(end)
			}
		}
		if err != nil {
			return err
		}
	}
}

// endOf reads the Status that a session ends with.
func endOf(data []byte) error {
	var s metav1.Status
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read how the command ended: %w", err)
	}
	if s.Status == metav1.StatusSuccess {
		return nil
	}
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if code, err := strconv.Atoi(cause.Message); cause.Type == "ExitCode" && err == nil {
				return exitCode(code)
			}
		}
	}
	return errors.New(s.Message)
}

func sendInput(conn *websocket.Conn, from io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && conn.WriteMessage([]byte{channelStdin}, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = conn.WriteMessage([]byte{channelClose, channelStdin}) // the reader notices a broken connection
			return
		}
	}
}

func sendSizes(conn *websocket.Conn, resized <-chan os.Signal) {
	for range resized {
		if size, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil {
			text := fmt.Sprintf(`{"Width":%d,"Height":%d}`, size.Col, size.Row)
			if conn.WriteMessage([]byte{channelResize}, []byte(text)) != nil {
				return
			}
		}
	}
}

// rawTerminal hands every key on as it is pressed, if f is a terminal; restore gives it back.
func rawTerminal(f *os.File) (restore func()) {
	before, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return func() {} // no terminal
	}
	raw := *before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	set := func(to *unix.Termios) { _ = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, to) } // it is a terminal: it can
	set(&raw)
	return func() { set(before) }
}
