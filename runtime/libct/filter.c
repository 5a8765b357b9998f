//go:build seccomp

// See filter.go. The linker sends every call of libseccomp's functions of these names here (--wrap), and gives those
// functions themselves as __real_.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

static int filter_fd = -1; // where the compiled filter stands or is to be put; -1: nowhere
static int filter_made;    // it stands there

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

void ledge_use_filter(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS); // refused for everything that is not memory

	filter_fd = -1;
	filter_made = 0;
	if (seals < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return;
	filter_fd = fd;
	filter_made = (seals & SEALS) == SEALS;
}

int __real_seccomp_rule_add_array(scmp_filter_ctx ctx, uint32_t action, int call, unsigned int n, const struct scmp_arg_cmp *args);

int __wrap_seccomp_rule_add_array(scmp_filter_ctx ctx, uint32_t action, int call, unsigned int n, const struct scmp_arg_cmp *args)
{
	if (filter_made)
		return 0;
	return __real_seccomp_rule_add_array(ctx, action, call, n, args);
}

int __real_seccomp_export_bpf(const scmp_filter_ctx ctx, int fd);

int __wrap_seccomp_export_bpf(const scmp_filter_ctx ctx, int fd)
{
	struct stat st;
	off_t at = 0;

	if (filter_fd < 0)
		return __real_seccomp_export_bpf(ctx, fd);
	if (!filter_made) {
		int err = __real_seccomp_export_bpf(ctx, filter_fd);
		if (err)
			return err;
		if (fcntl(filter_fd, F_ADD_SEALS, SEALS) < 0)
			return -errno;
		filter_made = 1;
	}
	if (fstat(filter_fd, &st) < 0)
		return -errno;
	while (at < st.st_size) {
		ssize_t n = sendfile(fd, filter_fd, &at, st.st_size - at);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EIO;
	}
	return 0;
}
