/* The process that runs a runtime compiler. What it says goes to stderr, for the log of the
 * compile.
 *
 * Memory: freed when it ends. Threads: one. */
#include "agent/compile/rtc.h"

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

/* hiprtc's and NVRTC's functions have the same names and types but for how they begin, and for the
 * last two. */
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

static void *function_find(void *handle, const char *symbols, const char *name, bool *found) {
  cleanup_free char *symbol = xasprintf("%s%s", symbols, name);
  void *function = dlsym(handle, symbol);
  *found = *found && function;
  return function;
}

static bool library_load(const char *symbols, const char *path, struct rtc_library *ret,
                         struct error *error) {
  struct rtc_library library = {.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
  if (!library.handle)
    return error_set(error, "%s", dlerror());
  bool found = true, is_cuda = string_equal(symbols, "nvrtc");
  *(void **)&library.version = function_find(library.handle, symbols, "Version", &found);
  *(void **)&library.create = function_find(library.handle, symbols, "CreateProgram", &found);
  *(void **)&library.compile = function_find(library.handle, symbols, "CompileProgram", &found);
  *(void **)&library.log_size = function_find(library.handle, symbols, "GetProgramLogSize", &found);
  *(void **)&library.log = function_find(library.handle, symbols, "GetProgramLog", &found);
  *(void **)&library.reason = function_find(library.handle, symbols, "GetErrorString", &found);
  *(void **)&library.code_size =
      function_find(library.handle, symbols, is_cuda ? "GetCUBINSize" : "GetCodeSize", &found);
  *(void **)&library.code =
      function_find(library.handle, symbols, is_cuda ? "GetCUBIN" : "GetCode", &found);
  if (!found)
    return error_set(error, "%s is not a library of %s", path, symbols);
  *ret = library;
  return true;
}

/* "hiprtc 6.4.43484" by the HIP runtime's version where the library has it, else "nvrtc 13.0". */
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
    return error_set(error, "%s does not say its version: %s", map->l_name,
                     library->reason(result));
  cleanup_free char *path = realpath(map->l_name, NULL);
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

static int find(const char *symbols, char **paths) {
  struct rtc_library library;
  struct error error = {0};
  for (; *paths; paths++) {
    if (library_load(symbols, *paths, &library, &error) &&
        identity_print(symbols, &library, &error))
      return 0;
  }
  return machine_failed(&error);
}

static void log_print(const struct rtc_library *library, rtc_program program, int result) {
  size_t size = 0;
  if (library->log_size(program, &size) == 0 && size > 1 && size <= LOG_MAX) {
    cleanup_free char *log = xcalloc(size + 1, 1);
    if (library->log(program, log) == 0)
      fprintf(stderr, "%s\n", log);
  } else {
    fprintf(stderr, "error: %s\n", library->reason(result));
  }
}

struct compile_order {
  const char *library, *sources, *text, *object;
  size_t n_files, n_options;
  char **files, **options;
};

static int compile_text(const struct rtc_library *library, const struct compile_order *order,
                        const char *text, const char *const *files) {
  rtc_program program;
  struct error error;
  size_t size;
  int result = library->create(&program, text, order->text, (int)order->n_files, files,
                               (const char *const *)order->files);
  if (result != 0) {
    error_set(&error, "%s takes no program: %s", order->library, library->reason(result));
    return machine_failed(&error);
  }
  result = library->compile(program, (int)order->n_options, (const char *const *)order->options);
  if (result != 0) {
    log_print(library, program, result);
    return 1;
  }
  if ((result = library->code_size(program, &size)) != 0 || size > COMPILE_OBJECT_MAX) {
    fprintf(stderr, "error: there is no code: %s\n", library->reason(result));
    return 1;
  }
  cleanup_free char *bytes = xmalloc(size);
  cleanup_fd int fd = open(order->object, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if ((result = library->code(program, bytes)) == 0 && fd >= 0 && fd_write_all(fd, bytes, size))
    return 0;
  error_set(&error, "cannot write the code: %s",
            result ? library->reason(result) : strerror(errno));
  return machine_failed(&error);
}

static int compile(const char *symbols, const struct compile_order *order) {
  struct rtc_library library;
  struct error error;
  size_t size;
  cleanup_free char *text = NULL;
  char **files = xcalloc(order->n_files + 1, sizeof *files);
  if (!library_load(symbols, order->library, &library, &error) ||
      !file_read(order->text, SOURCE_MAX, &text, &size, &error))
    return machine_failed(&error);
  for (size_t i = 0; i < order->n_files; i++) {
    cleanup_free char *path = xasprintf("%s/%s", order->sources, order->files[i]);
    if (!file_read(path, SOURCE_MAX, &files[i], &size, &error))
      return machine_failed(&error);
  }
  int code = compile_text(&library, order, text, (const char *const *)files);
  for (size_t i = 0; i < order->n_files; i++)
    free(files[i]);
  free(files);
  return code;
}

static int order_run(int argc, char **argv) {
  if (argc >= 5 && string_equal(argv[2], "find"))
    return find(argv[3], argv + 4);
  int separator = 8;
  while (separator < argc && !string_equal(argv[separator], "--"))
    separator++;
  if (separator >= argc || !string_equal(argv[2], "compile")) {
    fputs("error: `rtc` is for the agent's own use\n", stderr);
    return RTC_EXIT_MACHINE;
  }
  struct compile_order order = {.library = argv[4],
                                .sources = argv[5],
                                .text = argv[6],
                                .object = argv[7],
                                .n_files = (size_t)(separator - 8),
                                .files = argv + 8,
                                .n_options = (size_t)(argc - separator - 1),
                                .options = argv + separator + 1};
  return compile(argv[3], &order);
}

void rtc_main(int argc, char **argv) {
  int code = order_run(argc, argv);
  fflush(NULL);
  /* Not exit(): the libraries' clean-up at a program's end has crashed after all was done. */
  _exit(code);
}
