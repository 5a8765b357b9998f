// The smallest program with the applets in it; tests make a self image of it.
package main

import (
	"os"

	"ledge/images/applet"
)

func main() {
	code, ok := applet.Dispatch(os.Args, nil)
	if !ok {
		code = 3
	}
	os.Exit(code)
}
