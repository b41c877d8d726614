/* Reads in logs of vLLM, SGLang and AITER which tables of configs they did not find.
 *
 * A miss is {"table", "file", "device", "members", "misses"}: the kind of table, as in "exports"
 * ("vllm-moe", "vllm-w8a8", "vllm-ssm", "vllm-lora", "vllm-lora-moe", "vllm-flydsl", "sglang-moe",
 * "sglang-w8a8"; no exports have "aiter-csv"), the name of the file, the device in it, what else is
 * in it, and how many lines state it. SGLang's have "triton", the version whose folder has no such
 * file, and "fallback", the version whose table is read in its place. A block shape is the text
 * "[128,128]".
 *
 * Any bytes may be in a log: a line is read up to LOG_LINE_MAX bytes, at most LOG_MISSES_MAX
 * different misses are kept, and what goes into JSON is printable ASCII.
 *
 * Memory: a log owns its misses. Threads: one. */
#ifndef WAVETUNE_CLI_DEMAND_LOG_H
#define WAVETUNE_CLI_DEMAND_LOG_H

#include "common/base/json.h"

#define LOG_LINE_MAX 16384
#define LOG_MISSES_MAX 10000

struct demand_log {
  json_t *misses;  /* in the order of their first lines */
  json_t *places;  /* identity of a miss: its index */
  size_t n_unread; /* lines that state a miss whose file's name is not understood */
  size_t n_left;   /* misses beyond LOG_MISSES_MAX */
}; /* starts as demand_log_new makes it */

struct demand_log demand_log_new(void);
void demand_log_release(struct demand_log *log);
#define cleanup_demand_log cleanup_by(demand_log_release)

/* Reads one line, without its end. */
void demand_log_line(struct demand_log *log, const char *line, size_t size);

/* Reads a file to its end; `name` is for errors. */
must_check bool demand_log_read(struct demand_log *log, int fd, const char *name,
                                struct error *error);

#endif
