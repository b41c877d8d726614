/* What compilers have in common before anything is compiled. Memory and threads: see compiler.h. */
#include "agent/compile/compiler.h"

#include <glob.h>
#include <limits.h>
#include <sys/stat.h>

#include "common/program/command.h"

#define ASK_OUTPUT_MAX ((size_t)256 << 10)
#define ASK_TIMEOUT_MS 20000

static const char *const system_places[] = {
    "/usr",  "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom",
#ifdef WAVETUNE_SANITIZED
    "/proc", /* where the sanitizers of a runtime compiler's process look up its memory */
#endif
};
static const char *const toolchain_places[] = {"/opt/rocm*", "/usr/local/cuda*"};

static void readable_add(struct compiler *compiler, const char *folder, const char *below) {
  settings_add(&compiler->readable, xasprintf("%s%s", folder, below));
}

/* The folder of a program or library; of a program in …/bin what it needs of its installation
 * too. */
static void readable_add_of(struct compiler *compiler, const char *path) {
  static const char *const parts[] = {"/lib", "/lib64", "/libexec"};
  const char *end = strrchr(path, '/');
  if (!end || end == path)
    return;
  cleanup_free char *folder = xstrndup(path, (size_t)(end - path));
  readable_add(compiler, folder, "");
  char *last = strrchr(folder, '/');
  if (!last || last == folder || !string_equal(last, "/bin"))
    return;
  *last = '\0';
  for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
    readable_add(compiler, folder, parts[i]);
}

/* /opt/rocm is a link to /opt/rocm-6.4.1: the pattern finds both, and a rule is about what a link
 * leads to. */
static void readable_add_matching(struct compiler *compiler, const char *pattern) {
  glob_t found;
  if (glob(pattern, 0, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++)
      readable_add(compiler, found.gl_pathv[i], "");
  }
  globfree(&found);
}

void compiler_depends_on(struct compiler *compiler, const char *text) {
  char *fingerprint = xasprintf("%s%s\n", compiler->fingerprint, text);
  free(compiler->fingerprint);
  compiler->fingerprint = fingerprint;
}

