/* One compile: deciding what is compiled and its digest, then running the compiler in a scratch
 * folder and a sandbox, publishing the object, and explaining failures.
 *
 * Memory: a job owns everything but its compiler, which must outlive it, and needs nothing of the
 * request it was made from. Threads: any, one thread to a job. */
#ifndef WAVETUNE_AGENT_COMPILE_JOB_H
#define WAVETUNE_AGENT_COMPILE_JOB_H

#include "agent/compile/compile.h"
#include "agent/compile/launch_source.h"

#define COMPILE_TIMEOUT_MS_DEFAULT 60000
/* A sanitizer reserves terabytes of addresses in a runtime compiler's process, which is this
 * program. */
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
  char *sources;         /* absolute path of their folder */
  struct settings files; /* paths in it that the compiler may read: the kernel's sources, and for a
                            reference's job the reference */
  char *text;            /* what is compiled */
  char *arch;            /* of a GPU object: "gfx942", "sm_90"; else NULL */
  char *entry;           /* of a GPU object: the kernel; else NULL */
  struct settings defines, environment;
};

/* Decides what to compile. A definition that no source of the kernel mentions is left out, so that
 * configs that differ in nothing else share an object. The text of the sources is searched, which
 * is sound except where names are pasted together with ## (then every definition counts) or
 * reserved (system headers read those: they always count). ERROR_UNAVAILABLE: the sources cannot be
 * read. */
must_check bool compile_job_prepare(const struct compiler *compiler,
                                    const struct compile_request *request,
                                    struct compile_job *ret_job, struct error *error);
void compile_job_release(struct compile_job *job);

/* The file name of the job's object. Owned by the caller. */
must_check char *compile_job_object_name(const struct compile_job *job);

/* The terms on which a compiler runs. */
struct compile_bounds {
  const struct custody *custody; /* NULL: as this program's user */
  int64_t timeout_ms;
  int stop_fd; /* the compiler is killed when this becomes readable */
};

/* Compiles to `object` in a scratch folder: beside the object, or, if the compiler runs as another
 * user, a temporary folder of that user with copies of the sources, because that user cannot read
 * the agent's folders. */
struct compile_result compile_job_run(const struct compile_job *job, const char *object,
                                      const struct compile_bounds *bounds);

/* The result of an object that was compiled before. False when it is absent or was changed. */
must_check bool compile_job_find(const struct compile_job *job, const char *object,
                                 struct compile_result *ret_result);

#endif
