/* Which compiled objects the configs of a job run, by its build. */
#include "common/base/log.h"
#include "common/builds/build.h"
#include "server/kernel/kernels.h"
#include "server/poison/poison.h"

struct poison_variant {
  struct kernel *kernel;
  struct build *build;
  const json_t *objects; /* in `build` */
};

void poison_variant_free(struct poison_variant *variant) {
  if (variant->build)
    build_free(variant->build);
  if (variant->kernel)
    kernel_free(variant->kernel);
  free(variant);
}

bool poison_variant_load(struct db *db, const struct poison_place *place,
                         struct poison_variant **ret_variant, struct error *error) {
  cleanup_json json_t *manifest = NULL, *json = NULL;
  cleanup_free char *text = NULL;
  *ret_variant = NULL;
  if (digest_is_none(&place->build))
    return true;
  if (!kernel_load(db, &place->kernel, &manifest, error) ||
      !build_load(db, &place->kernel, &place->build, &text, error))
    return false;

  cleanup_variant struct poison_variant *variant = xcalloc(1, sizeof *variant);
  struct error unread; /* another version stored it */
  size_t index;
  if (!manifest || !text || !json_parse(text, strlen(text), &json, &unread) ||
      !kernel_parse(manifest, &variant->kernel, &unread) ||
      !build_parse(json, variant->kernel, &variant->build, &unread) ||
      !build_variant(variant->build, place->key, &index, &unread)) {
    log_warning("poison: the objects of a build are not known: %s",
                manifest && text ? unread.message : "it is not stored");
    return true;
  }

  variant->objects = json_object_get(json_array_get(variant->build->variants, index), "objects");
  *ret_variant = TAKE(variant);
  return true;
}

static bool object_digest(const json_t *object, struct digest *ret) {
  return digest_parse(json_string_value(json_object_get(object, "digest")), ret);
}

bool poison_object_of(const struct poison_variant *variant, const json_t *config,
                      struct digest *ret_object) {
  const json_t *object;
  size_t i;
  json_array_foreach (variant->objects, i, object)
    if (json_equal(json_object_get(object, "config"), config))
      return object_digest(object, ret_object);
  return false;
}

void poison_object_add(const struct poison_variant *variant, const struct digest *object,
                       const struct space *space, int64_t entry, const char *reason,
                       struct poison_hits *hits) {
  const json_t *other;
  size_t i;
  json_array_foreach (variant->objects, i, other) {
    struct digest digest;
    struct error absent; /* the build has configs that the space lacks */
    uint64_t config;
    if (object_digest(other, &digest) && digest_equal(&digest, object) &&
        space_config_from_json(space, json_object_get(other, "config"), &config, &absent))
      poison_hit_add(hits, entry, config, reason);
  }
}
