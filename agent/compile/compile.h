/* The compile pool: turns (kernel, key, config) into objects on disk, ahead of the measurement, in
 * bounded processes.
 *
 * A kernel in c, and every reference, is compiled by the system's C compiler. A kernel in hip is
 * compiled for gfx… by the compiler that $WAVETUNE_HIP_COMPILER names ("hiprtc", or the path of a
 * clang or of hiprtc's library), else by hiprtc of ROCm 6 or later where that is installed, else by
 * clang 19 to 22, else by ROCm's clang; for sm_… by NVRTC. The runtime compilers are libraries;
 * each compile loads one in a process of its own (`wavetune-agent rtc`), so that they are confined
 * and killed like any other compiler. The prelude precedes a source in hip (prelude.hip documents
 * what it may use), and a declaration of its entry with the types of the manifest's arguments
 * follows: a source that disagrees does not compile.
 *
 * An object is cached under the digest of what it was made of: sources, defines, flags, compiler
 * and its version. Beside it is the digest of its own bytes; if they differ, it is compiled again.
 * Compilers are child processes with limits on time, memory and output, in a scratch folder of
 * their own and a sandbox: they see the kernel's sources and the toolchain, and neither the network
 * nor other files. A compile that fails is an outcome and not an error; its reason is the first
 * line of the log that reports an error.
 *
 * Memory: the pool copies what it needs of a request; results are the caller's. Threads: submit and
 * wait from any. */
#ifndef WAVETUNE_AGENT_COMPILE_COMPILE_H
#define WAVETUNE_AGENT_COMPILE_COMPILE_H

#include "common/base/base.h"
#include "common/code/code_object.h"
#include "common/kernel/kernel.h"
#include "common/program/custody.h"

struct compile_pool;

/* `cache` is a private folder for objects, which is pruned now and as it grows;
 * at most `processes` compilers run at once (0: one for each CPU). */
must_check bool compile_pool_new(const char *cache, unsigned processes,
                                 struct compile_pool **ret_pool, struct error *error);
/* Sets the user and cgroup of compilers, before the first compile. Borrowed. */
void compile_pool_set_custody(struct compile_pool *pool, const struct custody *custody);
void compile_pool_free(struct compile_pool *pool); /* ends running compilers */
/* For tests, which cannot wait for the defaults: a compile's time (60,000 ms), the bytes of all
 * objects (4 GiB). */
void compile_pool_set_timeout(struct compile_pool *pool, int64_t timeout_ms);
void compile_pool_set_cache_bytes(struct compile_pool *pool, uint64_t bytes_max);

struct compile_request {
  const struct kernel *kernel;
  const struct key *key;
  const struct space *space;
  uint64_t config;             /* ordinal; of a reference: the baseline's */
  bool is_reference;           /* compile the kernel's reference instead */
  const char *sources;         /* folder that holds the manifest's source paths */
  const char *gpu_name, *arch; /* of the device: "gfx942", "sm_90"; "x86_64" */
};

/* Queues a compile and returns its ticket; requests of equal content are compiled once. */
uint64_t compile_pool_submit(struct compile_pool *pool, const struct compile_request *request);

struct compile_result {
  bool ok;
  /* !ok only: ERROR_INVALID with the compiler's first error; ERROR_DEADLINE: the compiler did not
   * end in time; ERROR_UNAVAILABLE: the failure is not the source's (no compiler, no room on the
   * disk, the agent ends). */
  struct error error;
  char *object; /* path of the object, ok only */
  struct digest
      digest;         /* of its bytes when it was compiled, ok only; checked before it is loaded */
  int64_t compile_ms; /* 0 when it was cached */
  struct code_resources resources; /* of the kernel's entry, GPU objects only; unknown else */
};

/* Whether a ticket's compile has ended; waits at most timeout_ms for it. */
bool compile_pool_is_done(struct compile_pool *pool, uint64_t ticket, int64_t timeout_ms);

/* Gives a ticket back. A compile without tickets that has not begun does not begin. */
void compile_pool_drop(struct compile_pool *pool, uint64_t ticket);

/* Waits for a ticket's result and gives the ticket back. Each ticket is given back once. */
struct compile_result compile_pool_wait(struct compile_pool *pool, uint64_t ticket);
void compile_result_release(struct compile_result *result);

/* "gcc 12.2.0": the system C compiler's name and version, for the cpu back end's environment. Owned
 * by the caller. */
must_check bool compiler_identity(char **ret_identity, struct error *error);

/* The folder of compiled objects: the least recently used ones are removed when it grows too large.
 *
 * Memory: none kept. Threads: any; several processes may share a folder. */
#define OBJECTS_BYTES_MAX ((uint64_t)4 << 30)
#define OBJECTS_RECENT_S 3600

/* The suffix of the file beside an object that has the digest of the object's bytes. Both are
 * removed together. */
#define OBJECT_DIGEST_SUFFIX ".sha256"

/* Records that an object is used now. */
void object_touch(const char *object);

/* Removes objects until the rest has at most bytes_max bytes, and the scratch folders of compiles
 * that were killed. An object that was used within recent_s seconds is always kept: another process
 * may be using it. */
void objects_prune(const char *folder, uint64_t bytes_max, int64_t recent_s);

/* `wavetune-agent rtc`: one process that loads a runtime compiler's library, queries or uses it
 * once, and ends. The library is another vendor's code that reads untrusted text: if it crashes,
 * hangs or is taken over, only this confined process is affected.
 *
 *   rtc find SYMBOLS LIBRARY…  prints the path of the first library that loads, and its identity
 *   rtc compile SYMBOLS LIBRARY SOURCES TEXT OBJECT FILE… -- OPTION…
 * The names of the library's functions begin with SYMBOLS: "hiprtc" or "nvrtc". The text may
 * include the files of the folder SOURCES under their names there. Messages go to stderr, for the
 * log of the compile.
 *
 * Memory: freed when the process ends. Threads: one; it is a program's main function. */

/* Exit status of a failure of this machine, not of the source. */
#define RTC_EXIT_MACHINE 75

no_return void rtc_main(int argc, char **argv);

#endif
