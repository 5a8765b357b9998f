// Command pod is what the containers of the power tests run. Its lines begin with a word and the wall clock in milliseconds.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	switch verb, args := os.Args[1], os.Args[2:]; verb {
	case "check":
		check(args[0], args[1])
	case "obey":
		wait, _ := strconv.Atoi(args[0]) // 0 is a time too
		term := begin()
		<-term
		say("term")
		time.Sleep(time.Duration(wait) * time.Millisecond)
		say("end")
		os.Exit(143) // with 0 the pod would count as done, and say nothing of the shutdown
	case "ignore":
		for term := begin(); ; {
			select {
			case <-term:
				say("term")
			case <-time.After(100 * time.Millisecond):
				say("here")
			}
		}
	case "chat":
		for term := begin(); ; {
			select {
			case <-term:
				return
			case <-time.After(5 * time.Millisecond):
				say("line")
			}
		}
	}
}

func begin() <-chan os.Signal {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	say("up")
	return term
}

func say(word string) { fmt.Println(word, time.Now().UnixMilli()) }

// check fails unless the file's SHA-256 begins with sum.
func check(file, sum string) {
	data, err := os.ReadFile(file)
	got := sha256.Sum256(data)
	if text := hex.EncodeToString(got[:])[:len(sum)]; err != nil || text != sum {
		fmt.Println("bad", text, err)
		os.Exit(1)
	}
}
