/* One compile: equal content gives equal bytes. */
#include "agent/compile/job.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/compile/compile.h"
#include "agent/compile/compiler.h"
#include "common/base/file.h"
#include "common/base/glibc.h"
#include "common/base/log.h"
#include "common/program/command.h"

#define SCANNED_SOURCE_MAX ((size_t)4 << 20)
#define COPIED_SOURCE_MAX ((size_t)64 << 20) /* as large as a file that a server keeps */
#define OUTPUT_MAX ((size_t)64 << 10)
#define DETAIL_MAX 400

/* Whether `text` has the name of a definition ("NAME=VALUE") as a word. */
static bool mentions(const char *text, const char *define) {
  size_t length = strcspn(define, "=");
  for (const char *at = text; (at = memmem(at, strlen(at), define, length)); at++)
    if ((at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')) &&
        !isalnum((unsigned char)at[length]) && at[length] != '_')
      return true;
  return false;
}

/* Takes out the definitions that cannot change the object of these files. */
static bool defines_reduce(const struct source *files, size_t n_files, const char *sources,
                           struct settings *defines, struct error *error) {
  bool is_used[SPACE_PARAMETERS_MAX + 256] = {false};
  size_t n = defines->n;
  ALWAYS(n <= ARRAY_LENGTH(is_used));

  array_foreach (source, files, n_files) {
    cleanup_free char *path = xasprintf("%s/%s", sources, source->path), *text = NULL;
    size_t size;
    if (!file_read(path, SCANNED_SOURCE_MAX, &text, &size, error))
      return error_become(error, ERROR_UNAVAILABLE);
    if (strstr(text, "##") || strlen(text) != size)
      return true;
    for (size_t k = 0; k < n; k++) {
      const char *define = defines->texts[k];
      is_used[k] |= define[0] == '_' || string_starts(define, "NDEBUG=") || mentions(text, define);
    }
  }

  /* The value of a definition that is used may mention others, which then are used too. */
  for (bool changes = true; changes;) {
    changes = false;
    for (size_t i = 0; i < n; i++)
      for (size_t k = 0; is_used[i] && k < n; k++)
        if (!is_used[k] && mentions(strchr(defines->texts[i], '='), defines->texts[k]))
          is_used[k] = changes = true;
  }

  defines->n = 0;
  for (size_t k = 0; k < n; k++) {
    if (is_used[k])
      defines->texts[defines->n++] = defines->texts[k];
    else
      free(defines->texts[k]);
  }

  return true;
}

static void digest_text(struct digest_stream *stream, const char *text) {
  digest_stream_add(stream, text, strlen(text) + 1);
}

static void digest_settings(struct digest_stream *stream, const char *title,
                            const struct settings *settings) {
  digest_text(stream, title);
  array_foreach (text, settings->texts, settings->n)
    digest_text(stream, *text);
}

static struct digest job_digest(const struct compile_request *request,
                                const struct compile_job *job) {
  const struct compiler *compiler = job->compiler;
  const struct kernel *kernel = request->kernel;
  struct digest_stream *stream = digest_stream_new();
  digest_text(stream, compiler->identity);
  digest_text(stream, compiler->fingerprint);
  digest_text(stream, job->arch ? job->arch : "");
  for (size_t i = 0; compiler->kind->flags[i]; i++)
    digest_text(stream, compiler->kind->flags[i]);

  digest_text(stream, job->text); /* the prelude included */
  digest_settings(stream, "defines", &job->defines);
  digest_settings(stream, "environment", &job->environment);

  digest_text(stream, "sources");
  array_foreach (source, kernel->sources, kernel->n_sources) {
    digest_text(stream, source->path);
    digest_stream_add(stream, source->digest.bytes, DIGEST_SIZE);
  }
  if (request->is_reference)
    digest_stream_add(stream, kernel->reference.source.digest.bytes, DIGEST_SIZE);

  return digest_stream_finish(stream);
}

bool compile_job_prepare(const struct compiler *compiler, const struct compile_request *request,
                         struct compile_job *ret_job, struct error *error) {
  const struct kernel *kernel = request->kernel;
  bool is_device = !request->is_reference && kernel->language != LANGUAGE_C;
  struct compile_job job __attribute__((cleanup(compile_job_release))) = {.compiler = compiler};
  if (request->is_reference && !kernel->reference.source.path)
    return error_set(error, "the kernel %s has no reference", kernel->name);

  job.sources = realpath(request->sources, NULL);
  if (!job.sources)
    return error_of(error, ERROR_UNAVAILABLE, "cannot find the kernel's sources in %s: %s",
                    request->sources, strerror(errno));
  if (request->is_reference
          ? !settings_of_reference(request, &job.defines, error) ||
                !defines_reduce(&kernel->reference.source, 1, job.sources, &job.defines, error)
          : !settings_of_config(request, &job.defines, &job.environment, error) ||
                !defines_reduce(kernel->sources, kernel->n_sources, job.sources, &job.defines,
                                error))
    return false;

  array_foreach (source, kernel->sources, kernel->n_sources)
    settings_add(&job.files, xstrdup(source->path));
  if (request->is_reference)
    settings_add(&job.files, xstrdup(kernel->reference.source.path));

  if (is_device) {
    /* Without the features of "gfx942:sramecc+:xnack-": such an object runs with any. */
    size_t length = strcspn(request->arch, ":");
    for (const char *c = request->arch; c < request->arch + length; c++)
      if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
        return error_set(
            error, "\"%.40s\" is not the name of a GPU's architecture, such as gfx942 or sm_90",
            request->arch);
    job.arch = xstrndup(request->arch, length);
    job.entry = xstrdup(kernel->entry);
  }

  job.text = request->is_reference ? reference_source(kernel)
             : is_device           ? device_source(kernel, &job.defines)
                                   : launch_source(kernel);
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

char *compile_job_object_name(const struct compile_job *job) {
  char text[DIGEST_TEXT_SIZE];
  return xasprintf("%s%s", digest_format(&job->digest, text) + strlen("sha256:"),
                   strrchr(job->compiler->kind->object_name, '.'));
}

/* The first line that reports an error, else the first line, without the folder's name and in plain
 * ASCII. NULL: there is no line. */
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

/* Why a compiler that ran left no object. */
static bool ran_refuse(const struct compile_job *job, const char *sources,
                       const struct command_result *ran, int64_t timeout_ms, struct error *error) {
  static const int machine_reasons[] = {ENOSPC, EDQUOT, EIO, EROFS, EMFILE, ENFILE};
  const char *refusal = job->compiler->kind->arch_refusal;
  if (refusal && strstr(ran->output, refusal))
    return error_of(error, ERROR_UNAVAILABLE,
                    "%s does not know the architecture %s; install a newer one",
                    job->compiler->identity, job->arch);

  bool is_of_machine =
      ran->stopped || (WIFEXITED(ran->status) && WEXITSTATUS(ran->status) == RTC_EXIT_MACHINE);
  list_foreach (reason, machine_reasons)
    is_of_machine |= strstr(ran->output, strerrordesc_np(*reason)) != NULL;
  enum error_kind kind = is_of_machine    ? ERROR_UNAVAILABLE
                         : ran->timed_out ? ERROR_DEADLINE
                                          : ERROR_INVALID;
  if (ran->timed_out)
    return error_of(error, kind, "the compiler did not end within %lld ms", (long long)timeout_ms);
  if (ran->stopped)
    return error_of(error, kind, "the agent stopped during the compile");

  cleanup_free char *detail = detail_of(ran->output, sources);
  if (detail)
    return error_of(error, kind, "%s", detail);
  if (WIFSIGNALED(ran->status))
    return error_of(error, kind, "the compiler was ended by signal %d (%s)", WTERMSIG(ran->status),
                    strsignal(WTERMSIG(ran->status)));

  return error_of(error, kind, "the compiler exited with status %d without a message",
                  WEXITSTATUS(ran->status));
}

/* Reads an object, and of a GPU object the resources of the kernel's entry. */
static bool object_read(const struct compile_job *job, const char *object, char **ret_bytes,
                        size_t *ret_size, struct compile_result *result, struct error *error) {
  cleanup_free char *bytes = NULL;
  cleanup_code_object struct code_object *code = NULL;
  const struct code_kernel *kernel;
  struct stat status;
  size_t size;
  result->resources = code_resources_unknown;

  /* Links are not followed: the compiler was confined, and this program is not. */
  if (lstat(object, &status) < 0 || !S_ISREG(status.st_mode))
    return error_set(error, "the compiler reported success but left no object");
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

/* Copies the sources into `folder`; they and the folders above them there become the user's. */
static bool sources_give(const struct compile_job *job, const char *folder,
                         const struct custody *custody, struct error *error) {
  array_foreach (text, job->files.texts, job->files.n) {
    cleanup_free char *from = xasprintf("%s/%s", job->sources, *text),
                      *to = xasprintf("%s/%s", folder, *text), *bytes = NULL;
    size_t size;

    for (char *slash = to + strlen(folder); slash; slash = strchr(slash + 1, '/')) {
      *slash = '\0';
      bool is_made = folder_make(to, 0700, error) && custody_give(custody, to, error);
      *slash = '/';
      if (!is_made)
        return false;
    }

    if (!file_read(from, COPIED_SOURCE_MAX, &bytes, &size, error) ||
        !file_write_unsynced(to, bytes, size, 0600, error) || !custody_give(custody, to, error))
      return false;
  }

  return true;
}

/* Runs the compiler in the scratch folder; `sources` is where it finds them. False only when it
 * could not be run. */
static bool compiler_run(const struct compile_job *job, const char *scratch, const char *sources,
                         const struct compile_bounds *bounds, struct command_result *ret_ran,
                         struct compile_result *result) {
  struct error *error = &result->error;
  cleanup_free char *text_path = xasprintf("%s/%s", scratch, job->compiler->kind->text_name);
  bool is_other_user = sources != job->sources;
  /* The scratch folder is given last: until then only this program reaches what is in it. */
  if (!file_write_atomically(text_path, job->text, strlen(job->text), 0600, error) ||
      (is_other_user && (!sources_give(job, sources, bounds->custody, error) ||
                         !custody_give(bounds->custody, text_path, error) ||
                         !custody_give(bounds->custody, scratch, error))))
    return false;

  const struct settings *readable = &job->compiler->readable;
  cleanup_free const char **places = xcalloc(readable->n + 2, sizeof *places);
  cleanup_sandbox struct sandbox *sandbox = NULL;
  for (size_t i = 0; i < readable->n; i++)
    places[i] = readable->texts[i];
  places[readable->n] = sources;
  struct sandbox_rules rules = {places, (const char *const[]){scratch, NULL}};
  if (!sandbox_new(&rules, &sandbox, error))
    return false;

  /* The config's environment comes first: of two settings of one name getenv finds the first. */
  cleanup_settings struct settings arguments = {0}, environment = {0};
  array_foreach (text, job->environment.texts, job->environment.n)
    settings_add(&environment, xstrdup(*text));
  settings_print(&environment, "PATH=/usr/local/bin:/usr/bin:/bin");
  settings_print(&environment, "LC_ALL=C");
  settings_print(&environment, "SOURCE_DATE_EPOCH=0");
  settings_print(&environment, "TMPDIR=%s", scratch);
  compiler_command(job->compiler, job, sources, &arguments, &environment);
  settings_add(&arguments, NULL);
  settings_add(&environment, NULL);

  struct command command = {
      .arguments = arguments.texts,
      .environment = environment.texts,
      .folder = scratch,
      .timeout_ms = bounds->timeout_ms,
      .cpu_seconds_max = (uint64_t)bounds->timeout_ms / 1000 + 1,
      .memory_bytes_max = COMPILE_MEMORY_MAX,
      .file_bytes_max = COMPILE_OBJECT_MAX,
      .output_max = OUTPUT_MAX,
      .sandbox = sandbox,
      .custody = bounds->custody,
      .stop_fd = bounds->stop_fd,
  };

  int64_t start = clock_monotonic_ms();
  bool has_run = command_run(&command, ret_ran, error);
  /* At least 1: 0 means that nothing had to be compiled. */
  result->compile_ms = clock_monotonic_ms() - start + 1;

  /* Taken back, so that no other user changes what is read and removed there now. */
  if (is_other_user && lchown(scratch, geteuid(), getegid()) < 0)
    log_warning("compile: %s still belongs to another user: %s", scratch, strerror(errno));
  return has_run;
}

/* Compiles in the scratch folder, and publishes the bytes that were checked: what the compiler
 * started may still have its file open. Nothing is synced: after a crash of the machine the digest
 * shows what is incomplete. */
static bool compile_in(const struct compile_job *job, const char *scratch, const char *sources,
                       const char *object, const struct compile_bounds *bounds,
                       struct compile_result *result) {
  struct error *error = &result->error;
  struct command_result ran;
  char text[DIGEST_TEXT_SIZE];
  size_t size;
  if (!compiler_run(job, scratch, sources, bounds, &ran, result))
    return error_become(error, ERROR_UNAVAILABLE);

  cleanup_free char *output = ran.output, *bytes = NULL,
                    *made = xasprintf("%s/%s", scratch, job->compiler->kind->object_name),
                    *digest_path = xasprintf("%s" OBJECT_DIGEST_SUFFIX, object);
  if (!ran.succeeded)
    return ran_refuse(job, sources, &ran, bounds->timeout_ms, error);
  if (!object_read(job, made, &bytes, &size, result, error))
    return false;

  digest_format(&result->digest, text);
  if (file_write_unsynced(digest_path, text, strlen(text), 0600, error) &&
      file_write_unsynced(object, bytes, size, 0600, error))
    return true;
  error_prefix(error, "cannot put the object into the cache: ");

  return error_become(error, ERROR_UNAVAILABLE);
}

struct compile_result compile_job_run(const struct compile_job *job, const char *object,
                                      const struct compile_bounds *bounds) {
  struct compile_result result = {.resources = code_resources_unknown};
  bool is_other_user = bounds->custody && bounds->custody->has_user;
  cleanup_free char *scratch = NULL;
  struct error error;
  if (is_other_user) {
    if (!folder_make_temporary(&scratch, &result.error)) {
      error_become(&result.error, ERROR_UNAVAILABLE);
      return result;
    }
  } else {
    char suffix[17];
    random_hex(suffix, 8);
    scratch = xasprintf("%s.%s.scratch", object, suffix);
    if (mkdir(scratch, 0700) < 0) {
      error_of(&result.error, ERROR_UNAVAILABLE, "cannot make the folder %s: %s", scratch,
               strerror(errno));
      return result;
    }
  }

  cleanup_free char *copies = xasprintf("%s/sources", scratch);
  result.ok =
      compile_in(job, scratch, is_other_user ? copies : job->sources, object, bounds, &result);
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
  cleanup_free char *bytes = NULL, *path = xasprintf("%s" OBJECT_DIGEST_SUFFIX, object),
                    *text = NULL;
  struct digest compiled;
  struct error error;
  size_t size, text_size;
  if (access(object, R_OK) < 0 || !object_read(job, object, &bytes, &size, &result, &error))
    return false;

  bool is_known =
      file_read(path, DIGEST_TEXT_SIZE, &text, &text_size, &error) && digest_parse(text, &compiled);
  if (!is_known || !digest_equal(&compiled, &result.digest)) {
    log_warning("compile: %s is compiled again: %s", object,
                is_known ? "its bytes are not those that were compiled"
                         : "there is no digest of what was compiled");
    return false;
  }

  result.object = xstrdup(object);
  *ret_result = result;
  return true;
}
