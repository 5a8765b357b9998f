// Package ending is why a brain stops serving, and what follows from that. The brain decides why; process 1 hears of it by the code that
// the brain ends with.
package ending

// Why a brain stops serving. The zero value: nobody ordered it.
type Why int

// Why a brain stops serving.
const (
	Detached Why = iota + 1 // the pods run on
	Drained                 // the pods have been stopped
	PowerOff                // the pods have been stopped, and the machine is to be switched off
	Reboot                  // the pods have been stopped, and the machine is to be started again
	Renew                   // this process is to become the version that an upgrade has chosen; the pods run on
)

// How a brain under process 1 says that the machine is to be ended; the pods have stopped and the store is closed.
const (
	codePowerOff = 120
	codeReboot   = 121
)

// Ordered says whether somebody ordered it: such an end counts for nothing against the node.
func (w Why) Ordered() bool { return w != 0 }

// PodsStop says whether the pods have been stopped: what is left of them is waited for.
func (w Why) PodsStop() bool { return w == Drained || w.EndsMachine() }

// EndsMachine says whether the machine goes down too.
func (w Why) EndsMachine() bool { return w == PowerOff || w == Reboot }

// Clears says whether what the pods stood on is removed: the machine stays up without them. goingDown: somebody else ends the machine.
func (w Why) Clears(underInit, goingDown bool) bool { return w == Drained && !underInit && !goingDown }

// Stopping says whether whoever started the process is told that it ends. For Renew it goes on under another program.
func (w Why) Stopping() bool { return w != Renew }

// Next is what a brain does when all is closed.
type Next int

// What a brain does when all is closed.
const (
	Exit      Next = iota // nothing more
	TellInit              // it ends with Code, and process 1 ends the machine
	SwitchOff             // it ends the machine itself
	Exec                  // it becomes the launcher; under process 1 that starts another brain by itself
)

// Next is what a brain does when all is closed.
func (w Why) Next(underInit bool) Next {
	switch {
	case w.EndsMachine() && underInit:
		return TellInit
	case w.EndsMachine():
		return SwitchOff
	case w == Renew && !underInit:
		return Exec
	}
	return Exit
}

// KeepsWatchdog says whether the machine's watchdog stays armed: it sees to it that the machine does go down, or starts anew.
func (w Why) KeepsWatchdog(underInit bool) bool { return underInit || w.EndsMachine() }

// Code is a brain's exit code that is a word to process 1. It is an error so that it can come up through a verb.
type Code int

func (Code) Error() string { return "the machine is to be ended" }

// Code is what a brain says to process 1.
func (w Why) Code() Code {
	if w == Reboot {
		return codeReboot
	}
	return codePowerOff
}

// OfCode is why a brain ended that ended with a code; 0: for no reason that ends the machine.
func OfCode(code int) Why {
	switch Code(code) {
	case codePowerOff:
		return PowerOff
	case codeReboot:
		return Reboot
	}
	return 0
}
