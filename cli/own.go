package cli

import "ledge/config"

func keeperFlags(c *Command) {
	var root string
	c.Flags.StringVar(&root, "cgroup-root", "", "cgroup below which kubepods stands; empty: the delegated one")
	c.Flags.String("data-dir", "", "the node's, where it is not the usual one: there the launcher finds upgrades") // it has read it
	c.Opts = &root
}

// FirstbootOptions are the flags of firstboot.
type FirstbootOptions struct{ Boot, Data, Mend string }

func firstbootFlags(c *Command) {
	o := &FirstbootOptions{}
	c.Flags.StringVar(&o.Boot, "boot", config.FirmwareDir, "where the boot partition is mounted")
	c.Flags.StringVar(&o.Data, "data-dir", config.DefaultDataDir, "the node's data; a partition mounted there takes its disk's room")
	c.Flags.StringVar(&o.Mend, "mend", "", "do nothing but make the ext4 on this device whole, whose superblock or journal a power cut has torn, so that no kernel mounts it")
	c.Opts = o
}
