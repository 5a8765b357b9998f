// Command broken is a version of ledge that says its version, and ends at once when it is to do anything else.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "version" {
		fmt.Println(`{"version": "v9.9.9", "buildTime": "2036-01-01T00:00:00Z", "store": 1}`)
		return
	}
	os.Exit(3)
}
