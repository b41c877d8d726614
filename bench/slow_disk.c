/* A library to preload into PostgreSQL: fdatasync and fsync take at least as long as the file
 * $SLOW_DISK says, microseconds in its first four bytes, which may change meanwhile.
 * bench/slow_disk.py builds and loads it. Memory: the mapping stays. Threads: any. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const _Atomic uint32_t *delay_us;

__attribute__((constructor)) static void disk_open(void) {
  const char *path = getenv("SLOW_DISK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *delay_us, PROT_READ, MAP_SHARED, fd, 0);
  delay_us = memory == MAP_FAILED ? NULL : memory;
  if (fd >= 0)
    close(fd);
}

static int sync_slowly(const char *name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += delay_us ? (long)*delay_us * 1000 : 0;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  int result = real(fd);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
    ;
  return result;
}

int fdatasync(int fd) { return sync_slowly("fdatasync", fd); }
int fsync(int fd) { return sync_slowly("fsync", fd); }
