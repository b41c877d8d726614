/* Compiles with the system C compiler, reproducibly: equal content gives equal bytes.
 *
 * Memory: see cc.h. Threads: any. */
#include "agent/compile/cc.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/command.h"
#include "common/file.h"

#define SCANNED_SOURCE_MAX ((size_t)4 << 20)
#define OUTPUT_MAX ((size_t)64 << 10)
#define MEMORY_MAX ((uint64_t)4 << 30)
#define OBJECT_MAX ((uint64_t)64 << 20)
#define DETAIL_MAX 400
#define TEXT_NAME "wavetune.launch.c"

/* -fopenmp-simd makes `#pragma omp simd reduction(…)` count and needs no runtime. The rest after -shared makes the
 * object depend on nothing but its content, and unresolved names an error of the compile. */
static const char *const fixed_flags[] = {
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-fPIC",
    "-fopenmp-simd",
    "-w",
    "-shared",
    "-s",
    "-frandom-seed=wavetune",
    "-Wl,--build-id=none",
    "-Wl,-z,defs",
};

/* Runs the compiler on an empty file to learn the macros that name it: what `cc --version` prints has no fixed form. */
static bool identity_ask(const char *path, char **ret_identity, struct error *error) {
  char *const arguments[] = {(char *)(uintptr_t)path,
                             (char[]){"-dM"},
                             (char[]){"-E"},
                             (char[]){"-x"},
                             (char[]){"c"},
                             (char[]){"/dev/null"},
                             NULL};
  char *const environment[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin"}, (char[]){"LC_ALL=C"}, NULL};
  struct command command = {
      .arguments = arguments,
      .environment = environment,
      .timeout_ms = 10000,
      .cpu_seconds_max = 10,
      .memory_bytes_max = MEMORY_MAX,
      .file_bytes_max = OBJECT_MAX,
      .output_max = OUTPUT_MAX,
      .stop_fd = -1,
  };
  struct command_result result;
  if (!command_run(&command, &result, error))
    return false;
  cleanup_free char *output = result.output;
  static const char *const compilers[][4] = {
      {"clang", "#define __clang_major__ ", "#define __clang_minor__ ", "#define __clang_patchlevel__ "},
      {"gcc", "#define __GNUC__ ", "#define __GNUC_MINOR__ ", "#define __GNUC_PATCHLEVEL__ "},
  };
  for (size_t i = 0; result.succeeded && i < ARRAY_LENGTH(compilers); i++) {
    int version[3], found = 0;
    for (int k = 0; k < 3; k++) {
      const char *line = strstr(output, compilers[i][k + 1]);
      if (line && sscanf(line + strlen(compilers[i][k + 1]), "%d", &version[k]) == 1)
        found++;
    }
    if (found == 3) {
      *ret_identity = xasprintf("%s %d.%d.%d", compilers[i][0], version[0], version[1], version[2]);
      return true;
    }
  }
  return error_set(error, "%s does not say that it is gcc or clang; make `cc` one of them", path);
}

bool cc_open(struct cc *ret_cc, struct error *error) {
  struct cc cc = {0};
  if (!program_find("cc", &cc.path, error))
    return false;
  if (!identity_ask(cc.path, &cc.identity, error)) {
    cc_release(&cc);
    return false;
  }
  *ret_cc = cc;
  return true;
}

void cc_release(struct cc *cc) {
  free(cc->path);
  free(cc->identity);
}

bool compiler_identity(char **ret_identity, struct error *error) {
  struct cc cc;
  if (!cc_open(&cc, error))
    return false;
  *ret_identity = TAKE(cc.identity);
  cc_release(&cc);
  return true;
}

static bool mentions(const char *text, const char *name, size_t length) {
  for (const char *at = text; (at = memmem(at, strlen(at), name, length)); at++)
    if ((at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')) && !isalnum((unsigned char)at[length]) &&
        at[length] != '_')
      return true;
  return false;
}

/* Takes out the definitions that cannot change the object. */
static bool defines_reduce(const struct kernel *kernel, const char *sources, struct settings *defines,
                           struct error *error) {
  bool used[SPACE_PARAMETERS_MAX + 256] = {false};
  ALWAYS(defines->n <= ARRAY_LENGTH(used));
  for (size_t i = 0; i < kernel->n_sources; i++) {
    cleanup_free char *path = xasprintf("%s/%s", sources, kernel->sources[i].path);
    cleanup_free char *text = NULL;
    size_t size;
    if (!file_read(path, SCANNED_SOURCE_MAX, &text, &size, error))
      return false;
    if (strstr(text, "##") || strlen(text) != size)
      return true;
    for (size_t k = 0; k < defines->n; k++) {
      const char *name = defines->texts[k];
      size_t length = strcspn(name, "=");
      used[k] |= name[0] == '_' || string_starts(name, "NDEBUG=") || mentions(text, name, length);
    }
  }
  size_t kept = 0;
  for (size_t k = 0; k < defines->n; k++) {
    if (used[k])
      defines->texts[kept++] = defines->texts[k];
    else
      free(defines->texts[k]);
  }
  defines->n = kept;
  return true;
}

static void digest_text(struct digest_stream *stream, const char *text) {
  digest_stream_add(stream, text, strlen(text) + 1);
}

static struct digest job_digest(const struct cc *cc, const struct compile_request *request, const struct cc_job *job) {
  struct digest_stream *stream = digest_stream_new();
  digest_text(stream, cc->identity);
  digest_text(stream, cc->path);
  /* -march=native means this CPU. */
  digest_text(stream, request->gpu_name ? request->gpu_name : "");
  digest_text(stream, request->arch ? request->arch : "");
  for (size_t i = 0; i < ARRAY_LENGTH(fixed_flags); i++)
    digest_text(stream, fixed_flags[i]);
  digest_text(stream, job->text);
  digest_text(stream, "defines");
  for (size_t i = 0; i < job->defines.n; i++)
    digest_text(stream, job->defines.texts[i]);
  digest_text(stream, "environment");
  for (size_t i = 0; i < job->environment.n; i++)
    digest_text(stream, job->environment.texts[i]);
  digest_text(stream, "sources");
  for (size_t i = 0; i < request->kernel->n_sources; i++) {
    digest_text(stream, request->kernel->sources[i].path);
    digest_stream_add(stream, request->kernel->sources[i].digest.bytes, DIGEST_SIZE);
  }
  if (request->is_reference)
    digest_stream_add(stream, request->kernel->reference.digest.bytes, DIGEST_SIZE);
  return digest_stream_finish(stream);
}

bool cc_job_prepare(const struct cc *cc, const struct compile_request *request, struct cc_job *ret_job,
                    struct error *error) {
  const struct kernel *kernel = request->kernel;
  struct cc_job job = {0};
  if (request->is_reference && !kernel->reference.path)
    return error_set(error, "the kernel %s has no reference", kernel->name);
  if (!request->is_reference && kernel->language != LANGUAGE_C)
    return error_set(error, "this agent cannot compile the language %s; lease it to an agent with such a device",
                     language_name(kernel->language));
  job.sources = realpath(request->sources, NULL);
  if (!job.sources)
    return error_set(error, "cannot find the kernel's sources in %s: %s", request->sources, strerror(errno));
  job.text = request->is_reference ? reference_source(kernel) : launch_source(kernel);
  if (!request->is_reference && (!settings_of_config(request, &job.defines, &job.environment, error) ||
                                 !defines_reduce(kernel, job.sources, &job.defines, error))) {
    cc_job_release(&job);
    return false;
  }
  job.digest = job_digest(cc, request, &job);
  *ret_job = job;
  return true;
}

void cc_job_release(struct cc_job *job) {
  free(job->sources);
  free(job->text);
  settings_release(&job->defines);
  settings_release(&job->environment);
  *job = (struct cc_job){0};
}

/* The first line that tells of an error, else the first line, without the folder's name and in plain ASCII. */
static char *detail_of(const char *output, const char *sources) {
  const char *best = NULL;
  for (const char *line = output; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    size_t length = strcspn(line, "\n");
    if (!best && length)
      best = line;
    if (memmem(line, length, "error:", 6) || memmem(line, length, "undefined reference", 19)) {
      best = line;
      break;
    }
  }
  if (!best)
    return NULL;
  size_t prefix = strlen(sources);
  if (strncmp(best, sources, prefix) == 0 && best[prefix] == '/')
    best += prefix + 1;
  size_t length = strcspn(best, "\n");
  char *detail = xstrndup(best, length < DETAIL_MAX ? length : DETAIL_MAX);
  for (char *c = detail; *c; c++)
    if (*c < 0x20 || *c > 0x7e)
      *c = ' ';
  return detail;
}

static void fail(struct compile_result *result, char *detail) {
  result->ok = false;
  free(result->detail);
  result->detail = detail;
}

static void fail_to_run(struct compile_result *result, char *detail) {
  fail(result, detail);
  result->could_not_run = true;
}

/* What compilers and linkers say when it is the machine's fault. */
static bool is_of_the_machine(const char *output) {
  static const int reasons[] = {ENOSPC, EDQUOT, EIO, EROFS, EMFILE, ENFILE};
  for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++) {
    if (strstr(output, strerrordesc_np(reasons[i])))
      return true;
  }
  return false;
}

static char *status_detail(const struct command_result *result, int64_t timeout_ms) {
  if (result->timed_out)
    return xasprintf("the compiler did not end within %lld ms", (long long)timeout_ms);
  if (result->stopped)
    return xstrdup("the agent stopped while it was compiled");
  if (WIFSIGNALED(result->status))
    return xasprintf("the compiler was ended by signal %d (%s)", WTERMSIG(result->status),
                     strsignal(WTERMSIG(result->status)));
  return xasprintf("the compiler exited with status %d and said nothing", WEXITSTATUS(result->status));
}

/* Syncs what the compiler wrote before it gets its name, so that a name in the cache always is a whole object. */
static bool object_publish(const char *from, const char *object, struct error *error) {
  cleanup_fd int fd = open(from, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) < 0 || rename(from, object) < 0)
    return error_set(error, "cannot put the object into the cache as %s: %s", object, strerror(errno));
  return true;
}

