/* Functions of Linux for which the C library of Debian 11 has no name yet: the client that runs on
 * every distribution is linked against that one (deploy/client/build.sh).
 *
 * Memory: none. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_GLIBC_H
#define WAVETUNE_COMMON_BASE_GLIBC_H

#include <signal.h>
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

#endif
