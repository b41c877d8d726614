/* The process that runs a runtime compiler. */
#include "agent/compile/compile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>

#include "agent/compile/job.h"
#include "common/base/file.h"

#define SOURCE_MAX ((size_t)4 << 20)
#define LOG_MAX ((size_t)1 << 20)
#define HIP_VERSION_MAJOR(version) ((version) / 10000000)
#define ROCM_MAJOR_MIN 6

typedef struct rtc_program *rtc_program;

/* hiprtc's and NVRTC's functions have the same types, and the same names except for the prefix and
 * the last two names. */
struct rtc_library {
  void *handle;
  int (*version)(int *major, int *minor);
  int (*create)(rtc_program *ret, const char *source, const char *name, int n,
                const char *const *headers, const char *const *names);
  int (*compile)(rtc_program program, int n, const char *const *options);
  int (*log_size)(rtc_program program, size_t *ret);
  int (*log)(rtc_program program, char *text);
  const char *(*reason)(int result);
  int (*code_size)(rtc_program program, size_t *ret);
  int (*code)(rtc_program program, char *bytes);
};

static bool library_load(const char *symbols, const char *path, struct rtc_library *ret,
                         struct error *error) {
  bool is_cuda = string_equal(symbols, "nvrtc");
  const struct {
    const char *name;
    void *function;
  } functions[] = {
      {"Version", &ret->version},
      {"CreateProgram", &ret->create},
      {"CompileProgram", &ret->compile},
      {"GetProgramLogSize", &ret->log_size},
      {"GetProgramLog", &ret->log},
      {"GetErrorString", &ret->reason},
      {is_cuda ? "GetCUBINSize" : "GetCodeSize", &ret->code_size},
      {is_cuda ? "GetCUBIN" : "GetCode", &ret->code},
  };

  ret->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!ret->handle)
    return error_set(error, "%s", dlerror());

  list_foreach (wanted, functions) {
    cleanup_free char *name = xasprintf("%s%s", symbols, wanted->name);
    void *symbol = dlsym(ret->handle, name);
    if (!symbol)
      return error_set(error, "%s is not a library of %s", path, symbols);
    memcpy(wanted->function, &symbol, sizeof symbol);
  }

  return true;
}

/* Prints the library's path and "hiprtc 6.4.43484", by the HIP runtime's version where the library
 * has it, else "nvrtc 13.0". */
static bool identity_print(const char *symbols, const struct rtc_library *library,
                           struct error *error) {
  int major = 0, minor = 0, hip = 0;
  int (*hip_version)(int *);
  struct link_map *map;
  if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) != 0)
    return error_set(error, "%s", dlerror());

  *(void **)&hip_version = dlsym(library->handle, "hipRuntimeGetVersion");
  if (hip_version && hip_version(&hip) == 0 && HIP_VERSION_MAJOR(hip) < ROCM_MAJOR_MIN)
    return error_set(error,
                     "%s is of ROCm %d, whose hiprtc does not know gfx942; install ROCm 6 or later",
                     map->l_name, HIP_VERSION_MAJOR(hip));

  int result = library->version(&major, &minor);
  if (result != 0)
    return error_set(error, "%s does not state its version: %s", map->l_name,
                     library->reason(result));

  char *path = realpath(map->l_name, NULL);
  printf("%s\n", path ? path : map->l_name);
  if (hip)
    printf("%s %d.%d.%d\n", symbols, HIP_VERSION_MAJOR(hip), hip / 100000 % 100, hip % 100000);
  else
    printf("%s %d.%d\n", symbols, major, minor);

  return true;
}

static int machine_failed(const struct error *error) {
  fprintf(stderr, "error: %s\n", error->message);
  return RTC_EXIT_MACHINE;
}

/* argv[3] on: SYMBOLS LIBRARY SOURCES TEXT OBJECT; `files` and `options` end with NULL. */
static int compile(char **argv, char **files, char **options) {
  const char *path = argv[4], *sources = argv[5], *text_path = argv[6], *object = argv[7];
  struct rtc_library library;
  struct error error;
  rtc_program program;
  char *text;
  size_t size, n_files = 0, n_options = 0;

  for (; files[n_files]; n_files++)
    continue;
  for (; options[n_options]; n_options++)
    continue;

  char **contents = xcalloc(n_files + 1, sizeof *contents);
  if (!library_load(argv[3], path, &library, &error) ||
      !file_read(text_path, SOURCE_MAX, &text, &size, &error))
    return machine_failed(&error);

  for (size_t i = 0; i < n_files; i++) {
    cleanup_free char *file = xasprintf("%s/%s", sources, files[i]);
    if (!file_read(file, SOURCE_MAX, &contents[i], &size, &error))
      return machine_failed(&error);
  }

  int result = library.create(&program, text, text_path, (int)n_files,
                              (const char *const *)contents, (const char *const *)files);
  if (result != 0) {
    error_set(&error, "%s refuses the program: %s", path, library.reason(result));
    return machine_failed(&error);
  }

  result = library.compile(program, (int)n_options, (const char *const *)options);
  if (result != 0) {
    char *log = xcalloc(LOG_MAX + 1, 1);
    if (library.log_size(program, &size) != 0 || size <= 1 || size > LOG_MAX)
      fprintf(stderr, "error: %s\n", library.reason(result));
    else if (library.log(program, log) == 0)
      fprintf(stderr, "%s\n", log);
    return 1;
  }

  if ((result = library.code_size(program, &size)) != 0 || size > COMPILE_OBJECT_MAX) {
    fprintf(stderr, "error: there is no code: %s\n", library.reason(result));
    return 1;
  }

  char *bytes = xmalloc(size);
  int fd = open(object, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if ((result = library.code(program, bytes)) == 0 && fd >= 0 && fd_write_all(fd, bytes, size))
    return 0;
  error_set(&error, "cannot write the code: %s", result ? library.reason(result) : strerror(errno));

  return machine_failed(&error);
}

static int run(int argc, char **argv) {
  struct rtc_library library;
  struct error error = {0};

  if (argc >= 5 && string_equal(argv[2], "find")) {
    for (char **path = argv + 4; *path; path++)
      if (library_load(argv[3], *path, &library, &error) &&
          identity_print(argv[3], &library, &error))
        return 0;
    return machine_failed(&error);
  }

  int separator = 8;
  while (separator < argc && !string_equal(argv[separator], "--"))
    separator++;
  if (separator >= argc || !string_equal(argv[2], "compile")) {
    fputs("error: `rtc` is for the agent's own use\n", stderr);
    return RTC_EXIT_MACHINE;
  }

  argv[separator] = NULL; /* ends the files */
  return compile(argv, argv + 8, argv + separator + 1);
}

void rtc_main(int argc, char **argv) {
  int code = run(argc, argv);
  fflush(NULL);
  /* Not exit(): the libraries' clean-up at the end of a program has crashed after a compile. */
  _exit(code);
}
