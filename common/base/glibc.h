/* Functions that the C library of Debian 11 does not have yet: the client and the agent that run on
 * every distribution are linked against that one (deploy/client/build.sh).
 *
 * Memory: none. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_GLIBC_H
#define WAVETUNE_COMMON_BASE_GLIBC_H

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __GLIBC_PREREQ(2, 36)
#include <sys/pidfd.h>
#else
static inline int pidfd_open(pid_t process, unsigned flags) {
  return (int)syscall(__NR_pidfd_open, process, flags);
}
#endif

#if !__GLIBC_PREREQ(2, 34)
static inline int close_range(unsigned first, unsigned last, int flags) {
  return (int)syscall(__NR_close_range, first, last, flags);
}

/* fork without the handlers of pthread_atfork, for a child that only calls what a signal handler
 * may call. */
static inline pid_t _Fork(void) { return (pid_t)syscall(__NR_clone, SIGCHLD, 0, 0, 0, 0); }
#endif

#if !__GLIBC_PREREQ(2, 32)
/* Not translated either, because no program of ours calls setlocale; and without a buffer for each
 * number that errno may be. */
static inline const char *strerrordesc_np(int number) { return strerror(number); }
#endif

#endif
