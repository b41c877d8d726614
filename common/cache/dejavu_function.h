/* What dejavu's files need to know of a kernel's function, found for a render. Private to the dejavu format.
 *
 * Memory: a function owns everything but the identity's record. Threads: a source is called by the thread that renders. */
#ifndef WAVETUNE_COMMON_CACHE_DEJAVU_FUNCTION_H
#define WAVETUNE_COMMON_CACHE_DEJAVU_FUNCTION_H

#include "common/cache/dejavu.h"

struct dejavu_function {
  struct dejavu_path path; /* whole, with the storage's parts and the release's tag */
  char *signature;
  json_t *keys;      /* array, or null */
  json_t *timings;   /* "timings_data" without labels */
  int64_t evaluated; /* 0: see the provenance */
  bool ignore_dtypes;
  bool all_three;                       /* whether timings have three numbers, where all are known */
  const struct function_record *record; /* the identity's, or packed; NULL: an imported table */
  struct function_record packed;        /* of a build; empty where it is not used */
  const struct kernel *manifest;        /* the source's, where it was needed; or NULL */
  json_t *configs;                      /* of a record: what equal configs have in common: the config's text */
  json_t *order;                        /* of an imported table: names of a config's members */
};
void dejavu_function_release(struct dejavu_function *function);

/* The folders above the functions: of the image, else of the release's environment. layout and torch may be NULL. */
must_check bool dejavu_storage_find(const struct render_request *request, struct dejavu_path *ret, struct error *error);

/* The image's record of the kernel, else its build's, else what its manifest says as an external kernel. *ret is zeroed, and
 * is released by the caller whatever is returned. */
must_check bool dejavu_function_find(const struct render_request *request, const struct dejavu_path *storage,
                                     const struct release_kernel *kernel, struct dejavu_function *ret,
                                     struct error *error);

#endif
