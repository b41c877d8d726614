/* HIP by a runtime compiler: hiprtc of ROCm for AMD, NVRTC of CUDA for NVIDIA. The library is
 * found, asked and used by processes of this same program (rtc.h). Memory and threads: see
 * compiler.h. */
#include "agent/compile/rtc.h"

#include "agent/compile/compiler.h"

#define PROGRAM "/proc/self/exe"

static const char *const hiprtc_flags[] = {"-std=c++17", "-O3", "-w", "-fuse-cuid=none", NULL};
static const char *const nvrtc_flags[] = {"--std=c++17", "--disable-warnings", NULL};

static void rtc_command_make(const struct compiler *compiler, const struct compile_job *job,
                             const char *symbols, const char *arch_option,
                             struct settings *arguments, struct settings *environment) {
  const char *const first[] = {PROGRAM,
                               "rtc",
                               "compile",
                               symbols,
                               compiler->path,
                               job->sources,
                               compiler->kind->text_name,
                               compiler->kind->object_name};
  for (size_t i = 0; i < ARRAY_LENGTH(first); i++)
    settings_add(arguments, xstrdup(first[i]));
  for (size_t i = 0; i < job->files.n; i++)
    settings_add(arguments, xstrdup(job->files.texts[i]));
  settings_add(arguments, xstrdup("--"));
  settings_add(arguments, xasprintf("%s=%s", arch_option, job->arch));
  for (size_t i = 0; compiler->kind->flags[i]; i++)
    settings_add(arguments, xstrdup(compiler->kind->flags[i]));
  /* It loads more libraries, which lie beside it; this program's own may lie where only the
   * variable says. */
  const char *end = strrchr(compiler->path, '/'), *more = getenv("LD_LIBRARY_PATH");
  settings_add(environment,
               xasprintf("LD_LIBRARY_PATH=%.*s%s%s", end ? (int)(end - compiler->path) : 0,
                         compiler->path, more ? ":" : "", more ? more : ""));
}

static void hiprtc_command_make(const struct compiler *compiler, const struct compile_job *job,
                                struct settings *arguments, struct settings *environment) {
  /* The library below hiprtc keeps what it compiled in the user's home; the pool's cache is
   * enough. */
  settings_add(environment, xstrdup("AMD_COMGR_CACHE=0"));
  rtc_command_make(compiler, job, "hiprtc", "--offload-arch", arguments, environment);
}

static void nvrtc_command_make(const struct compiler *compiler, const struct compile_job *job,
                               struct settings *arguments, struct settings *environment) {
  rtc_command_make(compiler, job, "nvrtc", "--gpu-architecture", arguments, environment);
}

static const struct compiler_kind hiprtc_kind = {".co",        "wavetune.launch.hip",
                                                 "object.co",  "invalid target ID",
                                                 hiprtc_flags, hiprtc_command_make};
static const struct compiler_kind nvrtc_kind = {".co",       "wavetune.launch.hip",
                                                "object.co", "invalid value for --gpu-architecture",
                                                nvrtc_flags, nvrtc_command_make};

/* Opens the first of `libraries` that loads; it answers with two lines. */
static bool rtc_open(const struct compiler_kind *kind, const char *symbols,
                     const struct settings *libraries, struct compiler **ret_compiler,
                     struct error *error) {
  /* What is loaded once there is something to compile: all of clang, and the language's own
   * words. */
  static const char *const neighbours[] = {"libamd_comgr.so*", "lib*rtc-builtins*.so*"};
  cleanup_settings struct settings arguments = {0}, environment = {0};
  cleanup_free char *answer = NULL;
  const char *library_path = getenv("LD_LIBRARY_PATH");
  const char *const first[] = {PROGRAM, "rtc", "find", symbols};
  for (size_t i = 0; i < ARRAY_LENGTH(first); i++)
    settings_add(&arguments, xstrdup(first[i]));
  for (size_t i = 0; i < libraries->n; i++)
    settings_add(&arguments, xstrdup(libraries->texts[i]));
  settings_add(&arguments, NULL);
  if (library_path)
    settings_add(&environment, xasprintf("LD_LIBRARY_PATH=%s", library_path));
  settings_add(&environment, NULL);
  if (!compiler_ask(arguments.texts, environment.texts, &answer, error))
    return false;
  char *rest = answer, *path = strsep(&rest, "\n"), *identity = strsep(&rest, "\n");
  if (!identity)
    return error_set(error, "%s was not understood: %.100s", symbols, path);
  cleanup_compiler struct compiler *compiler = compiler_new(kind, path);
  compiler->identity = xstrdup(identity);
  const char *end = strrchr(path, '/');
  for (size_t i = 0; i < ARRAY_LENGTH(neighbours) && end; i++) {
    cleanup_free char *pattern = xasprintf("%.*s/%s", (int)(end - path), path, neighbours[i]);
    compiler_depends_on_files(compiler, pattern);
  }
  compiler_depends_on(compiler, library_path ? library_path : "");
  settings_add(&compiler->readable, xstrdup(PROGRAM));
  compiler_read_folders(compiler, library_path);
  *ret_compiler = TAKE(compiler);
  return true;
}

static void libraries_add(struct settings *libraries, const char *folder,
                          const char *const *names) {
  for (size_t i = 0; names[i]; i++)
    settings_add(libraries, xasprintf("%s%s", folder, names[i]));
}

bool hiprtc_open(const char *path, struct compiler **ret_compiler, struct error *error) {
  static const char *const names[] = {"libhiprtc.so.7", "libhiprtc.so.6", NULL};
  static const char *const runtime_names[] = {"libamdhip64.so.7", "libamdhip64.so.6", NULL};
  cleanup_settings struct settings libraries = {0};
  if (path) {
    settings_add(&libraries, xstrdup(path));
  } else {
    libraries_add(&libraries, "", names);
    libraries_add(&libraries, "/opt/rocm/lib/", names);
    libraries_add(&libraries, "", runtime_names);
    libraries_add(&libraries, "/opt/rocm/lib/", runtime_names);
  }
  if (rtc_open(&hiprtc_kind, "hiprtc", &libraries, ret_compiler, error))
    return true;
  return path ? false : error_set(error, "there is no hiprtc of ROCm 6 or later (libhiprtc.so.6)");
}

bool nvrtc_open(const char *path, struct compiler **ret_compiler, struct error *error) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
  static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
  cleanup_settings struct settings libraries = {0};
  if (path) {
    settings_add(&libraries, xstrdup(path));
  } else {
    libraries_add(&libraries, "", names);
    for (size_t i = 0; i < ARRAY_LENGTH(variables); i++) {
      const char *cuda = getenv(variables[i]);
      cleanup_free char *folder = xasprintf("%s/lib64/", cuda ? cuda : "");
      if (cuda && *cuda == '/')
        libraries_add(&libraries, folder, names);
    }
    libraries_add(&libraries, "/usr/local/cuda/lib64/", names);
  }
  if (rtc_open(&nvrtc_kind, "nvrtc", &libraries, ret_compiler, error))
    return true;
  return path ? false
              : error_set(error, "there is no NVRTC (libnvrtc.so.13 or .12); install CUDA 12 or "
                                 "later, or name the "
                                 "library in $WAVETUNE_NVRTC");
}
