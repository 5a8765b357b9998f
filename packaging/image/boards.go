package main

import (
	"slices"

	"ledge/packaging/initramfs"
)

// board is a kind of machine.
type board struct {
	arch     string   // Go's and Debian's name
	kernel   string   // Debian's package of it
	packages []string // besides the kernel, busybox and the certificates
	firmware []string // packages with what its devices are loaded with, where it is not free: with Debian only
	modules  []string // drivers: by name, or a directory
	disks    []string // those of them that a disk, or a card, may need
	load     []string // modules that no device asks for
	consoles string
	bios     bool // boots without UEFI too
	pi       bool // has what a Raspberry Pi's firmware reads
}

var boards = map[string]board{
	"generic-amd64": {
		arch: "amd64", kernel: "linux-image-amd64", packages: []string{"grub-efi-amd64-bin", "grub-pc-bin"},
		modules: amd64Drivers, disks: amd64Disks, load: alwaysLoaded, consoles: "console=tty0 console=ttyS0,115200", bios: true,
		firmware: append([]string{"firmware-iwlwifi"}, radios...),
	},
	"generic-arm64": {
		arch: "arm64", kernel: "linux-image-arm64", packages: []string{"grub-efi-arm64-bin"},
		modules: arm64Drivers, disks: arm64Disks, load: alwaysLoaded, consoles: "console=tty0 console=ttyS0,115200 console=ttyAMA0,115200",
		firmware: radios,
	},
	"rpi": {
		arch: "arm64", kernel: "linux-image-arm64", packages: []string{"grub-efi-arm64-bin", "raspi-firmware"},
		// The words stand on the screen: who has a Pi rarely has a serial cable.
		modules: arm64Drivers, disks: arm64Disks, load: alwaysLoaded, consoles: "console=ttyAMA0,115200 console=ttyS1,115200 console=tty0",
		pi:       true,
		firmware: radios,
	},
}

// radios have no firmware of their own: those on boards, and in sticks.
var radios = []string{"firmware-atheros", "firmware-brcm80211", "firmware-realtek"}

// alwaysLoaded no device asks for. What a file system or a rule of the firewall needs besides, the kernel loads by modprobe.
var alwaysLoaded = append([]string{"quota_v2", "ext4", "vfat", "nls_cp437", "nls_ascii", "nls_utf8", "evdev", "button"}, initramfs.PodModules...)

// disksEverywhere are drivers of disks, of what they hang on, and of what a check of theirs needs.
var disksEverywhere = []string{
	"ahci", "nvme", "sd_mod", "usb_storage", "uas", "xhci_pci", "ehci_pci", "ohci_pci", "virtio_pci", "virtio_mmio", "virtio_blk",
	"virtio_scsi",
	"sdhci_pci", "sdhci_acpi", "mmc_block", "crc32c_generic", "crc32_generic",
}

// everywhere is what a board of either kind may have besides: USB, network adapters in its slots and sockets.
var everywhere = []string{
	"usbhid", "hid_generic", "gpio_keys", "zram", "lzo_rle",
	"virtio_net", "virtio_rng", "e1000", "e1000e", "igb", "igc", "r8169", "realtek", "8139cp", "8139too", "tg3", "atl1c", "alx", "sky2",
	"kernel/drivers/net/usb/", "kernel/drivers/net/phy/*.ko",
	"nft_*", "kernel/net/netfilter/nft_*.ko", "kernel/net/netfilter/nf_*.ko", "kernel/net/ipv4/netfilter/nf*.ko",
	"kernel/net/ipv6/netfilter/nf*.ko", "kernel/net/bridge/netfilter/nft_*.ko", "macvlan", "tun", "vxlan", "dummy", "inet_diag", "tcp_diag", "autofs4",
	"softdog", "efivarfs", "rng_core",
}

var amd64Disks = append([]string{
	"ata_piix", "pata_acpi", "ata_generic", "uhci_hcd", "vmw_pvscsi", "mptspi", "hv_storvsc", "xen_blkfront", "crc32c_intel", "crc32_pclmul",
}, disksEverywhere...)

var amd64Drivers = slices.Concat([]string{
	"hv_netvsc", "hv_utils", "vmxnet3", "xen_netfront",
	"forcedeth", "via_rhine", "r6040", "stmmac_pci", "dwmac_intel", "ixgbe",
	"iTCO_wdt", "i2c_i801", "lpc_ich", "i6300esb", "sp5100_tco", "wdat_wdt", "it87_wdt", "w83627hf_wdt", "f71808e_wdt",
	"ac", "battery", "thermal", "fan", "processor", "coretemp", "k10temp", "kernel/drivers/gpio/gpio-*.ko", "kernel/drivers/pinctrl/",
	"leds_apu",
}, amd64Disks, everywhere)

// arm64Disks has what stands between such a board and its card: clocks, power, pins.
var arm64Disks = append([]string{
	"kernel/drivers/mmc/host/", "kernel/drivers/phy/", "kernel/drivers/regulator/", "kernel/drivers/clk/", "kernel/drivers/reset/",
	"kernel/drivers/usb/host/",
	"kernel/drivers/usb/dwc2/", "kernel/drivers/usb/dwc3/", "kernel/drivers/usb/chipidea/", "kernel/drivers/usb/musb/",
	"kernel/drivers/pci/controller/", "kernel/drivers/soc/", "kernel/drivers/mailbox/", "kernel/drivers/nvmem/", "kernel/drivers/gpio/",
	"kernel/drivers/pinctrl/", "ahci_platform", "ahci_mvebu", "ahci_sunxi", "ahci_tegra", "ahci_xgene", "ahci_qoriq", "ahci_ceva", "ahci_dwc",
	"i2c_bcm2835", "i2c_rk3x", "i2c_meson", "i2c_mv64xxx", "rk808", "axp20x_rsb", "axp20x_i2c", "kernel/drivers/usb/phy/", "crc32_ce",
	"crct10dif_ce",
}, disksEverywhere...)

var arm64Drivers = slices.Concat([]string{
	"kernel/drivers/watchdog/", "kernel/drivers/char/hw_random/", "kernel/drivers/thermal/", "kernel/drivers/net/mdio/",
	"kernel/drivers/net/pcs/",
	"raspberrypi_cpufreq", "raspberrypi_hwmon", "cpufreq_dt", "bcm2835_wdt",
	"genet", "bcmgenet", "bcm_sf2", "macb", "fec", "mvneta", "mvpp2", "sun8i_emac", "dwmac_sun8i", "dwmac_rk", "dwmac_meson8b", "dwmac_meson",
	"dwmac_generic",
	"stmmac_platform", "dpaa2_eth", "fsl_dpaa2_eth", "fsl_enetc", "xgene_enet", "netsec",
}, arm64Disks, everywhere)
