/* One compiler: where it is, what it calls itself, and how its command line is made. A file for
 * each kind: cc.c (the system's C compiler), clang.c (HIP for AMD), rtc.c (HIP by a runtime
 * compiler's library: hiprtc, NVRTC).
 *
 * Memory: a compiler owns its texts. Threads: read-only after it was opened. */
#ifndef WAVETUNE_AGENT_COMPILE_COMPILER_H
#define WAVETUNE_AGENT_COMPILE_COMPILER_H

#include "agent/compile/job.h"

struct compiler {
  const struct compiler_kind *kind;
  char *path;     /* of the program or library, as it is called */
  char *identity; /* "gcc 12.2.0", "clang 19.1.7", "nvrtc 13.0": its name and version */
  /* What the object depends on beside what the job says: the files that compile, with sizes and
   * times, because packages are repaired under one version; for -march=native the CPU. */
  char *fingerprint;
  struct settings readable; /* what it needs of this machine; NULL-terminated for struct
                               sandbox_rules */
};

struct compiler_kind {
  const char *suffix;    /* of its objects: ".so", ".co" */
  const char *text_name; /* what the job's text is called in the scratch folder, where the compiler
                            runs */
  const char *object_name; /* what it writes there */
  const char *
      arch_refusal; /* what its log says when it does not know the arch; NULL: it is not told one */
  const char *const *flags; /* that every compile has; NULL-terminated; part of the digest */
  /* Adds the command that compiles the job's text; `compile_job_run` has the environment that all
   * compilers share. */
  void (*command_make)(const struct compiler *compiler, const struct compile_job *job,
                       struct settings *arguments, struct settings *environment);
};

must_check bool cc_open(struct compiler **ret_compiler, struct error *error);

/* clang 19 or later (17 or later of ROCm), with lld beside it. `path` NULL: looks for it. */
must_check bool clang_open(const char *path, struct compiler **ret_compiler, struct error *error);

/* hiprtc of ROCm 6 or later, or NVRTC. `path` NULL: looks for it. */
must_check bool hiprtc_open(const char *path, struct compiler **ret_compiler, struct error *error);
must_check bool nvrtc_open(const char *path, struct compiler **ret_compiler, struct error *error);

void compiler_free(struct compiler *compiler);
DEFINE_CLEANUP(struct compiler *, cleanup_compiler_free, compiler_free)
#define cleanup_compiler __attribute__((cleanup(cleanup_compiler_free)))

/* For the files of compilers. A compiler at `path`, which may be NULL still, with what every
 * compiler sees of the machine: the system's programs and libraries, ROCm and CUDA where they are
 * usually installed, and the folders of `path` and of $WAVETUNE_TOOLCHAIN (colon-separated). */
must_check struct compiler *compiler_new(const struct compiler_kind *kind, const char *path);
/* Lets it see more folders of the machine: absolute ones of a colon-separated list; NULL: none. */
void compiler_read_folders(struct compiler *compiler, const char *folders);
/* Adds to the fingerprint: a program with the libraries that it loads, for a compiler's program may
 * be a small one that does all in a library or in another program; the files that match a pattern;
 * any text. */
void compiler_depends_on_program(struct compiler *compiler, const char *path);
void compiler_depends_on_files(struct compiler *compiler, const char *pattern);
void compiler_depends_on(struct compiler *compiler, const char *text);
/* The macros that a C compiler predefines, as text. */
must_check bool compiler_macros(const char *path, const char *flag, char **ret_text,
                                struct error *error);
/* "clang 19.1.7" of such a text; NULL when it is neither gcc nor clang. Owned by the caller. */
must_check char *compiler_name_of(const char *macros, int *ret_major);
/* Where a compiler has a program that it runs ("cc1", "lld"); false when it does not know. Owned by
 * the caller. */
must_check bool compiler_program(const char *path, const char *program, char **ret_program,
                                 struct error *error);
/* Runs what only asks a compiler something, without a sandbox: its output; false too when it
 * failed. */
must_check bool compiler_ask(char *const *arguments, char *const *environment, char **ret_output,
                             struct error *error);

#endif