static void compile_in(const struct cc *cc, const struct cc_job *job, const char *scratch, const char *object,
                       int64_t timeout_ms, int stop_fd, struct compile_result *result) {
  struct error error;
  cleanup_free char *text_path = xasprintf("%s/" TEXT_NAME, scratch);
  cleanup_free char *object_path = xasprintf("%s/object.so", scratch);
  if (!file_write_atomically(text_path, job->text, strlen(job->text), 0600, &error)) {
    fail_to_run(result, xstrdup(error.message));
    return;
  }
  cleanup_settings struct settings arguments = {0}, environment = {0};
  settings_add(&arguments, xstrdup(cc->path));
  for (size_t i = 0; i < ARRAY_LENGTH(fixed_flags); i++)
    settings_add(&arguments, xstrdup(fixed_flags[i]));
  settings_add(&arguments, xasprintf("-ffile-prefix-map=%s=.", job->sources));
  settings_add(&arguments, xstrdup("-iquote"));
  settings_add(&arguments, xstrdup(job->sources));
  for (size_t i = 0; i < job->defines.n; i++)
    settings_add(&arguments, xasprintf("-D%s", job->defines.texts[i]));
  const char *const last[] = {"-o", "object.so", TEXT_NAME, "-lm"};
  for (size_t i = 0; i < ARRAY_LENGTH(last); i++)
    settings_add(&arguments, xstrdup(last[i]));
  settings_add(&arguments, NULL);
  /* The config's come first: of two settings of one name getenv finds the first. */
  for (size_t i = 0; i < job->environment.n; i++)
    settings_add(&environment, xstrdup(job->environment.texts[i]));
  settings_add(&environment, xstrdup("PATH=/usr/local/bin:/usr/bin:/bin"));
  settings_add(&environment, xstrdup("LC_ALL=C"));
  settings_add(&environment, xstrdup("SOURCE_DATE_EPOCH=0"));
  settings_add(&environment, xasprintf("TMPDIR=%s", scratch));
  settings_add(&environment, NULL);
  struct command command = {
      .arguments = arguments.texts,
      .environment = environment.texts,
      .folder = scratch,
      .timeout_ms = timeout_ms,
      .cpu_seconds_max = (uint64_t)timeout_ms / 1000 + 1,
      .memory_bytes_max = MEMORY_MAX,
      .file_bytes_max = OBJECT_MAX,
      .output_max = OUTPUT_MAX,
      .stop_fd = stop_fd,
  };
  struct command_result ran;
  int64_t start = clock_monotonic_ms();
  if (!command_run(&command, &ran, &error)) {
    fail_to_run(result, xstrdup(error.message));
    return;
  }
  cleanup_free char *output = ran.output;
  /* At least 1: 0 says that nothing had to be compiled. */
  result->compile_ms = clock_monotonic_ms() - start + 1;
  result->timed_out = ran.timed_out;
  if (!ran.succeeded) {
    char *detail = ran.timed_out || ran.stopped ? NULL : detail_of(output, job->sources);
    fail(result, detail ? detail : status_detail(&ran, timeout_ms));
    result->could_not_run = ran.stopped || is_of_the_machine(output);
  } else if (!object_publish(object_path, object, &error)) {
    fail_to_run(result, xstrdup(error.message));
  }
}

struct compile_result cc_job_run(const struct cc *cc, const struct cc_job *job, const char *object, int64_t timeout_ms,
                                 int stop_fd) {
  struct compile_result result = {.ok = true};
  struct error error;
  char suffix[17];
  random_hex(suffix, 8);
  cleanup_free char *scratch = xasprintf("%s.%s.scratch", object, suffix);
  if (mkdir(scratch, 0700) < 0) {
    fail_to_run(&result, xasprintf("cannot make the folder %s: %s", scratch, strerror(errno)));
    return result;
  }
  compile_in(cc, job, scratch, object, timeout_ms, stop_fd, &result);
  if (!folder_remove(scratch, &error))
    fail_to_run(&result, xstrdup(error.message));
  if (result.ok)
    result.object = xstrdup(object);
  return result;
}
