/* Records which functions a program runs. It is linked into programs that are built with
 * -finstrument-functions (bench/walks.py), and notes each function once for each thread while
 * WALK_FOLDER/control is on.
 *
 * A program's notes are in WALK_FOLDER/PROGRAM.PID, a table of pairs: the id of a thread, and the
 * function's offset from the program's load address. Forked children share their parent's. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLOTS 65536
#define UNTRACED __attribute__((no_instrument_function))

struct note {
  _Atomic uint64_t pair; /* thread << 32 | offset; 0: none */
};

static const _Atomic uint32_t *is_on;
static struct note *notes;
static uintptr_t base;

static UNTRACED int base_find(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size, (void)context;
  base = info->dlpi_addr;
  return 1; /* the program is the first */
}

static UNTRACED void *map(const char *path, size_t size, int may_write) {
  int fd = open(path, may_write ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0600);
  if (fd < 0 || (may_write && ftruncate(fd, (off_t)size) != 0))
    return NULL;
  void *at = mmap(NULL, size, may_write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return at == MAP_FAILED ? NULL : at;
}

static UNTRACED __attribute__((constructor)) void begin(void) {
  char path[512];
  dl_iterate_phdr(base_find, NULL);
  is_on = map(WALK_FOLDER "/control", sizeof *is_on, 0);
  snprintf(path, sizeof path, WALK_FOLDER "/%s.%d", program_invocation_short_name, (int)getpid());
  notes = is_on ? map(path, SLOTS * sizeof *notes, 1) : NULL;
}

UNTRACED void __cyg_profile_func_enter(void *function, void *caller);
UNTRACED void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller) {
  (void)caller;
  if (!notes || !atomic_load_explicit(is_on, memory_order_relaxed))
    return;
  uint64_t pair = (uint64_t)syscall(SYS_gettid) << 32 | (uint32_t)((uintptr_t)function - base);
  uint64_t slot = pair * 0x9e3779b97f4a7c15u >> 48;
  for (int i = 0; i < SLOTS; i++, slot = (slot + 1) % SLOTS) {
    uint64_t there = atomic_load(&notes[slot].pair);
    if (there == pair ||
        (there == 0 && atomic_compare_exchange_strong(&notes[slot].pair, &there, pair)) ||
        there == pair)
      return;
  }
}

void __cyg_profile_func_exit(void *function, void *caller) { (void)function, (void)caller; }
