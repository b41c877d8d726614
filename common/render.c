/* The renderers by name, and the files that they return. Pure functions, any thread. */
#include "common/render.h"

bool render(const char *format, const struct release *release, struct rendered *ret, struct error *error) {
#define X(name)                                                                                                        \
  if (strcmp(format, #name) == 0)                                                                                      \
    return render_##name(release, ret, error);
  RENDERERS(X)
#undef X
#define X(name) " " #name
  return error_set(error, "unknown format \"%.64s\"; there are:%s", format, RENDERERS(X));
#undef X
}

void rendered_release(struct rendered *rendered) {
  for (size_t i = 0; i < rendered->n; i++) {
    free(rendered->files[i].path);
    free(rendered->files[i].bytes);
  }
  free(rendered->files);
  *rendered = (struct rendered){0};
}
