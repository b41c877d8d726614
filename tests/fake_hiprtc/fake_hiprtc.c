/* A hiprtc for tests: its functions, with clang behind them, so that the agent's calls of hiprtc
 * run without ROCm. Like the real one it brings the language's words itself, which `words` stands
 * for. What the source mentions makes it fail in other ways: FAKE_ABORT ends the process,
 * FAKE_NO_CODE leaves nothing to fetch.
 *
 * Memory: a program owns copies of its texts. Threads: one. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS_MAX 100
#define FILE_MAX (1 << 20)
#define ERROR_COMPILATION 6
#define ERROR_INVALID_PROGRAM 4

struct program {
  char *source;
  char *log, *code;
  size_t log_size, code_size;
};

/* int64_t is another type here than the compiler's own, as it is in some versions. */
static const char words[] =
    "#define __HIPCC_RTC__ 1\n"
    "#define __global__ __attribute__((global))\n#define __device__ __attribute__((device))\n"
    "#define __shared__ __attribute__((shared))\n#define __launch_bounds__(...) wrong\n"
    "typedef long long int64_t;\nstruct words_index { unsigned x, y, z; };\n"
    "static __device__ words_index words_thread() { return {__builtin_amdgcn_workitem_id_x(), 0, "
    "0}; }\n"
    "static __device__ words_index words_block() { return {__builtin_amdgcn_workgroup_id_x(), 0, "
    "0}; }\n"
    "#define threadIdx words_thread()\n#define blockIdx words_block()\n";

int hipRuntimeGetVersion(int *version);
int hiprtcVersion(int *major, int *minor);
const char *hiprtcGetErrorString(int result);
int hiprtcCreateProgram(struct program **ret, const char *source, const char *name, int n,
                        const char **headers, const char **names);
int hiprtcCompileProgram(struct program *program, int n, const char **options);
int hiprtcGetProgramLogSize(struct program *program, size_t *size);
int hiprtcGetProgramLog(struct program *program, char *log);
int hiprtcGetCodeSize(struct program *program, size_t *size);
int hiprtcGetCode(struct program *program, char *code);

int hipRuntimeGetVersion(int *version) {
  *version = HIP_VERSION_FAKED;
  return 0;
}

int hiprtcVersion(int *major, int *minor) {
  *major = 9;
  *minor = 0;
  return 0;
}

const char *hiprtcGetErrorString(int result) {
  return result == ERROR_COMPILATION ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR_INVALID_PROGRAM";
}

static bool file_put(const char *name, const char *before, const char *text) {
  FILE *file = fopen(name, "w");
  bool ok = file && fputs(before, file) >= 0 && fputs(text, file) >= 0;
  return file ? fclose(file) == 0 && ok : false;
}

static char *file_get(const char *name, size_t *size) {
  char *bytes = malloc(FILE_MAX);
  FILE *file = fopen(name, "r");
  *size = file ? fread(bytes, 1, FILE_MAX - 1, file) : 0;
  bytes[*size] = '\0';
  if (file)
    fclose(file);
  return bytes;
}

int hiprtcCreateProgram(struct program **ret, const char *source, const char *name, int n,
                        const char **headers, const char **names) {
  bool ok = name && file_put("fake.hip", words, source);
  for (int i = 0; i < n; i++)
    ok = ok && file_put(names[i], "", headers[i]);
  if (!ok)
    return ERROR_INVALID_PROGRAM;
  struct program *program = calloc(1, sizeof *program);
  program->source = strdup(n ? headers[0] : source);
  *ret = program;
  return 0;
}

int hiprtcCompileProgram(struct program *program, int n, const char **options) {
  static const char *const first[] = {"clang-19",  "-x",        "hip",     "--cuda-device-only",
                                      "-nogpulib", "-nogpuinc", "-I.",     "--no-gpu-bundle-output",
                                      "-o",        "fake.co",   "fake.hip"};
  const size_t n_first = sizeof first / sizeof first[0];
  const char *arguments[OPTIONS_MAX] = {0};
  if (strstr(program->source, "FAKE_ABORT"))
    abort();
  memcpy(arguments, first, sizeof first);
  for (int i = 0; i < n && (size_t)i + n_first + 1 < OPTIONS_MAX; i++)
    arguments[n_first + (size_t)i] = options[i];
  int status = 1;
  pid_t child = fork();
  if (child == 0) {
    if (freopen("fake.log", "w", stderr))
      execvp(arguments[0], (char *const *)arguments);
    _exit(127);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    program->log = file_get("fake.log", &program->log_size);
    return ERROR_COMPILATION;
  }
  if (!strstr(program->source, "FAKE_NO_CODE"))
    program->code = file_get("fake.co", &program->code_size);
  return 0;
}

int hiprtcGetProgramLogSize(struct program *program, size_t *size) {
  *size = program->log_size + 1;
  return 0;
}

int hiprtcGetProgramLog(struct program *program, char *log) {
  memcpy(log, program->log, program->log_size + 1);
  return 0;
}

int hiprtcGetCodeSize(struct program *program, size_t *size) {
  *size = program->code_size;
  return program->code ? 0 : ERROR_INVALID_PROGRAM;
}

int hiprtcGetCode(struct program *program, char *code) {
  memcpy(code, program->code, program->code_size);
  return 0;
}
