/* Finding the compilers of this machine and making their command lines. */
#include "agent/compile/compiler.h"

#include <glob.h>
#include <limits.h>
#include <sys/stat.h>

#include "common/base/lock.h"
#include "common/program/command.h"

#define QUERY_OUTPUT_MAX ((size_t)256 << 10)
#define QUERY_TIMEOUT_MS 20000
#define PATH_VARIABLE "PATH=/usr/local/bin:/usr/bin:/bin"
#define CLANG_MAJOR_MIN 19
/* The first one that knows gfx942: ROCm ships clang before LLVM releases that version. */
#define ROCM_CLANG_MAJOR_MIN 17
#define ROCM_CLANG "/opt/rocm/llvm/bin/clang"
#define RTC_PROGRAM "/proc/self/exe"

/* -fopenmp-simd makes `#pragma omp simd reduction(…)` count and needs no runtime. With the flags
 * after -shared the object depends on nothing but its content, and unresolved names are errors. */
static const struct compiler_kind cc_kind = {
    .text_name = "wavetune.launch.c",
    .object_name = "object.so",
    .flags = (const char *const[]){"-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp-simd",
                                   "-w", "-shared", "-s", "-frandom-seed=wavetune",
                                   "-Wl,--build-id=none", "-Wl,-z,defs", NULL},
};

/* No headers and no device library: the prelude replaces both. Without -fuse-cuid=none the object
 * has a name that depends on the command line, and without --no-gpu-bundle-output it is wrapped by
 * a program of another package. */
static const struct compiler_kind clang_kind = {
    .text_name = "wavetune.launch.hip",
    .object_name = "object.co",
    .arch_option = "--offload-arch",
    .arch_refusal = "invalid target ID",
    .flags = (const char *const[]){"-x", "hip", "-std=c++17", "--cuda-device-only", "-nogpulib",
                                   "-nogpuinc", "--no-gpu-bundle-output", "-fuse-cuid=none",
                                   "-mcode-object-version=5", "-O3", "-w", NULL},
};

static const struct compiler_kind hiprtc_kind = {
    .text_name = "wavetune.launch.hip",
    .object_name = "object.co",
    .rtc_symbols = "hiprtc",
    .arch_option = "--offload-arch",
    .arch_refusal = "invalid target ID",
    .flags = (const char *const[]){"-std=c++17", "-O3", "-w", "-fuse-cuid=none", NULL},
};

static const struct compiler_kind nvrtc_kind = {
    .text_name = "wavetune.launch.hip",
    .object_name = "object.co",
    .rtc_symbols = "nvrtc",
    .arch_option = "--gpu-architecture",
    .arch_refusal = "invalid value for --gpu-architecture",
    .flags = (const char *const[]){"--std=c++17", "--disable-warnings", NULL},
};

/* Runs a command that only queries a compiler, without a sandbox. False also when the command
 * fails. */
static bool query(const char *const *arguments, const char *const *environment, char **ret_output,
                  struct error *error) {
  struct command command = {
      .arguments = (char *const *)(uintptr_t)arguments,
      .environment = (char *const *)(uintptr_t)environment,
      .timeout_ms = QUERY_TIMEOUT_MS,
      .cpu_seconds_max = QUERY_TIMEOUT_MS / 1000,
      .memory_bytes_max = COMPILE_MEMORY_MAX,
      .file_bytes_max = COMPILE_OBJECT_MAX,
      .output_max = QUERY_OUTPUT_MAX,
      .stop_fd = -1,
  };

  struct command_result result;
  if (!command_run(&command, &result, error))
    return false;

  cleanup_free char *output = result.output;
  if (!result.succeeded) {
    output[strcspn(output, "\n")] = '\0';
    return error_set(error, "%.300s", output[0] ? output : "it failed and printed nothing");
  }
  *ret_output = TAKE(output);

  return true;
}

