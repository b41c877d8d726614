/* Runs one command to its end, without a shell, with limits of time, memory, files and output. Its
 * whole process group is killed when the command ends, when it is stopped, and when this process
 * dies for any reason.
 *
 * Memory: the result's output is the caller's. Threads: any; the child is killed when the calling
 * thread ends. */
#ifndef WAVETUNE_COMMON_PROGRAM_COMMAND_H
#define WAVETUNE_COMMON_PROGRAM_COMMAND_H

#include "common/program/custody.h"
#include "common/program/sandbox.h"

struct command {
  char *const *arguments;   /* arguments[0] is the program's path; NULL-terminated */
  char *const *environment; /* the complete environment; NULL-terminated */
  const char *folder;       /* its working directory; NULL: this program's */
  int64_t timeout_ms;
  uint64_t cpu_seconds_max, memory_bytes_max, file_bytes_max;
  size_t output_max;             /* bytes of its output; more is read and dropped */
  const struct sandbox *sandbox; /* entered before the program starts; NULL: none */
  const struct custody *custody; /* its user and cgroup; NULL: this program's */
  int stop_fd;                   /* the command is killed when this becomes readable; -1: none */
};

struct command_result {
  bool succeeded; /* exited with 0 in time */
  bool timed_out, stopped;
  int status;   /* as waitpid gives it */
  char *output; /* stdout and stderr, NUL-terminated */
};

/* False only when the command could not be started. */
must_check bool command_run(const struct command *command, struct command_result *ret_result,
                            struct error *error);

/* The path of `program` in $PATH (or in /usr/bin and /bin where that is not set); owned by the
 * caller. */
must_check bool program_find(const char *program, char **ret_path, struct error *error);

#endif
