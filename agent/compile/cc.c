/* The system's C compiler: kernels in c, and every reference. Memory and threads: see
 * compiler.h. */
#include "agent/compile/compiler.h"
#include "common/program/command.h"

/* -fopenmp-simd makes `#pragma omp simd reduction(…)` count and needs no runtime. The rest after
 * -shared makes the object depend on nothing but its content, and unresolved names an error of the
 * compile. */
static const char *const cc_flags[] = {
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-fPIC",
    "-fopenmp-simd",
    "-w",
    "-shared",
    "-s",
    "-frandom-seed=wavetune",
    "-Wl,--build-id=none",
    "-Wl,-z,defs",
    NULL,
};

static void cc_command_make(const struct compiler *compiler, const struct compile_job *job,
                            struct settings *arguments, struct settings *environment) {
  (void)environment;
  settings_add(arguments, xstrdup(compiler->path));
  for (size_t i = 0; cc_flags[i]; i++)
    settings_add(arguments, xstrdup(cc_flags[i]));
  settings_add(arguments, xasprintf("-ffile-prefix-map=%s=.", job->sources));
  settings_add(arguments, xstrdup("-iquote"));
  settings_add(arguments, xstrdup(job->sources));
  for (size_t i = 0; i < job->defines.n; i++)
    settings_add(arguments, xasprintf("-D%s", job->defines.texts[i]));
  const char *const last[] = {"-o", compiler->kind->object_name, compiler->kind->text_name, "-lm"};
  for (size_t i = 0; i < ARRAY_LENGTH(last); i++)
    settings_add(arguments, xstrdup(last[i]));
}

static const struct compiler_kind cc_kind = {".so",    "wavetune.launch.c", "object.so", NULL,
                                             cc_flags, cc_command_make};

bool cc_open(struct compiler **ret_compiler, struct error *error) {
  static const char *const programs[] = {"cc1", "as",
                                         "ld"}; /* what gcc runs; clang runs "ld" alone */
  cleanup_free char *path = NULL, *macros = NULL;
  char text[DIGEST_TEXT_SIZE];
  struct error ignored;
  int major;
  if (!program_find("cc", &path, error) || !compiler_macros(path, "-march=native", &macros, error))
    return false;
  cleanup_compiler struct compiler *compiler = compiler_new(&cc_kind, path);
  compiler->identity = compiler_name_of(macros, &major);
  if (!compiler->identity)
    return error_set(error, "%s does not say that it is gcc or clang; make `cc` one of them", path);
  /* -march=native means this CPU, which the macros describe; a cache may be shared by machines that
   * differ in it. */
  struct digest digest = digest_of(macros, strlen(macros));
  compiler_depends_on(compiler, digest_format(&digest, text));
  compiler_depends_on_program(compiler, path);
  for (size_t i = 0; i < ARRAY_LENGTH(programs); i++) {
    cleanup_free char *program = NULL;
    if (compiler_program(path, programs[i], &program, &ignored) ||
        program_find(programs[i], &program, &ignored))
      compiler_depends_on_program(compiler, program);
  }
  *ret_compiler = TAKE(compiler);
  return true;
}

bool compiler_identity(char **ret_identity, struct error *error) {
  cleanup_compiler struct compiler *cc = NULL;
  if (!cc_open(&cc, error))
    return false;
  *ret_identity = TAKE(cc->identity);
  return true;
}
