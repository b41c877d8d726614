/* Shared by the files of a worker; agent/worker/worker.h specifies its requests and answers.
 *
 * Memory: a worker owns its device from the first request that names one, and what "open" made
 * until the next "open" or "close". Threads: one. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_PROCESS_H
#define WAVETUNE_AGENT_WORKER_WORKER_PROCESS_H

#include "agent/measure/race.h"
#include "agent/worker/worker.h"
#include "agent/worker/worker_bundle.h"
#include "common/program/sandbox.h"
#include "common/record/record.h"

struct worker {
  struct worker_status *status;
  char *line; /* of WORKER_LINE_MAX bytes; `line_used` are filled, `line_end` of them are read */
  size_t line_used, line_end;
  int fds[WORKER_REQUEST_FDS]; /* that came with the request */
  size_t n_fds;
  json_t *bundle;   /* of the request, borrowed; NULL: none */
  bool is_confined; /* access to files is confined */
  struct sandbox
      *sandbox;          /* not NULL: system calls are not confined yet, see worker_confine_calls */
  struct device *device; /* NULL: no request named one yet */
  char *device_name;
  bool is_trusted;         /* it passed its sentinel, and nothing has failed on it since */
  json_t *settings;        /* names of the machine's settings that are not as they should be */
  int64_t settings_ns;     /* when they were checked */
  struct problem *problem; /* NULL: nothing is open; else all of these are set */
  struct kernel *kernel;   /* a captured one with its case */
  size_t n_blobs;          /* of the case: what its buffers are filled with */
  char *blobs[KERNEL_ARGUMENTS_MAX];
  struct expected *expected; /* NULL: the build has no values of Triton's interpreter */
  struct key key;
  struct space *space;
  uint64_t seed;
  struct timed_config baseline;
  struct bundle_places opened, measured; /* objects of "open" and of "measure" */
};

/* worker.c */
void worker_status_set(struct worker *worker, enum worker_phase phase, uint64_t config);
/* Begins a turn of timing. Each turn has a new time limit, also when the next turn is of the same
 * config. */
void worker_turn_take(struct worker *worker, uint64_t config);
/* Writes a line and takes the message; false when the supervisor is gone. */
bool worker_answer(json_t *message);
bool worker_answer_error(const struct error *error);
/* Exits at once because the device does not work: its runtime may hang when it is closed. The page
 * names the config that ran last, unless the device failed before that config was launched. */
no_return void worker_leave(struct worker *worker);

/* A config of a request. */
struct requested_config {
  int64_t config; /* ordinal */
  char *object;   /* the path where the supervisor has it */
  struct launch_spec launch;
};
extern const struct record requested_config_record;

/* Replaces the path of an object, unless it is NULL, by one that this process can read. */
must_check bool worker_object_place(struct worker *worker, struct bundle_places *places,
                                    char **object, struct error *error);
/* Replaces the path of a config's object; `pointer` is where the config is in the request. Also
 * sets the defaults of an absent launch. */
must_check bool worker_config_prepare(struct worker *worker, struct bundle_places *places,
                                      const char *pointer, struct requested_config *config,
                                      struct error *error);

/* The functions that answer requests: false when the supervisor is gone. */

/* worker_open.c */
bool worker_answer_sentinel(struct worker *worker, const json_t *json);
bool worker_answer_open(struct worker *worker, const json_t *json);
bool worker_answer_close(struct worker *worker, const json_t *json);
/* Does not return before the reference's socket is closed. */
bool worker_answer_reference(struct worker *worker, const json_t *json);
void worker_release(struct worker *worker);
/* Load, and check, a config; timed->loaded is set once it is loaded, also when it is wrong. */
enum outcome worker_load(struct worker *worker, const struct requested_config *config,
                         struct timed_config *timed, struct error *error);
enum outcome worker_check(struct worker *worker, struct timed_config *timed, struct error *error);

/* worker_measure.c */
bool worker_answer_measure(struct worker *worker, const json_t *json);

/* worker_sandbox.c: a worker is confined before it loads the first untrusted byte.
 *
 * On the CPU untrusted code runs in this process: it is confined before its device is opened,
 * and sees the system's libraries and what describes the machine (/sys, parts of /proc), nothing
 * else. On a GPU the driver reads an untrusted object: the files of the runtime and the device
 * nodes stay open, because it loads parts of itself late; system calls are confined when the device
 * has been opened and has passed its sentinel, for every thread of the runtime. In both cases: no
 * sockets, no other programs, no processes, no signals to others, no session of its own. The folder
 * that $WAVETUNE_WORKER_WRITES names stays writable, for profilers and debug agents. */
#define WORKER_WRITES "WAVETUNE_WORKER_WRITES"
/* Before a device is opened; `is_host`: kernels for it run in this process. */
must_check bool worker_confine_files(bool is_host, struct sandbox **ret_sandbox,
                                     struct error *error);
/* After it passed its sentinel. Takes the sandbox. */
must_check bool worker_confine_calls(struct sandbox *sandbox, struct error *error);

#endif