static void file_depends_on(struct compiler *compiler, const char *path) {
  cleanup_free char *real = realpath(path, NULL);
  struct stat status = {0};
  if (real && stat(real, &status) < 0)
    status = (struct stat){0};
  cleanup_free char *text =
      xasprintf("%s %lld %lld.%09ld", real ? real : path, (long long)status.st_size,
                (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  compiler_depends_on(compiler, text);
}

void compiler_depends_on_files(struct compiler *compiler, const char *pattern) {
  glob_t found;
  if (glob(pattern, 0, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++)
      file_depends_on(compiler, found.gl_pathv[i]);
  }
  globfree(&found);
}

void compiler_depends_on_program(struct compiler *compiler, const char *path) {
  /* Makes the loader list "libLLVM.so.19.1 => /lib/… (0x…)" instead of running the program; one
   * without loader runs. */
  char *const environment[] = {(char[]){"LD_TRACE_LOADED_OBJECTS=1"}, NULL};
  char *const arguments[] = {(char *)(uintptr_t)path, (char[]){"--version"}, NULL};
  cleanup_free char *list = NULL;
  struct error ignored;
  file_depends_on(compiler, path);
  if (!compiler_ask(arguments, environment, &list, &ignored))
    return;
  char *rest = list;
  for (char *line; (line = strsep(&rest, "\n"));) {
    char *library = strstr(line, " => /");
    if (!library)
      continue;
    library += strlen(" => ");
    library[strcspn(library, " ")] = '\0';
    file_depends_on(compiler, library);
  }
}

struct compiler *compiler_new(const struct compiler_kind *kind, const char *path) {
  struct compiler *compiler = xcalloc(1, sizeof *compiler);
  compiler->kind = kind;
  compiler->path = xstrdup(path);
  cleanup_free char *real = realpath(path, NULL);
  compiler->fingerprint = xstrdup("");
  file_depends_on(compiler, path);
  for (size_t i = 0; i < ARRAY_LENGTH(system_places); i++)
    readable_add(compiler, system_places[i], "");
  for (size_t i = 0; i < ARRAY_LENGTH(toolchain_places); i++)
    readable_add_matching(compiler, toolchain_places[i]);
  readable_add_of(compiler, path);
  if (real)
    readable_add_of(compiler, real);
  compiler_read_folders(compiler, getenv("WAVETUNE_TOOLCHAIN"));
  return compiler;
}

void compiler_read_folders(struct compiler *compiler, const char *folders) {
  cleanup_free char *copy = xstrdup(folders ? folders : "");
  char *rest = copy;
  for (char *folder; (folder = strsep(&rest, ":"));) {
    if (*folder == '/')
      readable_add(compiler, folder, "");
  }
}

void compiler_free(struct compiler *compiler) {
  free(compiler->path);
  free(compiler->identity);
  free(compiler->fingerprint);
  settings_release(&compiler->readable);
  free(compiler);
}

bool compiler_ask(char *const *arguments, char *const *environment, char **ret_output,
                  struct error *error) {
  struct command command = {
      .arguments = arguments,
      .environment = environment,
      .timeout_ms = ASK_TIMEOUT_MS,
      .cpu_seconds_max = ASK_TIMEOUT_MS / 1000,
      .memory_bytes_max = COMPILE_MEMORY_MAX,
      .file_bytes_max = COMPILE_OBJECT_MAX,
      .output_max = ASK_OUTPUT_MAX,
      .stop_fd = -1,
  };
  struct command_result result;
  if (!command_run(&command, &result, error))
    return false;
  cleanup_free char *output = result.output;
  if (!result.succeeded) {
    output[strcspn(output, "\n")] = '\0';
    return error_set(error, "%.300s", output[0] ? output : "it failed and said nothing");
  }
  *ret_output = TAKE(output);
  return true;
}

bool compiler_program(const char *path, const char *program, char **ret_program,
                      struct error *error) {
  cleanup_free char *question = xasprintf("--print-prog-name=%s", program), *answer = NULL;
  char *const arguments[] = {(char *)(uintptr_t)path, question, NULL};
  char *const environment[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin"}, NULL};
  if (!compiler_ask(arguments, environment, &answer, error))
    return false;
  answer[strcspn(answer, "\n")] = '\0';
  if (answer[0] != '/')
    return error_set(error, "%s finds no %s", path, program);
  *ret_program = TAKE(answer);
  return true;
}

bool compiler_macros(const char *path, const char *flag, char **ret_text, struct error *error) {
  char *const arguments[] = {
      (char *)(uintptr_t)path, (char *)(uintptr_t)flag, (char[]){"-dM"},       (char[]){"-E"},
      (char[]){"-x"},          (char[]){"c"},           (char[]){"/dev/null"}, NULL};
  char *const environment[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin"}, (char[]){"LC_ALL=C"},
                               NULL};
  return compiler_ask(arguments, environment, ret_text, error) || error_prefix(error, "%s: ", path);
}

/* What `--version` prints has no fixed form, so the macros that name a compiler are asked. */
char *compiler_name_of(const char *macros, int *ret_major) {
  static const char *const compilers[][4] = {
      {"clang", "#define __clang_major__ ", "#define __clang_minor__ ",
       "#define __clang_patchlevel__ "},
      {"gcc", "#define __GNUC__ ", "#define __GNUC_MINOR__ ", "#define __GNUC_PATCHLEVEL__ "},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(compilers); i++) {
    int version[3], found = 0;
    for (int k = 0; k < 3; k++) {
      const char *line = strstr(macros, compilers[i][k + 1]);
      if (line && sscanf(line + strlen(compilers[i][k + 1]), "%d", &version[k]) == 1)
        found++;
    }
    if (found == 3) {
      *ret_major = version[0];
      return xasprintf("%s %d.%d.%d", compilers[i][0], version[0], version[1], version[2]);
    }
  }
  return NULL;
}
