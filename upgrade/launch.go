package upgrade

// LaunchNot in the environment with the value "no" has a program be what it is, and not become the version that was chosen.
const LaunchNot = "LEDGE_LAUNCH"
