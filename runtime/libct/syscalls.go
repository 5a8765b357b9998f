package libct

// The system calls of the default profile, by what they touch. A name that this kernel or architecture does not
// have is skipped when the filter is built, so one list serves all of them. What is in no list answers EPERM, and
// what is newer than everything here answers ENOSYS, so that C libraries fall back.

const callsFiles = `
	access faccessat faccessat2 chdir fchdir getcwd chmod fchmod fchmodat fchmodat2 umask
	chown chown32 fchown fchown32 fchownat lchown lchown32
	open openat openat2 creat close close_range dup dup2 dup3 fcntl fcntl64 flock
	read pread64 readv preadv preadv2 write pwrite64 writev pwritev pwritev2 lseek _llseek readahead
	sendfile sendfile64 splice tee vmsplice copy_file_range
	stat stat64 lstat lstat64 fstat fstat64 fstatat64 newfstatat statx
	statfs statfs64 fstatfs fstatfs64 ustat statmount listmount
	truncate truncate64 ftruncate ftruncate64 fallocate fadvise64 fadvise64_64 arm_fadvise64_64
	sync syncfs fsync fdatasync sync_file_range sync_file_range2 arm_sync_file_range
	link linkat symlink symlinkat readlink readlinkat unlink unlinkat rename renameat renameat2
	mkdir mkdirat rmdir mknod mknodat getdents getdents64
	utime utimes futimesat utimensat utimensat_time64
	getxattr lgetxattr fgetxattr getxattrat setxattr lsetxattr fsetxattr setxattrat
	listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat
	file_getattr name_to_handle_at cachestat`

const callsEvents = `
	poll ppoll ppoll_time64 select _newselect pselect6 pselect6_time64
	epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait epoll_pwait2
	eventfd eventfd2 signalfd signalfd4 timerfd_create
	timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64
	inotify_init inotify_init1 inotify_add_watch inotify_rm_watch fanotify_mark
	io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents io_pgetevents_time64`

const callsMemory = `
	brk mmap mmap2 munmap mremap mprotect msync mincore madvise remap_file_pages mseal
	mlock mlock2 mlockall munlock munlockall membarrier memfd_create memfd_secret
	pkey_alloc pkey_free pkey_mprotect process_mrelease map_shadow_stack`

const callsProcess = `
	fork vfork execve execveat exit exit_group wait4 waitid waitpid restart_syscall
	getpid gettid getppid getpgid getpgrp setpgid getsid setsid set_tid_address
	kill tkill tgkill pidfd_open pidfd_send_signal prctl arch_prctl seccomp rseq uretprobe
	get_thread_area set_thread_area modify_ldt set_robust_list get_robust_list
	getrlimit ugetrlimit setrlimit prlimit64 getrusage getpriority setpriority nice ioprio_get ioprio_set
	sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr sched_getparam sched_setparam
	sched_getscheduler sched_setscheduler sched_get_priority_max sched_get_priority_min
	sched_rr_get_interval sched_rr_get_interval_time64 getcpu
	capget capset landlock_create_ruleset landlock_add_rule landlock_restrict_self
	lsm_get_self_attr lsm_set_self_attr lsm_list_modules
	uname sysinfo getrandom set_tls breakpoint cacheflush riscv_flush_icache riscv_hwprobe`

const callsSignalsAndTime = `
	alarm pause getitimer setitimer signal sigaction sigaltstack sigpending sigprocmask sigreturn sigsuspend
	rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
	rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo
	time times gettimeofday nanosleep adjtimex clock_adjtime clock_adjtime64
	clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64
	timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64`

const callsTalk = `
	accept accept4 bind connect listen shutdown socketpair getpeername getsockname getsockopt setsockopt
	recv recvfrom recvmsg recvmmsg recvmmsg_time64 send sendto sendmsg sendmmsg
	pipe pipe2 futex futex_time64 futex_wait futex_waitv futex_wake futex_requeue ipc
	mq_open mq_unlink mq_notify mq_getsetattr
	mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64
	msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget`

const callsIdentity = `
	getuid getuid32 geteuid geteuid32 getgid getgid32 getegid getegid32 getgroups getgroups32
	getresuid getresuid32 getresgid getresgid32 setuid setuid32 setgid setgid32 setgroups setgroups32
	setreuid setreuid32 setregid setregid32 setresuid setresuid32 setresgid setresgid32
	setfsuid setfsuid32 setfsgid setfsgid32`

// callsByCap are let through only to who holds the capability that the kernel asks for anyway: without it the
// call is refused before it reaches code that has had bugs.
var callsByCap = map[string]string{
	"CAP_DAC_READ_SEARCH": `open_by_handle_at`,
	"CAP_SYS_ADMIN": `bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr
		move_mount open_tree open_tree_attr perf_event_open pivot_root quotactl quotactl_fd setdomainname sethostname
		setns syslog umount umount2 unshare`,
	"CAP_BPF":            `bpf`,
	"CAP_PERFMON":        `perf_event_open`,
	"CAP_SYS_BOOT":       `reboot`,
	"CAP_SYS_CHROOT":     `chroot`,
	"CAP_SYS_MODULE":     `delete_module init_module finit_module`,
	"CAP_SYS_NICE":       `get_mempolicy mbind set_mempolicy set_mempolicy_home_node`,
	"CAP_SYS_PACCT":      `acct`,
	"CAP_SYS_PTRACE":     `kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace`,
	"CAP_SYS_RAWIO":      `iopl ioperm`,
	"CAP_SYS_TIME":       `settimeofday stime clock_settime clock_settime64`,
	"CAP_SYS_TTY_CONFIG": `vhangup`,
	"CAP_SYSLOG":         `syslog`,
}
