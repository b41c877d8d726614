/* Confines a process that reads foreign code (a compiler, a disassembler) or will run it (a
 * worker): Landlock for files, seccomp for system calls. struct command and the worker set resource
 * limits.
 *
 * After sandbox_enter the process and all that it starts may read and execute below `readable`,
 * write below `writable`, and open nothing else. They cannot use sockets, ptrace, mounts, keyrings
 * or System V shared memory, nor get new namespaces or privileges. Files that are open stay open.
 * On a kernel without Landlock (before 5.13, or not enabled) files are not confined: sandbox_kind()
 * shows it, and a caller that requires more refuses to start.
 *
 * What is not confined: whether a path exists, its size and its mode (stat, chmod: no kernel's
 * Landlock sees them), and before Linux 6.12 signals to processes of the same user.
 *
 * With `is_alone` the process also cannot start processes, run another program, signal another
 * process, or change a file's mode, owner or times.
 *
 * Memory: a sandbox owns its rule set and filter. Threads: a sandbox is used by one thread at a
 * time; sandbox_enter is async-signal-safe, for use between fork and exec. */
#ifndef WAVETUNE_COMMON_PROGRAM_SANDBOX_H
#define WAVETUNE_COMMON_PROGRAM_SANDBOX_H

#include "common/base/error.h"

struct sandbox_rules {
  const char *const
      *readable; /* files and folders; NULL-terminated; those that do not exist are ignored */
  const char *const *writable; /* folders, readable too; NULL-terminated */
  const char *const *devices;  /* files and folders of devices, read, written and controlled;
                                  NULL-terminated; NULL: none */
  bool is_alone;
};

/* How much is confined; each level includes those before it. */
enum sandbox_level {
  SANDBOX_NONE,
  SANDBOX_SECCOMP,  /* system calls */
  SANDBOX_LANDLOCK, /* and files */
};

/* Names the highest level to use, for debugging and to measure what confining costs. */
#define SANDBOX_VARIABLE "WAVETUNE_SANDBOX"

struct sandbox;
must_check bool sandbox_new(const struct sandbox_rules *rules, struct sandbox **ret_sandbox,
                            struct error *error);
void sandbox_free(struct sandbox *sandbox);
DEFINE_CLEANUP(struct sandbox *, cleanup_sandbox_free, sandbox_free)
#define cleanup_sandbox cleanup_by(cleanup_sandbox_free)

/* In the child: 0, or the errno of the step that failed (the child must end then). */
must_check int sandbox_enter(const struct sandbox *sandbox);
/* The same in two steps, for a process that between them opens files and starts threads, which open
 * files too. The first step confines the calling thread and those that it starts later, the second
 * all threads. */
must_check int sandbox_enter_files(const struct sandbox *sandbox);
must_check int sandbox_enter_calls(const struct sandbox *sandbox);

/* The highest level that this kernel has and $WAVETUNE_SANDBOX permits. */
enum sandbox_level sandbox_level(void);
const char *sandbox_level_name(enum sandbox_level level); /* "none", "seccomp", "landlock" */
must_check bool sandbox_level_parse(const char *name, enum sandbox_level *ret_level);

/* Removes the capabilities of root from the calling thread and those that it starts. They can still
 * open files that root owns. */
void capabilities_drop(void);

/* Prevents other processes of the same user from attaching to this one, and from reading a token in
 * its environ, mem, maps and fd in /proc, which root owns then. Turns core dumps off, too. Children
 * are hidden until they run another program. $WAVETUNE_DUMPABLE=1 prevents all this, for
 * debuggers. */
void process_hide(void);

/* What sandboxes use here: "landlock 7, seccomp", "seccomp", "none". A static text. */
const char *sandbox_kind(void);
/* Whether sandboxes confine files here. */
bool sandbox_confines_files(void);

#endif
