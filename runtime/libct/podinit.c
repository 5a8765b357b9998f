// The first process of a pod whose containers share their processes. It is written to a file of its own by podinit.go,
// from where the linker has put it in this binary: so it may call nothing, and refer to nothing outside itself.

#include <stdint.h>

#if defined(__x86_64__)
#define NR_SIGACTION 13
#define NR_POLL 271
static inline __attribute__((always_inline)) long call(long nr, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
	long ret;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
#define NR_SIGACTION 134
#define NR_POLL 73
static inline __attribute__((always_inline)) long call(long nr, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d, x4 __asm__("x4") = e;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
}
#elif defined(__arm__)
#define NR_SIGACTION 174
#define NR_POLL 336
// r7 holds the number of the call, and in Thumb code the frame: it is kept by hand.
static inline __attribute__((always_inline)) long call(long nr, long a, long b, long c, long d, long e)
{
	register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c, r3 __asm__("r3") = d, r4 __asm__("r4") = e;
	__asm__ volatile("push {r7}\n\tmov r7, %[nr]\n\tsvc 0\n\tpop {r7}" : "+r"(r0) : [nr] "r"(nr), "r"(r1), "r"(r2), "r"(r3), "r"(r4) : "memory");
	return r0;
}
#else
#error "the pod's init knows amd64, arm64 and arm"
#endif

#ifdef __arm__
#define ISA __attribute__((target("arm"))) // the entry point of Thumb code would need its lowest bit set
#else
#define ISA
#endif

#define SIGCHLD 17
#define SIG_IGN 1

// A parent that ignores SIGCHLD has its children reaped by the kernel, also those it was given when theirs died. All
// other signals cannot reach it from inside the pod: it is the first process there and handles none.
__attribute__((section("podinit"), used, noreturn, noinline, no_stack_protector, optimize("Os", "omit-frame-pointer")))
ISA void ledge_pod_init(void)
{
	volatile long act[8]; // handler, flags, restorer, mask, in whatever order after the first
	for (int i = 1; i < 8; i++)
		act[i] = 0;
	act[0] = SIG_IGN;
	call(NR_SIGACTION, SIGCHLD, (long)(uintptr_t)act, 0, 8, 0);
	for (;;)
		call(NR_POLL, 0, 0, 0, 0, 0);
}
