/* The spaces of captured keys. A builder's result names a build; the job of that key then tunes the
 * configs that the build compiled for it, in the program's order. The first one is the program's
 * first config: the default, with which the others must agree. The result of an entry's build
 * states key and space itself.
 *
 * Memory and threads: captures.h. */
#include "common/builds/build.h"
#include "server/capture/captures.h"
#include "server/capture/captures.sql.h"
#include "server/db/db_record.h"

/* The configs that a variant has compiled code for, as a space. */
static bool space_of_variant(const json_t *variant, struct space **ret, struct error *error) {
  const json_t *object;
  size_t i;
  cleanup_json json_t *configs = json_array();
  json_array_foreach (json_object_get(variant, "objects"), i, object)
    ALWAYS(json_array_append(configs, json_object_get(object, "config")) == 0);
  cleanup_json json_t *space =
      json_pack("{s:O, s:O}", "configs", configs, "default", json_array_get(configs, 0));
  return space_parse(space, ret, error);
}

/* Sets the result's space from the build and the key of its launch. */
static bool space_set(struct capture_result *result, const struct kernel *kernel,
                      const struct build *build, const json_t *key_json, struct error *error) {
  cleanup_key struct key key = {0};
  cleanup_space struct space *space = NULL;
  size_t index;
  if (!key_parse(result->stated_key ? result->stated_key : key_json, NULL, 0, &key, error) ||
      !build_variant(build, &key, &index, error))
    return false;
  const json_t *variant = json_array_get(build->variants, index);
  if (!(result->stated_space ? space_parse(result->stated_space, &space, error)
                             : space_of_variant(variant, &space, error)) ||
      (result->stated_space && !kernel_accepts(kernel, &key, space, error)))
    return false;

  if (result->stated_key) {
    result->key = key_to_text(&key);
    result->key_digest = key_digest(&key);
  }
  result->space_digest = space->digest;
  result->space = json_dumps(space->json, JSON_COMPACT);
  ALWAYS(result->space != NULL);
  result->configs = (int64_t)json_array_size(json_object_get(variant, "objects"));
  return true;
}

/* NULL in *ret: there is no such build. */
static bool build_read(struct db *db, const struct digest *digest, struct kernel **ret_kernel,
                       struct build **ret, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_captures_build, error, BIND("digest", digest));
  if (!rows)
    return false;
  if (!db_count(rows))
    return true;

  cleanup_json json_t *manifest = db_get_json(rows, 0, "manifest"),
                      *build = db_get_json(rows, 0, "build");
  return (kernel_parse(manifest, ret_kernel, error) &&
          build_parse(build, *ret_kernel, ret, error)) ||
         error_become(error, ERROR_DAMAGED); /* both were valid when they were pushed */
}

/* Sets the spaces of those results that name this build. */
static bool spaces_of_build(struct db *db, const struct digest *digest,
                            struct capture_result *results, size_t n, const struct db_rows *keys,
                            struct error *error) {
  cleanup_kernel struct kernel *kernel = NULL;
  cleanup_build struct build *build = NULL;
  if (!build_read(db, digest, &kernel, &build, error))
    return false;

  for (int row = 0; build && row < db_count(keys); row++)
    for (size_t i = 0; i < n; i++) {
      struct capture_result *result = &results[i];
      cleanup_json json_t *key = NULL;
      char pointer[JSON_POINTER_SIZE];
      if (result->id != db_get_integer(keys, row, "id") || result->space ||
          !digest_equal(&result->build, digest))
        continue;
      key = db_get_json(keys, row, "key");
      json_pointer_index(pointer, sizeof pointer, "/launches", i);
      if (!space_set(result, kernel, build, key, error)) {
        error_prefix(error, "the build has no code for the launch: ");
        error->pointer[0] = 0;
        return error_pointer_prefix(error, pointer);
      }
    }
  return true;
}

bool capture_spaces_set(struct db *db, struct capture_result *results, size_t n,
                        struct error *error) {
  cleanup_free int64_t *ids = xcalloc(n + 1, sizeof *ids);
  for (size_t i = 0; i < n; i++)
    ids[i] = results[i].id;
  cleanup_rows struct db_rows *keys =
      db_query(db, &sql_captures_keys, error, BIND_ALL("ids", ids, n));
  if (!keys)
    return false;

  for (size_t i = 0; i < n; i++)
    if (!digest_is_none(&results[i].build) && !results[i].space &&
        !spaces_of_build(db, &results[i].build, results, n, keys, error))
      return false;
  return true;
}
