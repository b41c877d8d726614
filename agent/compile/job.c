/* One compile, reproducibly: equal content gives equal bytes. Memory and threads: see job.h. */
#include "agent/compile/job.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/compile/compiler.h"
#include "agent/compile/objects.h"
#include "agent/compile/rtc.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/program/command.h"

#define SCANNED_SOURCE_MAX ((size_t)4 << 20)
#define COPIED_SOURCE_MAX ((size_t)64 << 20) /* as large as a file that a server keeps */
#define OUTPUT_MAX ((size_t)64 << 10)
#define DETAIL_MAX 400

static bool mentions(const char *text, const char *name, size_t length) {
  for (const char *at = text; (at = memmem(at, strlen(at), name, length)); at++)
    if ((at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')) &&
        !isalnum((unsigned char)at[length]) && at[length] != '_')
      return true;
  return false;
}

/* What a definition stands for may be the name of another, which counts then too. */
static void used_spread(const struct settings *defines, bool *used) {
  for (bool spreads = true; spreads;) {
    spreads = false;
    for (size_t i = 0; i < defines->n * defines->n; i++) {
      const char *value = strchr(defines->texts[i / defines->n], '='),
                 *name = defines->texts[i % defines->n];
      if (!used[i / defines->n] || used[i % defines->n] ||
          !mentions(value, name, strcspn(name, "=")))
        continue;
      used[i % defines->n] = spreads = true;
    }
  }
}

/* Takes out the definitions that cannot change the object. */
static bool defines_reduce(const struct kernel *kernel, const char *sources,
                           struct settings *defines, struct error *error) {
  bool used[SPACE_PARAMETERS_MAX + 256] = {false};
  ALWAYS(defines->n <= ARRAY_LENGTH(used));
  for (size_t i = 0; i < kernel->n_sources; i++) {
    cleanup_free char *path = xasprintf("%s/%s", sources, kernel->sources[i].path);
    cleanup_free char *text = NULL;
    size_t size;
    if (!file_read(path, SCANNED_SOURCE_MAX, &text, &size, error))
      return error_become(error, ERROR_UNAVAILABLE);
    if (strstr(text, "##") || strlen(text) != size)
      return true;
    for (size_t k = 0; k < defines->n; k++) {
      const char *name = defines->texts[k];
      size_t length = strcspn(name, "=");
      used[k] |= name[0] == '_' || string_starts(name, "NDEBUG=") || mentions(text, name, length);
    }
  }
  used_spread(defines, used);
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

static struct digest job_digest(const struct compile_request *request,
                                const struct compile_job *job) {
  const struct compiler *compiler = job->compiler;
  struct digest_stream *stream = digest_stream_new();
  digest_text(stream, compiler->identity);
  digest_text(stream, compiler->fingerprint);
  digest_text(stream, job->arch ? job->arch : "");
  for (size_t i = 0; compiler->kind->flags[i]; i++)
    digest_text(stream, compiler->kind->flags[i]);
  digest_text(stream, job->text); /* the prelude included */
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
    digest_stream_add(stream, request->kernel->reference.source.digest.bytes, DIGEST_SIZE);
  return digest_stream_finish(stream);
}

/* Features after a colon ("gfx942:sramecc+:xnack-") are left aside: an object without them runs
 * with any. */
static bool arch_read(const char *text, char **ret_arch, struct error *error) {
  size_t length = strcspn(text, ":");
  for (size_t i = 0; i < length; i++) {
    if (!isalnum((unsigned char)text[i]) && text[i] != '_' && text[i] != '-')
      return error_set(error,
                       "\"%.40s\" is not the name of a GPU's architecture, such as gfx942 or sm_90",
                       text);
  }
  *ret_arch = xstrndup(text, length);
  return true;
}

/* For what and with which files a GPU's language is compiled, and what is looked for in the
 * object. */
static bool device_job_fill(const struct compile_request *request, struct compile_job *job,
                            struct error *error) {
  if (!arch_read(request->arch, &job->arch, error))
    return false;
  job->entry = xstrdup(request->kernel->entry);
  return true;
}

bool compile_job_prepare(const struct compiler *compiler, const struct compile_request *request,
                         struct compile_job *ret_job, struct error *error) {
  const struct kernel *kernel = request->kernel;
  struct compile_job job __attribute__((cleanup(compile_job_release))) = {.compiler = compiler};
  if (request->is_reference && !kernel->reference.source.path)
    return error_set(error, "the kernel %s has no reference", kernel->name);
  job.sources = realpath(request->sources, NULL);
  if (!job.sources)
    return error_of(error, ERROR_UNAVAILABLE, "cannot find the kernel's sources in %s: %s",
                    request->sources, strerror(errno));
  if (!request->is_reference &&
      (!settings_of_config(request, &job.defines, &job.environment, error) ||
       !defines_reduce(kernel, job.sources, &job.defines, error)))
    return false;
  for (size_t i = 0; i < kernel->n_sources; i++)
    settings_add(&job.files, xstrdup(kernel->sources[i].path));
  if (request->is_reference)
    settings_add(&job.files, xstrdup(kernel->reference.source.path));
  if (request->is_reference)
    job.text = reference_source(kernel);
  else if (kernel->language == LANGUAGE_C)
    job.text = launch_source(kernel);
  else if (device_job_fill(request, &job, error))
    job.text = device_source(kernel, &job.defines);
  else
    return false;
  job.digest = job_digest(request, &job);
  *ret_job = job;
  job = (struct compile_job){0};
  return true;
}

void compile_job_release(struct compile_job *job) {
  free(job->sources);
  free(job->text);
  free(job->arch);
  free(job->entry);
  settings_release(&job->files);
  settings_release(&job->defines);
  settings_release(&job->environment);
  *job = (struct compile_job){0};
}

/* The first line that tells of an error, else the first line, without the folder's name and in
 * plain ASCII. */
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

/* What compilers and linkers say when it is the machine's fault. */
static bool is_of_the_machine(const struct command_result *result) {
  static const int reasons[] = {ENOSPC, EDQUOT, EIO, EROFS, EMFILE, ENFILE};
  if (WIFEXITED(result->status) && WEXITSTATUS(result->status) == RTC_EXIT_MACHINE)
    return true;
  for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++) {
    if (strstr(result->output, strerrordesc_np(reasons[i])))
      return true;
  }
  return false;
}

/* Why a compiler that ran left no object. */
static bool ran_refuse(const struct compile_job *job, const struct command_result *ran,
                       int64_t timeout_ms, struct error *error) {
  const char *refusal = job->compiler->kind->arch_refusal;
  if (refusal && strstr(ran->output, refusal))
    return error_of(error, ERROR_UNAVAILABLE,
                    "%s does not know the architecture %s; install a newer one",
                    job->compiler->identity, job->arch);

  enum error_kind kind = ran->stopped || is_of_the_machine(ran) ? ERROR_UNAVAILABLE
                         : ran->timed_out                       ? ERROR_DEADLINE
                                                                : ERROR_INVALID;
  if (ran->timed_out)
    return error_of(error, kind, "the compiler did not end within %lld ms", (long long)timeout_ms);
  if (ran->stopped)
    return error_of(error, kind, "the agent stopped while it was compiled");

  cleanup_free char *detail = detail_of(ran->output, job->sources);
  if (detail)
    return error_of(error, kind, "%s", detail);
  if (WIFSIGNALED(ran->status))
    return error_of(error, kind, "the compiler was ended by signal %d (%s)", WTERMSIG(ran->status),
                    strsignal(WTERMSIG(ran->status)));
  return error_of(error, kind, "the compiler exited with status %d and said nothing",
                  WEXITSTATUS(ran->status));
}

static char *digest_path(const char *object) {
  return xasprintf("%s" OBJECT_DIGEST_SUFFIX, object);
}

/* Writes the bytes that were checked and not what lies in the scratch folder, which whatever the
 * compiler started may hold open still. Nothing is synced: after a crash of the machine the digest
 * tells what is not whole. */
static bool object_publish(const char *bytes, size_t size, const char *object,
                           const struct digest *digest, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  cleanup_free char *path = digest_path(object);
  digest_format(digest, text);
  return (file_write_unsynced(path, text, strlen(text), 0600, error) &&
          file_write_unsynced(object, bytes, size, 0600, error)) ||
         error_prefix(error, "cannot put the object into the cache: ");
}

/* Reads an object, and what a GPU's says of the kernel's entry; of other objects nothing is
 * known. */
static bool object_read(const struct compile_job *job, const char *object, char **ret_bytes,
                        size_t *ret_size, struct compile_result *result, struct error *error) {
  cleanup_free char *bytes = NULL;
  cleanup_code_object struct code_object *code = NULL;
  const struct code_kernel *kernel;
  struct stat status;
  size_t size;
  result->resources = code_resources_unknown;
  /* Not what a link leads to: the compiler was confined, whoever reads this is not. */
  if (lstat(object, &status) < 0 || !S_ISREG(status.st_mode))
    return error_set(error, "the compiler said that all was well and left no object");
  if (!file_read(object, COMPILE_OBJECT_MAX, &bytes, &size, error) ||
      (job->entry && !code_object_parse(bytes, size, &code, error)))
    return error_prefix(error, "the compiler's object cannot be read: ");
  if (job->entry && !code_object_kernel(code, job->entry, &kernel, error))
    return error_prefix(
        error, "the source defines no `extern \"C\" __global__` function %s: ", job->entry);
  if (job->entry)
    result->resources = kernel->resources;
  result->digest = digest_of(bytes, size);
  *ret_bytes = TAKE(bytes);
  *ret_size = size;
  return true;
}

/* The config's environment comes first: of two settings of one name getenv finds the first. */
static void environment_make(const struct compile_job *job, const char *scratch,
                             struct settings *environment) {
  for (size_t i = 0; i < job->environment.n; i++)
    settings_add(environment, xstrdup(job->environment.texts[i]));
  settings_add(environment, xstrdup("PATH=/usr/local/bin:/usr/bin:/bin"));
  settings_add(environment, xstrdup("LC_ALL=C"));
  settings_add(environment, xstrdup("SOURCE_DATE_EPOCH=0"));
  settings_add(environment, xasprintf("TMPDIR=%s", scratch));
}

static bool compile_sandbox(const struct compile_job *job, const char *scratch,
                            struct sandbox **ret_sandbox, struct error *error) {
  const struct settings *shared = &job->compiler->readable;
  cleanup_free const char **readable = xcalloc(shared->n + 2, sizeof *readable);
  for (size_t i = 0; i < shared->n; i++)
    readable[i] = shared->texts[i];
  readable[shared->n] = job->sources;
  struct sandbox_rules rules = {readable, (const char *const[]){scratch, NULL}};
  return sandbox_new(&rules, ret_sandbox, error);
}

/* Copies a source to another folder, where it and the folders on its way are the user's. */
static bool source_copy(const char *from_folder, const char *file, const char *folder,
                        const struct custody *custody, struct error *error) {
  cleanup_free char *from = xasprintf("%s/%s", from_folder, file),
                    *to = xasprintf("%s/%s", folder, file);
  cleanup_free char *bytes = NULL;
  size_t size;
  for (char *slash = to + strlen(folder); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    bool is_made = folder_make(to, 0700, error) && custody_give(custody, to, error);
    *slash = '/';
    if (!is_made)
      return false;
  }
  return file_read(from, COPIED_SOURCE_MAX, &bytes, &size, error) &&
         file_write_unsynced(to, bytes, size, 0600, error) && custody_give(custody, to, error);
}

/* The scratch folder itself comes last: until then nobody but this program reaches what is in
 * it. */
static bool scratch_give(const struct compile_job *job, const char *scratch,
                         const char *sources_from, const struct custody *custody,
                         struct error *error) {
  cleanup_free char *text_path = xasprintf("%s/%s", scratch, job->compiler->kind->text_name);
  for (size_t i = 0; i < job->files.n; i++) {
    if (!source_copy(sources_from, job->files.texts[i], job->sources, custody, error))
      return false;
  }
  return custody_give(custody, text_path, error) && custody_give(custody, scratch, error);
}

/* `sources_from`: of what the compiler, which is another user's, finds copies in job->sources; or
 * NULL. */
static bool compile_in(const struct compile_job *job, const char *scratch, const char *sources_from,
                       const char *object, const struct custody *custody, int64_t timeout_ms,
                       int stop_fd, struct compile_result *result, struct error *error) {
  const struct compiler_kind *kind = job->compiler->kind;
  cleanup_free char *text_path = xasprintf("%s/%s", scratch, kind->text_name);
  cleanup_sandbox struct sandbox *sandbox = NULL;
  cleanup_settings struct settings arguments = {0}, environment = {0};
  if (!file_write_atomically(text_path, job->text, strlen(job->text), 0600, error) ||
      (sources_from && !scratch_give(job, scratch, sources_from, custody, error)) ||
      !compile_sandbox(job, scratch, &sandbox, error))
    return error_become(error, ERROR_UNAVAILABLE);

  environment_make(job, scratch, &environment);
  kind->command_make(job->compiler, job, &arguments, &environment);
  settings_add(&arguments, NULL);
  settings_add(&environment, NULL);
  struct command command = {
      .arguments = arguments.texts,
      .environment = environment.texts,
      .folder = scratch,
      .timeout_ms = timeout_ms,
      .cpu_seconds_max = (uint64_t)timeout_ms / 1000 + 1,
      .memory_bytes_max = COMPILE_MEMORY_MAX,
      .file_bytes_max = COMPILE_OBJECT_MAX,
      .output_max = OUTPUT_MAX,
      .sandbox = sandbox,
      .custody = custody,
      .stop_fd = stop_fd,
  };
  struct command_result ran;
  int64_t start = clock_monotonic_ms();
  bool has_run = command_run(&command, &ran, error);
  /* Back: nobody else changes what is read and removed there now. */
  if (sources_from && lchown(scratch, geteuid(), getegid()) < 0)
    log_warning("compile: %s stays another user's: %s", scratch, strerror(errno));
  if (!has_run)
    return error_become(error, ERROR_UNAVAILABLE);

  cleanup_free char *output = ran.output, *bytes = NULL,
                    *object_path = xasprintf("%s/%s", scratch, kind->object_name);
  size_t size;
  /* At least 1: 0 says that nothing had to be compiled. */
  result->compile_ms = clock_monotonic_ms() - start + 1;
  if (!ran.succeeded)
    return ran_refuse(job, &ran, timeout_ms, error);
  return object_read(job, object_path, &bytes, &size, result, error) &&
         (object_publish(bytes, size, object, &result->digest, error) ||
          error_become(error, ERROR_UNAVAILABLE));
}

static bool scratch_make(const char *object, bool is_anothers, char **ret_scratch,
                         struct error *error) {
  char suffix[17];
  if (is_anothers)
    return folder_make_temporary(ret_scratch, error);
  random_hex(suffix, 8);
  cleanup_free char *scratch = xasprintf("%s.%s.scratch", object, suffix);
  if (mkdir(scratch, 0700) < 0)
    return error_set(error, "cannot make the folder %s: %s", scratch, strerror(errno));
  *ret_scratch = TAKE(scratch);
  return true;
}

struct compile_result compile_job_run(const struct compile_job *job, const char *object,
                                      const struct custody *custody, int64_t timeout_ms,
                                      int stop_fd) {
  struct compile_result result = {.resources = code_resources_unknown};
  bool is_anothers = custody && custody->has_user;
  cleanup_free char *scratch = NULL, *copies = NULL;
  struct compile_job there = *job;
  struct error error;
  if (!scratch_make(object, is_anothers, &scratch, &result.error)) {
    error_become(&result.error, ERROR_UNAVAILABLE);
    return result;
  }
  if (is_anothers)
    there.sources = copies = xasprintf("%s/sources", scratch);
  result.ok = compile_in(&there, scratch, is_anothers ? job->sources : NULL, object, custody,
                         timeout_ms, stop_fd, &result, &result.error);
  if (!folder_remove(scratch, &error)) {
    result.ok = false;
    result.error = error;
    error_become(&result.error, ERROR_UNAVAILABLE);
  }
  if (result.ok)
    result.object = xstrdup(object);
  return result;
}

bool compile_job_find(const struct compile_job *job, const char *object,
                      struct compile_result *ret_result) {
  struct compile_result result = {.ok = true};
  cleanup_free char *bytes = NULL, *path = digest_path(object), *text = NULL;
  struct digest compiled;
  struct error error;
  size_t size, text_size;
  if (access(object, R_OK) < 0 || !object_read(job, object, &bytes, &size, &result, &error))
    return false;

  bool is_known =
      file_read(path, DIGEST_TEXT_SIZE, &text, &text_size, &error) && digest_parse(text, &compiled);
  if (!is_known || !digest_equal(&compiled, &result.digest)) {
    log_warning("compile: %s is compiled anew: %s", object,
                is_known ? "its bytes are not those that were compiled"
                         : "there is no digest of what was compiled");
    return false;
  }
  result.object = xstrdup(object);
  *ret_result = result;
  return true;
}
