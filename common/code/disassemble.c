/* Disassembly by the tools of LLVM and CUDA: finding one, running it confined.
 *
 * Memory: see disassemble.h. Threads: any; the environment is read, never set. */
#include "common/code/disassemble.h"

#include <glob.h>
#include <sys/wait.h>

#include "common/base/file.h"
#include "common/program/command.h"

#define TOOLS_MAX 32
#define ELF_MACHINE_AT 18
#define ELF_MACHINE_CUDA 190

/* Paths of programs to try, in order. */
struct tools {
  size_t n;
  char *paths[TOOLS_MAX];
};

static void tools_release(struct tools *tools) {
  for (size_t i = 0; i < tools->n; i++)
    free(tools->paths[i]);
}

/* Takes `path`, unless it is no program or is there already. */
static void tools_take(struct tools *tools, char *path) {
  bool is_new = tools->n < TOOLS_MAX && access(path, X_OK) == 0;
  for (size_t i = 0; is_new && i < tools->n; i++)
    is_new = !string_equal(tools->paths[i], path);
  if (is_new)
    tools->paths[tools->n++] = path;
  else
    free(path);
}

static void tools_add_of_path(struct tools *tools, const char *program) {
  char *path = NULL;
  struct error error;
  if (program_find(program, &path, &error))
    tools_take(tools, path);
}

static void tools_add_matching(struct tools *tools, const char *pattern) {
  glob_t found = {0};
  if (glob(pattern, 0, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++)
      tools_take(tools, xstrdup(found.gl_pathv[i]));
  }
  globfree(&found);
}

static void find_objdump(struct tools *tools) {
  for (int version = 30; version >= 19; version--) {
    cleanup_free char *program = xasprintf("llvm-objdump-%d", version);
    tools_add_of_path(tools, program);
  }
  tools_add_of_path(tools, "llvm-objdump");
  tools_add_matching(tools, "/opt/rocm/llvm/bin/llvm-objdump");
}

static void find_cuda(struct tools *tools) {
  const char *environment = getenv("VIRTUAL_ENV");
  static const char *const programs[] = {"nvdisasm", "cuobjdump"};
  for (size_t i = 0; i < ARRAY_LENGTH(programs); i++) {
    tools_add_of_path(tools, programs[i]);
    cleanup_free char *in_environment =
        xasprintf("%s/lib/python3*/site-packages/triton/backends/nvidia/bin/%s",
                  environment && *environment ? environment : "/usr/local", programs[i]);
    cleanup_free char *in_toolkit = xasprintf("/usr/local/cuda/bin/%s", programs[i]);
    cleanup_free char *in_system =
        xasprintf("/usr/local/lib/python3*/*-packages/triton/backends/nvidia/bin/%s", programs[i]);
    tools_add_matching(tools, in_environment);
    tools_add_matching(tools, in_toolkit);
    tools_add_matching(tools, in_system);
  }
}

static bool find_tools(bool is_cuda, struct tools *ret_tools, struct error *error) {
  const char *variable = is_cuda ? "WAVETUNE_NVDISASM" : "WAVETUNE_OBJDUMP";
  const char *chosen = getenv(variable);
  if (chosen && *chosen) {
    tools_take(ret_tools, xstrdup(chosen));
    return ret_tools->n == 1 ||
           error_set(error, "%s names %s, which is no program", variable, chosen);
  }
  (is_cuda ? find_cuda : find_objdump)(ret_tools);
  if (ret_tools->n)
    return true;
  return is_cuda ? error_set(error, "no disassembler for CUDA code is here; install nvdisasm (of "
                                    "the CUDA toolkit, or of "
                                    "a Triton package) or name it in WAVETUNE_NVDISASM")
                 : error_set(error, "no disassembler for AMD GPU code is here; install "
                                    "llvm-objdump 19 or later (Debian: "
                                    "apt install llvm-19) or name it in WAVETUNE_OBJDUMP");
}

/* The first line that says something, for an error. Cuts `output`. */
static const char *first_line(char *output) {
  output += strspn(output, " \t\r\n");
  output[strcspn(output, "\r\n")] = '\0';
  return output[0] ? output : "it said nothing";
}

/* Runs one tool over the file. */
static bool tool_run(const char *tool, bool is_cuda, const char *folder, char *file,
                     char **ret_text, struct error *error) {
  const char *const readable[] = {"/usr",      "/lib", "/lib64", "/opt/rocm", "/etc/ld.so.cache",
                                  "/dev/null", tool,   folder,   NULL};
  const char *const writable[] = {NULL};
  cleanup_sandbox struct sandbox *sandbox = NULL;
  if (!sandbox_new(&(struct sandbox_rules){readable, writable}, &sandbox, error))
    return false;
  const char *name = strrchr(tool, '/') ? strrchr(tool, '/') + 1 : tool;
  char disassemble_all[] = "-d", no_headers[] = "-c", sass[] = "-sass";
  char *how = !is_cuda ? disassemble_all : string_starts(name, "cuobjdump") ? sass : no_headers;
  cleanup_free char *program = xstrdup(tool);
  char locale[] = "LC_ALL=C";
  char *const environment[] = {locale, NULL};
  char *const arguments[] = {program, how, file, NULL};
  struct command command = {.arguments = arguments,
                            .environment = environment,
                            .folder = folder,
                            .timeout_ms = 60000,
                            .cpu_seconds_max = 60,
                            .memory_bytes_max = (uint64_t)8 << 30,
                            .file_bytes_max = (uint64_t)1 << 20,
                            .output_max = DISASSEMBLY_MAX,
                            .sandbox = sandbox,
                            .stop_fd = -1};
  struct command_result result;
  if (!command_run(&command, &result, error))
    return false;
  cleanup_free char *output = result.output;
  if (strlen(output) == DISASSEMBLY_MAX)
    return error_set(error, "the disassembly is longer than %zu bytes", DISASSEMBLY_MAX);
  if (!result.succeeded) {
    bool exited = WIFEXITED(result.status);
    return error_set(error, "%s %s %d: %.300s", tool,
                     exited ? "exited with" : "was ended (its limit is 60 s) by signal",
                     exited ? WEXITSTATUS(result.status) : WTERMSIG(result.status),
                     first_line(output));
  }
  *ret_text = TAKE(output);
  return true;
}

static bool tools_try(const struct tools *tools, bool is_cuda, const char *folder, char *file,
                      char **ret_text, struct error *error) {
  for (size_t i = 0; i < tools->n; i++) {
    if (tool_run(tools->paths[i], is_cuda, folder, file, ret_text, error))
      return true;
  }
  return false;
}

bool disassemble(const void *bytes, size_t size, char **ret_text, struct error *error) {
  if (!code_object_is(bytes, size))
    return error_set(
        error, "these %zu bytes are no compiled GPU code, so they cannot be disassembled", size);
  bool is_cuda = ((const uint8_t *)bytes)[ELF_MACHINE_AT] == ELF_MACHINE_CUDA;
  __attribute__((cleanup(tools_release))) struct tools tools = {0};
  if (!find_tools(is_cuda, &tools, error))
    return false;
  cleanup_free char *folder = NULL;
  if (!folder_make_temporary(&folder, error))
    return error_prefix(error, "disassembling: ");
  cleanup_free char *file = xasprintf("%s/code", folder);
  bool done = file_write_atomically(file, bytes, size, 0600, error) &&
              tools_try(&tools, is_cuda, folder, file, ret_text, error);
  struct error ignored; /* a folder that stays behind is no reason to refuse an answer */
  (void)!folder_remove(folder, &ignored);
  return done;
}
