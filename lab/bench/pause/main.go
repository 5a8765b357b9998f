// Command pause is what the benchmark runs in a container: it waits to be told to end. "pause mkdir DIR" makes a directory and ends.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "mkdir" {
		if err := os.MkdirAll(os.Args[2], 0o777); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		return
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
}
