/* Opening a runtime's shared library. Memory: libraries stay open. Threads: any. */
#include <dlfcn.h>

#include "agent/device/gpu.h"

static bool symbols_find(void *library, const char *name, const struct gpu_symbol *symbols,
                         size_t n, void *functions, struct error *error) {
  for (size_t i = 0; i < n; i++) {
    void *symbol = dlsym(library, symbols[i].name);
    if (!symbol && !symbols[i].is_optional)
      return error_set(error,
                       "%s has no %s: it is too old or no GPU runtime; install another version",
                       name, symbols[i].name);
    memcpy((char *)functions + symbols[i].offset, &symbol, sizeof symbol);
  }
  return true;
}

bool gpu_library_load(const char *what, const char *const *names, const struct gpu_symbol *symbols,
                      size_t n_symbols, void *ret_functions, struct error *error) {
  const char *reason = NULL;
  cleanup_free char *first = NULL;
  for (size_t i = 0; names[i]; i++) {
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library)
      return symbols_find(library, names[i], symbols, n_symbols, ret_functions, error);
    reason = dlerror();
    if (!first)
      first = xstrdup(reason ? reason : "no reason was given");
  }
  return error_set(error, "the %s is not installed or cannot be loaded: %s", what,
                   first ? first : "no name was given");
}
