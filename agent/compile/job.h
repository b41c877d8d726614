/* What every compile shares, whichever compiler runs: deciding what is compiled and its digest,
 * then running it in a scratch folder and a sandbox, publishing the object, and saying why there is
 * none.
 *
 * Memory: a job owns everything but its compiler, which must outlive it, and needs nothing of the
 * request it was made from. Threads: any, one thread to a job. */
#ifndef WAVETUNE_AGENT_COMPILE_JOB_H
#define WAVETUNE_AGENT_COMPILE_JOB_H

#include "agent/compile/compile.h"
#include "agent/compile/launch_source.h"

#define COMPILE_TIMEOUT_MS_DEFAULT 60000
/* A sanitizer reserves terabytes of addresses in a runtime compiler's process, which is a program
 * of ours. */
#ifdef WAVETUNE_SANITIZED
#define COMPILE_MEMORY_MAX UINT64_MAX
#else
#define COMPILE_MEMORY_MAX ((uint64_t)4 << 30)
#endif
#define COMPILE_OBJECT_MAX ((uint64_t)64 << 20)

struct compiler;

struct compile_job {
  const struct compiler *compiler;
  struct digest digest;  /* of everything that the object depends on */
  char *sources;         /* absolute */
  struct settings files; /* paths of what is read in there: the kernel's sources, of a reference's
                            job the reference too */
  char *text;            /* what is compiled */
  char *arch;            /* "gfx942", "sm_90"; of GPU objects, NULL else */
  char *entry;           /* the kernel in a GPU object, NULL else */
  struct settings defines, environment;
};

/* Decides what to compile. A definition that no source of the kernel mentions is left out, so that
 * configs that differ in nothing else share an object: the text of the sources is searched, which
 * is sound unless names are pasted together with ## (then every definition counts) or are reserved
 * ones, which system headers read (these always count). ERROR_UNAVAILABLE: the sources cannot be
 * read. */
must_check bool compile_job_prepare(const struct compiler *compiler,
                                    const struct compile_request *request,
                                    struct compile_job *ret_job, struct error *error);
void compile_job_release(struct compile_job *job);

/* Compiles to `object` by way of a scratch folder: beside it, or where the compiler is another user
 * (`custody`, which may be NULL) in a temporary one of that user's with copies of the sources, for
 * it sees nothing of the agent's folders. */
struct compile_result compile_job_run(const struct compile_job *job, const char *object,
                                      const struct custody *custody, int64_t timeout_ms,
                                      int stop_fd);

/* The result of an object that was compiled before: false when it is not there or is not what it
 * should be. */
must_check bool compile_job_find(const struct compile_job *job, const char *object,
                                 struct compile_result *ret_result);

#endif
