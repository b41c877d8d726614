/* HIP for AMD GPUs by clang: needs no ROCm on the machine, only clang and lld. Memory and threads:
 * see compiler.h. */
#include "agent/compile/compiler.h"
#include "common/program/command.h"

#define CLANG_MAJOR_MIN 19
/* the first that knows gfx942; ROCm numbers its own clang ahead of its release */
#define ROCM_CLANG_MAJOR_MIN 17

/* No headers and no device library: the prelude stands for both. Without -fuse-cuid=none the object
 * holds a name that depends on the command line, and without --no-gpu-bundle-output it is wrapped
 * by a program of another package. */
static const char *const clang_flags[] = {
    "-x",
    "hip",
    "-std=c++17",
    "--cuda-device-only",
    "-nogpulib",
    "-nogpuinc",
    "--no-gpu-bundle-output",
    "-fuse-cuid=none",
    "-mcode-object-version=5",
    "-O3",
    "-w",
    NULL,
};

static void clang_command_make(const struct compiler *compiler, const struct compile_job *job,
                               struct settings *arguments, struct settings *environment) {
  (void)environment;
  settings_add(arguments, xstrdup(compiler->path));
  for (size_t i = 0; clang_flags[i]; i++)
    settings_add(arguments, xstrdup(clang_flags[i]));
  settings_add(arguments, xasprintf("--offload-arch=%s", job->arch));
  settings_add(arguments, xasprintf("-ffile-prefix-map=%s=.", job->sources));
  settings_add(arguments, xstrdup("-iquote"));
  settings_add(arguments, xstrdup(job->sources));
  const char *const last[] = {"-o", compiler->kind->object_name, compiler->kind->text_name};
  for (size_t i = 0; i < ARRAY_LENGTH(last); i++)
    settings_add(arguments, xstrdup(last[i]));
}

static const struct compiler_kind clang_kind = {".co",       "wavetune.launch.hip",
                                                "object.co", "invalid target ID",
                                                clang_flags, clang_command_make};

static bool clang_try(const char *path, int major_min, struct compiler **ret_compiler,
                      struct error *error) {
  cleanup_free char *macros = NULL, *linker = NULL;
  int major = 0;
  if (!compiler_macros(path, "-w", &macros, error))
    return false;
  cleanup_compiler struct compiler *compiler = compiler_new(&clang_kind, path);
  compiler->identity = compiler_name_of(macros, &major);
  if (!compiler->identity || !string_starts(compiler->identity, "clang ") || major < major_min)
    return error_set(error, "%s is %s, not clang %d or later", path,
                     compiler->identity ? compiler->identity : "no compiler that is known",
                     major_min);
  if (!compiler_program(path, "lld", &linker, error))
    return error_set(error,
                     "%s finds no lld, which links its objects; install the lld of its version "
                     "(Debian: apt install "
                     "lld-19)",
                     path);
  compiler_depends_on_program(compiler, path);
  compiler_depends_on_program(compiler, linker);
  *ret_compiler = TAKE(compiler);
  return true;
}

bool clang_open(const char *path, struct compiler **ret_compiler, struct error *error) {
  static const char *const names[] = {"clang-19", "clang-20", "clang-21", "clang-22"};
  static const char rocm_clang[] = "/opt/rocm/llvm/bin/clang";
  struct error reason;
  bool has_reason = false;
  if (path)
    return clang_try(path, ROCM_CLANG_MAJOR_MIN, ret_compiler, error);
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
    cleanup_free char *found = NULL;
    if (!program_find(names[i], &found, error))
      continue;
    if (clang_try(found, CLANG_MAJOR_MIN, ret_compiler, &reason))
      return true;
    has_reason = true;
  }
  if (access(rocm_clang, X_OK) == 0) {
    if (clang_try(rocm_clang, ROCM_CLANG_MAJOR_MIN, ret_compiler, &reason))
      return true;
    has_reason = true;
  }
  if (!has_reason)
    return error_set(error, "there is no clang-19 or later in $PATH; install one (Debian: apt "
                            "install clang-19 lld-19)");
  *error = reason;
  return false;
}
