/* What the files of a worker share; what it says is specified in agent/worker/worker.h.
 *
 * Memory: a worker owns its device from the first request that names one, and what "open" made
 * until the next "open" or "close". Threads: one. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_PROCESS_H
#define WAVETUNE_AGENT_WORKER_WORKER_PROCESS_H

#include "agent/measure/race.h"
#include "agent/worker/worker.h"
#include "agent/worker/worker_bundle.h"
#include "common/program/sandbox.h"

struct worker {
  struct worker_status *status;
  char *line; /* WORKER_LINE_MAX bytes, the next of which are unread */
  size_t line_used, line_end;
  int fds[WORKER_REQUEST_FDS]; /* that came with the request */
  size_t n_fds;
  bool is_confined; /* files, and with the first device that passes its sentinel, system calls */
  struct sandbox *sandbox; /* entered half; NULL: not at all or whole */
  struct device *device;   /* NULL: none was named yet */
  char *device_name;
  bool is_trusted;         /* it passed its sentinel, and nothing failed on it since */
  json_t *settings;        /* names of the machine's that differ from what they should be */
  int64_t settings_ns;     /* when they were looked at */
  struct problem *problem; /* NULL: nothing is open; with it all of these */
  struct kernel *kernel;
  struct key key;
  struct space *space;
  uint64_t seed;
  struct timed baseline;
  struct bundle_places opened, measured; /* objects of "open" and of "measure" */
};

/* worker.c */
void worker_status_set(struct worker *worker, enum worker_phase phase, uint64_t config);
/* Each turn has a time limit of its own, so it shows also when the same config has the next. */
void worker_turn_take(struct worker *worker, uint64_t config);
/* Writes a line and takes its object over; false when nobody reads any more. */
bool worker_answer(json_t *message);
bool worker_answer_error(const struct error *error);
/* Ends the process of a device that is out of order, at once: its runtime may hang when it is
 * closed. The page names who ran last, but not who only found the device lost. */
no_return void worker_leave(struct worker *worker);

/* worker_requests.c */
struct requested_config {
  uint64_t config;
  char *object; /* where it can be read */
  struct launch_spec launch;
};

struct open_request {
  const char *device, *regime;
  char *instruction_flush, *fingerprint; /* where objects can be read; NULL where there is none */
  bool has_reference;                    /* its socket is the last of the worker's descriptors */
  json_t *kernel, *key, *space;
  int64_t seed;
  struct requested_config baseline;
};
must_check bool open_request_read(struct worker *worker, const json_t *json,
                                  struct open_request *request, struct error *error);
void open_request_release(struct open_request *request);

struct measure_request {
  struct race_limits limits;
  size_t n;
  struct requested_config *configs;
};
must_check bool measure_request_read(struct worker *worker, const json_t *json,
                                     struct measure_request *request, struct error *error);
void measure_request_release(struct measure_request *request);

/* worker_open.c. The answers: false when nobody reads any more. */
bool worker_answer_sentinel(struct worker *worker, const json_t *json);
bool worker_answer_open(struct worker *worker, const json_t *json);
bool worker_answer_close(struct worker *worker, const json_t *json);
void worker_release(struct worker *worker);
/* Loads and checks a config; what is loaded is timed->candidate, also when it is wrong. */
enum outcome worker_load(struct worker *worker, const struct requested_config *config,
                         struct timed *timed, struct error *error);
enum outcome worker_check(struct worker *worker, struct timed *timed, struct error *error);

/* worker_reference.c: does not return before nobody asks the reference any more. */
bool worker_answer_reference(struct worker *worker, const json_t *json);

/* worker_measure.c */
bool worker_answer_measure(struct worker *worker, const json_t *json);

#endif
