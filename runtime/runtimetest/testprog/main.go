// Testprog is the program in the containers of ledge's runtime tests. It is built without cgo, so that it is all a
// root file system needs.
package main

import (
	"os"

	"ledge/runtime/runtimetest/rough"
)

func main() { rough.Main(os.Args[1:], os.Exit) }
