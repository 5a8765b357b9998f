package libct

/*
#include <sys/prctl.h>

// Where the kernel gives huge pages to everybody (Debian's does), each makes 2 MB of a few kilobytes: the top of a thread's stack at
// once, other places when khugepaged comes by minutes later. Go has started threads before main; so this is before Go. Processes that
// this one starts inherit it, and containers are let off (libct.go). A kernel without huge pages says no, which is just as well.
__attribute__((constructor)) static void refuse_huge_pages(void) { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
*/
import "C"
