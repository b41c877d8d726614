/* Renderers: a release written as the files that some consumer reads. A format is one file, render_NAME.c, and a line
 * in RENDERERS. `fetch` renders what it verified; the server's export route uses the same code.
 *
 * json: one file cache.json: {"environment": {…}, "kernels": {"softmax/fused": {"kernel": "sha256:…",
 *   "entries": [{"config": {…}, "key": {…}}]}}, "release": "sha256:…", "tag": "default"}, canonical.
 *
 * Memory: files are the caller's, freed by rendered_release. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_RENDER_H
#define WAVETUNE_COMMON_RENDER_H

#include "common/release.h"

struct rendered_file {
  char *path; /* relative to the cache folder */
  char *bytes;
  size_t size;
};

struct rendered {
  size_t n;
  struct rendered_file *files;
};

#define RENDERERS(X) X(json)

#define X(name) must_check bool render_##name(const struct release *release, struct rendered *ret, struct error *error);
RENDERERS(X)
#undef X

/* By name; an unknown one is an error that lists those there are. */
must_check bool render(const char *format, const struct release *release, struct rendered *ret, struct error *error);
void rendered_release(struct rendered *rendered);
#define cleanup_rendered __attribute__((cleanup(rendered_release)))

#endif
