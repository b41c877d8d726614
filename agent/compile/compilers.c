/* Which compiler a request needs, and where it may be. Memory and threads: see compilers.h. */
#include "agent/compile/compilers.h"

#include <pthread.h>

/* Looked for at most once. */
struct found {
  bool looked;
  struct compiler *compiler; /* NULL: there is none, and `error` says why */
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
  cleanup_compiler struct compiler *cc = compilers->cc, *amd = compilers->amd.compiler,
                                   *nvidia = compilers->nvidia.compiler;
  pthread_mutex_destroy(&compilers->mutex);
  free(compilers);
}

static bool names_library(const char *path) { return strstr(path, ".so") != NULL; }

static bool amd_open(struct compiler **ret_compiler, struct error *error) {
  const char *wanted = getenv("WAVETUNE_HIP_COMPILER");
  struct error hiprtc_error, clang_error;
  if (wanted && *wanted) {
    bool opened = string_equal(wanted, "hiprtc") ? hiprtc_open(NULL, ret_compiler, error)
                  : names_library(wanted)        ? hiprtc_open(wanted, ret_compiler, error)
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

static bool found_use(struct compilers *compilers, struct found *found,
                      bool (*open)(struct compiler **ret_compiler, struct error *error),
                      const struct compiler **ret_compiler, struct error *error) {
  pthread_mutex_lock(&compilers->mutex);
  if (!found->looked && !open(&found->compiler, &found->error))
    found->compiler = NULL;
  found->looked = true;
  pthread_mutex_unlock(&compilers->mutex);
  if (!found->compiler) {
    *error = found->error;
    return false;
  }
  *ret_compiler = found->compiler;
  return true;
}

bool compilers_find(struct compilers *compilers, const struct compile_request *request,
                    const struct compiler **ret_compiler, struct error *error) {
  enum language language = request->kernel->language;
  const char *arch = request->arch ? request->arch : "";
  if (request->is_reference || language == LANGUAGE_C) {
    *ret_compiler = compilers->cc;
    return true;
  }
  if (language != LANGUAGE_HIP)
    return error_set(error,
                     "this agent does not compile %s; such kernels come as builds (wavetune kernel "
                     "push --build)",
                     language_name(language));
  if (string_starts(arch, "gfx"))
    return found_use(compilers, &compilers->amd, amd_open, ret_compiler, error);
  if (string_starts(arch, "sm_"))
    return found_use(compilers, &compilers->nvidia, nvidia_open, ret_compiler, error);
  return error_set(
      error,
      "a kernel in hip is compiled for gfx… or sm_…, not for \"%.40s\"; lease it to an agent with "
      "such a GPU",
      arch);
}
