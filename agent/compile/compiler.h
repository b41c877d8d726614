/* The compilers of this machine: the system's C compiler, clang (HIP for AMD), and the runtime
 * compilers' libraries (hiprtc: HIP for AMD; NVRTC: HIP for NVIDIA). Each is searched for when it
 * is first needed.
 *
 * Memory: a compiler owns its texts, struct compilers its compilers. Threads: a compiler is
 * read-only after it was opened; compilers_find from any thread. */
#ifndef WAVETUNE_AGENT_COMPILE_COMPILER_H
#define WAVETUNE_AGENT_COMPILE_COMPILER_H

#include "agent/compile/job.h"

struct compiler_kind {
  const char *text_name;    /* of the job's text in the scratch folder, where the compiler runs */
  const char *object_name;  /* of what it writes there */
  const char *rtc_symbols;  /* of a library: how the names of its functions begin; NULL: it
                               is a program */
  const char *arch_option;  /* NULL: it compiles for this machine */
  const char *arch_refusal; /* what its log has when it does not know the arch */
  const char *const *flags; /* of every compile; NULL-terminated; part of the digest */
};

struct compiler {
  const struct compiler_kind *kind;
  char *path;     /* of the program or library */
  char *identity; /* name and version: "gcc 12.2.0", "clang 19.1.7", "nvrtc 13.0" */
  /* Facts beside the job that the object depends on: the compiler's files with sizes and times,
   * because a package may be repaired without a new version; for -march=native the CPU. */
  char *fingerprint;
  struct settings readable; /* paths that it may read, for struct sandbox_rules */
};

must_check bool cc_open(struct compiler **ret_compiler, struct error *error);

/* clang 19 or later (17 or later of ROCm), with lld beside it. `path` NULL: searches for it. */
must_check bool clang_open(const char *path, struct compiler **ret_compiler, struct error *error);

/* hiprtc of ROCm 6 or later, or NVRTC. `path` NULL: searches for it. */
must_check bool hiprtc_open(const char *path, struct compiler **ret_compiler, struct error *error);
must_check bool nvrtc_open(const char *path, struct compiler **ret_compiler, struct error *error);

/* Adds the NVRTC libraries among the Python packages that `program` was installed with, newest
 * first: those of …/nvidia/ for …/wavetune/bin/wavetune-agent. */
void nvrtc_packages_add(const char *program, struct settings *libraries);

void compiler_free(struct compiler *compiler);
DEFINE_CLEANUP(struct compiler *, cleanup_compiler_free, compiler_free)
#define cleanup_compiler __attribute__((cleanup(cleanup_compiler_free)))

/* Adds the command that compiles the job's text, with the sources in the folder `sources`, and the
 * variables that this compiler needs beside those of every compile. */
void compiler_command(const struct compiler *compiler, const struct compile_job *job,
                      const char *sources, struct settings *arguments,
                      struct settings *environment);

struct compilers;

/* False without a C compiler, which references need for kernels in any language. */
must_check bool compilers_new(struct compilers **ret_compilers, struct error *error);
void compilers_free(struct compilers *compilers);

/* The compiler of a request. False when this machine has none: the error states what to install. A
 * compiler that was not found is not searched for again. */
must_check bool compilers_find(struct compilers *compilers, const struct compile_request *request,
                               const struct compiler **ret_compiler, struct error *error);

#endif
