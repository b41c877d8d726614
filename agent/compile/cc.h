/* The system C compiler: what one compile is (its text, flags and content digest), and running it.
 *
 * Memory: a cc_job owns everything and needs nothing of the request it was made from. Threads: cc_open first; then any,
 * one thread to a job. */
#ifndef WAVETUNE_AGENT_COMPILE_CC_H
#define WAVETUNE_AGENT_COMPILE_CC_H

#include "agent/compile/compile.h"
#include "agent/compile/launch_source.h"

#define CC_TIMEOUT_MS_DEFAULT 60000

struct cc {
  char *path;     /* of `cc` */
  char *identity; /* "gcc 12.2.0" */
};
must_check bool cc_open(struct cc *ret_cc, struct error *error);
void cc_release(struct cc *cc);

struct cc_job {
  struct digest digest; /* of everything that the object depends on */
  char *sources;        /* absolute */
  char *text;           /* what is compiled */
  struct settings defines, environment;
};
/* Decides what to compile. A definition that no source of the kernel mentions is left out, so that configs that differ
 * in nothing else share an object: the text of the sources is searched, which is sound unless names are pasted together
 * with ## (then every definition counts) or are reserved ones, which system headers read (these always count). */
must_check bool cc_job_prepare(const struct cc *cc, const struct compile_request *request, struct cc_job *ret_job,
                               struct error *error);
void cc_job_release(struct cc_job *job);

/* Compiles to `object` by way of a scratch folder beside it. */
struct compile_result cc_job_run(const struct cc *cc, const struct cc_job *job, const char *object, int64_t timeout_ms,
                                 int stop_fd);

#endif