/* The files that match a pattern. */
static void matches_add(struct settings *paths, const char *pattern) {
  glob_t found;
  if (glob(pattern, 0, NULL, &found) == 0)
    array_foreach (path, found.gl_pathv, found.gl_pathc)
      settings_add(paths, xstrdup(*path));
  globfree(&found);
}

/* The absolute folders of a colon-separated list, which may be NULL. */
static void folders_add(struct settings *paths, const char *list) {
  cleanup_free char *copy = xstrdup(list ? list : "");
  for (char *rest = copy, *folder; (folder = strsep(&rest, ":"));)
    if (*folder == '/')
      settings_add(paths, xstrdup(folder));
}

static void depends_on(struct compiler *compiler, const char *text) {
  cleanup_free char *before = compiler->fingerprint;
  compiler->fingerprint = xasprintf("%s%s\n", before, text);
}

static void depends_on_file(struct compiler *compiler, const char *path) {
  cleanup_free char *real = realpath(path, NULL);
  struct stat status = {0};
  if (real && stat(real, &status) < 0)
    status = (struct stat){0};
  cleanup_free char *text =
      xasprintf("%s %lld %lld.%09ld", real ? real : path, (long long)status.st_size,
                (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  depends_on(compiler, text);
}

/* A program and the libraries that it loads, because a compiler may do all its work in a library.
 */
static void depends_on_program(struct compiler *compiler, const char *path) {
  /* Makes the loader list "libLLVM.so.19.1 => /lib/… (0x…)" instead of running the program; a
   * static program runs. */
  const char *const environment[] = {"LD_TRACE_LOADED_OBJECTS=1", NULL};
  const char *const arguments[] = {path, "--version", NULL};
  cleanup_free char *list = NULL;
  struct error ignored;
  depends_on_file(compiler, path);
  if (!query(arguments, environment, &list, &ignored))
    return;

  for (char *rest = list, *line; (line = strsep(&rest, "\n"));) {
    char *library = strstr(line, " => /");
    if (!library)
      continue;
    library += strlen(" => ");
    library[strcspn(library, " ")] = '\0';
    depends_on_file(compiler, library);
  }
}

/* Also sets the paths that it may read: the system's programs and libraries, ROCm and CUDA where
 * they are usually installed, $WAVETUNE_TOOLCHAIN, and the compiler's own folders. */
static struct compiler *compiler_new(const struct compiler_kind *kind, const char *path) {
  static const char *const system_places[] = {
      "/usr",  "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom",
#ifdef WAVETUNE_SANITIZED
      "/proc", /* where the sanitizers of a runtime compiler's process look up its memory */
#endif
      NULL};
  struct compiler *compiler = xcalloc(1, sizeof *compiler);
  struct settings *readable = &compiler->readable;

  compiler->kind = kind;
  compiler->path = xstrdup(path);
  compiler->fingerprint = xstrdup("");
  depends_on_file(compiler, path);

  settings_copy(readable, system_places);

  /* /opt/rocm is a link to /opt/rocm-6.4.1: the pattern finds both, and a rule applies to what a
   * link leads to. */
  matches_add(readable, "/opt/rocm*");
  matches_add(readable, "/usr/local/cuda*");
  folders_add(readable, getenv("WAVETUNE_TOOLCHAIN"));

  /* The folder of the program or library; of a program in …/bin also its installation. */
  cleanup_free char *real = realpath(path, NULL);
  const char *const files[] = {path, real ? real : path};

  list_foreach (file, files) {
    const char *end = strrchr(*file, '/');
    if (!end || end == *file)
      continue;
    cleanup_free char *folder = xstrndup(*file, (size_t)(end - *file));
    char *last = strrchr(folder, '/');
    settings_add(readable, xstrdup(folder));
    if (last == folder || !string_equal(last, "/bin"))
      continue;
    *last = '\0';
    settings_print(readable, "%s/lib", folder);
    settings_print(readable, "%s/lib64", folder);
    settings_print(readable, "%s/libexec", folder);
  }

  return compiler;
}

void compiler_free(struct compiler *compiler) {
  free(compiler->path);
  free(compiler->identity);
  free(compiler->fingerprint);
  settings_release(&compiler->readable);
  free(compiler);
}

void compiler_command(const struct compiler *compiler, const struct compile_job *job,
                      const char *sources, struct settings *arguments,
                      struct settings *environment) {
  const struct compiler_kind *kind = compiler->kind;
  if (kind->rtc_symbols) {
    const char *const first[] = {RTC_PROGRAM,
                                 "rtc",
                                 "compile",
                                 kind->rtc_symbols,
                                 compiler->path,
                                 sources,
                                 kind->text_name,
                                 kind->object_name,
                                 NULL};
    settings_copy(arguments, first);
    array_foreach (text, job->files.texts, job->files.n)
      settings_add(arguments, xstrdup(*text));
    settings_print(arguments, "--");
    settings_print(arguments, "%s=%s", kind->arch_option, job->arch);
    settings_copy(arguments, kind->flags);

    /* The library below hiprtc has a cache in the user's home; the pool's is enough. */
    settings_print(environment, "AMD_COMGR_CACHE=0");

    /* The library loads others from its own folder; this program's may be found only through the
     * variable. */
    const char *end = strrchr(compiler->path, '/'), *more = getenv("LD_LIBRARY_PATH");
    settings_print(environment, "LD_LIBRARY_PATH=%.*s%s%s", end ? (int)(end - compiler->path) : 0,
                   compiler->path, more ? ":" : "", more ? more : "");
    return;
  }

  settings_add(arguments, xstrdup(compiler->path));
  settings_copy(arguments, kind->flags);
  if (kind->arch_option)
    settings_print(arguments, "%s=%s", kind->arch_option, job->arch);
  settings_print(arguments, "-ffile-prefix-map=%s=.", sources);
  const char *const last[] = {"-iquote", sources, "-o", kind->object_name, kind->text_name, NULL};
  settings_copy(arguments, last);

  if (!kind->arch_option) { /* a device's text has its definitions in it */
    array_foreach (text, job->defines.texts, job->defines.n)
      settings_print(arguments, "-D%s", *text);
    settings_print(arguments, "-lm");
  }
}

/* The macros that a C compiler predefines, and from them "clang 19.1.7": what `--version` prints
 * has no fixed form. NULL in *ret_identity when it is neither gcc nor clang. */
static bool macros_query(const char *path, const char *flag, char **ret_macros, char **ret_identity,
                         int *ret_major, struct error *error) {
  static const char *const names[][4] = {
      {"clang", "#define __clang_major__ ", "#define __clang_minor__ ",
       "#define __clang_patchlevel__ "},
      {"gcc", "#define __GNUC__ ", "#define __GNUC_MINOR__ ", "#define __GNUC_PATCHLEVEL__ "},
  };

  const char *const arguments[] = {path, flag, "-dM", "-E", "-x", "c", "/dev/null", NULL};
  const char *const environment[] = {PATH_VARIABLE, "LC_ALL=C", NULL};
  if (!query(arguments, environment, ret_macros, error))
    return error_prefix(error, "%s: ", path);

  *ret_identity = NULL;
  for (size_t i = 0; i < ARRAY_LENGTH(names) && !*ret_identity; i++) {
    int version[3], found = 0;
    for (int k = 0; k < 3; k++) {
      const char *line = strstr(*ret_macros, names[i][k + 1]);
      found += line && sscanf(line + strlen(names[i][k + 1]), "%d", &version[k]) == 1;
    }
    if (found < 3)
      continue;
    *ret_major = version[0];
    *ret_identity = xasprintf("%s %d.%d.%d", names[i][0], version[0], version[1], version[2]);
  }

  return true;
}

/* Where a compiler has a program that it runs ("cc1", "lld"). */
static bool program_query(const char *path, const char *program, char **ret_program,
                          struct error *error) {
  cleanup_free char *option = xasprintf("--print-prog-name=%s", program), *answer = NULL;
  const char *const arguments[] = {path, option, NULL};
  const char *const environment[] = {PATH_VARIABLE, NULL};
  if (!query(arguments, environment, &answer, error))
    return false;

  answer[strcspn(answer, "\n")] = '\0';
  if (answer[0] != '/')
    return error_set(error, "%s finds no %s", path, program);
  *ret_program = TAKE(answer);
  return true;
}

bool cc_open(struct compiler **ret_compiler, struct error *error) {
  /* Programs that gcc runs; clang runs "ld" alone. */
  static const char *const programs[] = {"cc1", "as", "ld"};
  cleanup_free char *path = NULL, *macros = NULL, *identity = NULL;
  char text[DIGEST_TEXT_SIZE];
  struct error ignored;
  int major;
  if (!program_find("cc", &path, error) ||
      !macros_query(path, "-march=native", &macros, &identity, &major, error))
    return false;
  if (!identity)
    return error_set(error, "%s does not state that it is gcc or clang; make `cc` one of them",
                     path);

  struct compiler *compiler = compiler_new(&cc_kind, path);
  compiler->identity = TAKE(identity);

  /* -march=native means this CPU, which the macros describe; machines with different CPUs may share
   * a cache. */
  struct digest digest = digest_of(macros, strlen(macros));
  depends_on(compiler, digest_format(&digest, text));
  depends_on_program(compiler, path);

  list_foreach (program_at, programs) {
    cleanup_free char *program = NULL;
    if (program_query(path, *program_at, &program, &ignored) ||
        program_find(*program_at, &program, &ignored))
      depends_on_program(compiler, program);
  }

  *ret_compiler = compiler;
  return true;
}

bool compiler_identity(char **ret_identity, struct error *error) {
  cleanup_compiler struct compiler *cc = NULL;
  if (!cc_open(&cc, error))
    return false;
  *ret_identity = TAKE(cc->identity);
  return true;
}

static bool clang_try(const char *path, int major_min, struct compiler **ret_compiler,
                      struct error *error) {
  cleanup_free char *macros = NULL, *identity = NULL, *linker = NULL;
  int major = 0;
  if (!macros_query(path, "-w", &macros, &identity, &major, error))
    return false;
  if (!identity || !string_starts(identity, "clang ") || major < major_min)
    return error_set(error, "%s is %s, not clang %d or later", path,
                     identity ? identity : "an unknown compiler", major_min);
  if (!program_query(path, "lld", &linker, error))
    return error_set(error,
                     "%s finds no lld, which links its objects; install the lld of its version "
                     "(Debian: apt install lld-19)",
                     path);

  struct compiler *compiler = compiler_new(&clang_kind, path);
  compiler->identity = TAKE(identity);
  depends_on_program(compiler, path);
  depends_on_program(compiler, linker);
  *ret_compiler = compiler;

  return true;
}

bool clang_open(const char *path, struct compiler **ret_compiler, struct error *error) {
  static const char *const names[] = {"clang-19", "clang-20", "clang-21", "clang-22"};
  bool is_found = false;
  struct error ignored;

  if (path)
    return clang_try(path, ROCM_CLANG_MAJOR_MIN, ret_compiler, error);

  list_foreach (name, names) {
    cleanup_free char *found = NULL;
    if (!program_find(*name, &found, &ignored))
      continue;
    if (clang_try(found, CLANG_MAJOR_MIN, ret_compiler, error))
      return true;
    is_found = true;
  }

  if (access(ROCM_CLANG, X_OK) == 0)
    return clang_try(ROCM_CLANG, ROCM_CLANG_MAJOR_MIN, ret_compiler, error);
  return is_found ? false
                  : error_set(error, "there is no clang-19 or later in $PATH; install one (Debian: "
                                     "apt install clang-19 lld-19)");
}

/* Opens the first of `libraries` that loads. A child process of this program loads it and prints
 * its path and identity. */
static bool rtc_open(const struct compiler_kind *kind, const struct settings *libraries,
                     struct compiler **ret_compiler, struct error *error) {
  /* Libraries that are loaded later, for a compile: clang, and the language's headers. */
  static const char *const neighbours[] = {"libamd_comgr.so*", "lib*rtc-builtins*.so*"};
  const char *const first[] = {RTC_PROGRAM, "rtc", "find", kind->rtc_symbols, NULL};
  const char *library_path = getenv("LD_LIBRARY_PATH");
  cleanup_free char *variable = xasprintf("LD_LIBRARY_PATH=%s", library_path ? library_path : ""),
                    *answer = NULL;
  cleanup_settings struct settings arguments = {0};
  settings_copy(&arguments, first);
  array_foreach (text, libraries->texts, libraries->n)
    settings_add(&arguments, xstrdup(*text));
  settings_add(&arguments, NULL);

  const char *const environment[] = {library_path ? variable : NULL, NULL};
  if (!query((const char *const *)arguments.texts, environment, &answer, error))
    return false;

  char *rest = answer, *path = strsep(&rest, "\n"), *identity = strsep(&rest, "\n");
  if (!identity)
    return error_set(error, "the answer of %s was not understood: %.100s", kind->rtc_symbols, path);
  struct compiler *compiler = compiler_new(kind, path);
  compiler->identity = xstrdup(identity);

  const char *end = strrchr(path, '/');
  cleanup_settings struct settings files = {0};
  for (size_t i = 0; i < ARRAY_LENGTH(neighbours) && end; i++) {
    cleanup_free char *pattern = xasprintf("%.*s/%s", (int)(end - path), path, neighbours[i]);
    matches_add(&files, pattern);
  }
  array_foreach (text, files.texts, files.n)
    depends_on_file(compiler, *text);

  depends_on(compiler, library_path ? library_path : "");
  settings_print(&compiler->readable, RTC_PROGRAM);
  folders_add(&compiler->readable, library_path);
  *ret_compiler = compiler;

  return true;
}

bool hiprtc_open(const char *path, struct compiler **ret_compiler, struct error *error) {
  static const char *const libraries[] = {"libhiprtc.so.7",
                                          "libhiprtc.so.6",
                                          "/opt/rocm/lib/libhiprtc.so.7",
                                          "/opt/rocm/lib/libhiprtc.so.6",
                                          "libamdhip64.so.7",
                                          "libamdhip64.so.6",
                                          "/opt/rocm/lib/libamdhip64.so.7",
                                          "/opt/rocm/lib/libamdhip64.so.6",
                                          NULL};
  cleanup_settings struct settings list = {0};

  settings_copy(&list, path ? (const char *const[]){path, NULL} : libraries);
  return rtc_open(&hiprtc_kind, &list, ret_compiler, error) ||
         (path ? false
               : error_set(error, "there is no hiprtc of ROCm 6 or later (libhiprtc.so.6)"));
}

void nvrtc_packages_add(const char *program, struct settings *libraries) {
  static const char own[] = "/wavetune/bin/wavetune-agent";
  if (!string_ends(program, own))
    return;

  int packages = (int)(strlen(program) - strlen(own));
  for (int major = 13; major >= 12; major--) {
    cleanup_free char *pattern =
        xasprintf("%.*s/nvidia/*/lib/libnvrtc.so.%d", packages, program, major);
    matches_add(libraries, pattern);
  }
}

bool nvrtc_open(const char *path, struct compiler **ret_compiler, struct error *error) {
  const char *const folders[] = {"", getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
  cleanup_settings struct settings list = {0};

  if (path)
    settings_add(&list, xstrdup(path));

  for (size_t i = 0; !path && i < ARRAY_LENGTH(folders); i++) {
    if (i > 0 && (!folders[i] || folders[i][0] != '/'))
      continue;
    const char *below = i > 0 ? "/lib64/" : "";
    settings_print(&list, "%s%slibnvrtc.so.13", folders[i], below);
    settings_print(&list, "%s%slibnvrtc.so.12", folders[i], below);
  }

  /* torch brings one, in folders that the loader does not search. */
  cleanup_free char *program = realpath(RTC_PROGRAM, NULL);
  if (!path && program)
    nvrtc_packages_add(program, &list);

  return rtc_open(&nvrtc_kind, &list, ret_compiler, error) ||
         (path ? false
               : error_set(error, "there is no NVRTC (libnvrtc.so.13 or .12); install CUDA 12 or "
                                  "later, or name the library in $WAVETUNE_NVRTC"));
}

/* A compiler that is searched for at most once. */
struct found {
  bool is_tried;
  struct compiler *compiler; /* NULL: there is none, and `error` states why */
  struct error error;
};

struct compilers {
  struct compiler *cc;
  pthread_mutex_t mutex; /* guards what follows */
  struct found amd, nvidia;
};

bool compilers_new(struct compilers **ret_compilers, struct error *error) {
  struct compiler *cc;
  if (!cc_open(&cc, error))
    return false;

  struct compilers *compilers = xcalloc(1, sizeof *compilers);
  compilers->cc = cc;
  pthread_mutex_init(&compilers->mutex, NULL);
  *ret_compilers = compilers;
  return true;
}

void compilers_free(struct compilers *compilers) {
  compiler_free(compilers->cc);
  cleanup_compiler_free(&compilers->amd.compiler);
  cleanup_compiler_free(&compilers->nvidia.compiler);
  pthread_mutex_destroy(&compilers->mutex);
  free(compilers);
}

static bool amd_open(struct compiler **ret_compiler, struct error *error) {
  const char *wanted = getenv("WAVETUNE_HIP_COMPILER");
  struct error hiprtc_error, clang_error;

  if (wanted && *wanted) {
    bool opened = string_equal(wanted, "hiprtc") ? hiprtc_open(NULL, ret_compiler, error)
                  : strstr(wanted, ".so")        ? hiprtc_open(wanted, ret_compiler, error)
                                                 : clang_open(wanted, ret_compiler, error);
    return opened || error_prefix(error, "$WAVETUNE_HIP_COMPILER is %.200s: ", wanted);
  }

  if (hiprtc_open(NULL, ret_compiler, &hiprtc_error) ||
      clang_open(NULL, ret_compiler, &clang_error))
    return true;
  return error_set(error, "this machine cannot compile HIP for AMD: %.200s; and %.200s",
                   hiprtc_error.message, clang_error.message);
}

static bool nvidia_open(struct compiler **ret_compiler, struct error *error) {
  const char *wanted = getenv("WAVETUNE_NVRTC");
  if (wanted && *wanted)
    return nvrtc_open(wanted, ret_compiler, error) ||
           error_prefix(error, "$WAVETUNE_NVRTC is %.200s: ", wanted);
  return nvrtc_open(NULL, ret_compiler, error) ||
         error_prefix(error, "this machine cannot compile HIP for NVIDIA: ");
}

bool compilers_find(struct compilers *compilers, const struct compile_request *request,
                    const struct compiler **ret_compiler, struct error *error) {
  enum language language = request->kernel->language;
  const char *arch = request->arch ? request->arch : "";
  bool is_amd = string_starts(arch, "gfx");
  if (request->is_reference || language == LANGUAGE_C) {
    *ret_compiler = compilers->cc;
    return true;
  }

  if (language != LANGUAGE_HIP)
    return error_set(error,
                     "this agent does not compile %s; such kernels come as builds (wavetune kernel "
                     "push --build)",
                     language_name(language));
  if (!is_amd && !string_starts(arch, "sm_"))
    return error_set(error,
                     "a kernel in hip is compiled for gfx… or sm_…, not for \"%.40s\"; lease it to "
                     "an agent with such a GPU",
                     arch);

  struct found *found = is_amd ? &compilers->amd : &compilers->nvidia;
  HOLD(&compilers->mutex);
  if (!found->is_tried && !(is_amd ? amd_open : nvidia_open)(&found->compiler, &found->error))
    found->compiler = NULL;
  found->is_tried = true;
  *ret_compiler = found->compiler;
  if (!found->compiler)
    *error = found->error;
  return found->compiler;
}
