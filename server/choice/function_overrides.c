/* Which overrides concern an autotuned function. Memory and threads: function_overrides.h. */
#include "server/choice/function_overrides.h"

#include "common/base/log.h"
#include "common/space/key.h"
#include "server/choice/function_overrides.sql.h"
#include "server/db/db_record.h"
#include "server/release/overrides.h"

/* What a row of the statement says of a kernel; a stored record or manifest that cannot be read is
 * logged, and the kernel is left out. */
static void kernel_read(const struct db_rows *rows, int row, struct function_rules *rules) {
  struct function_kernel *it = &rules->kernels[rules->n_kernels];
  struct digest hash = db_get_digest(rows, row, "hash");
  struct error error;
  cleanup_json json_t *stored = db_get_json(rows, row, "record"),
                      *manifest = db_get_json(rows, row, "manifest");
  digest_format(&hash, it->hash);
  if (!function_record_parse(stored, &it->record, &error) ||
      !kernel_parse(manifest, &it->manifest, &error)) {
    log_error("choices: kernel %s: %s", it->hash, error.message);
    function_record_release(&it->record);
    *it = (struct function_kernel){0};
    return;
  }

  it->name = xstrdup(db_get(rows, row, "name"));
  it->has_key =
      tuning_key_bind(&it->record, it->manifest, (const char *const *)it->manifest->key_names,
                      it->manifest->n_key_names, &it->key, &error);
  rules->n_kernels++;
}

bool function_rules_load(struct db *db, const struct environment *environment, const char *tag,
                         struct function_rules *ret, struct error *error) {
  struct db_array hashes, names;
  cleanup_function_rules struct function_rules rules = {0};
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  if (!overrides_load(db, environment, tag, &rules.overrides, error))
    return false;

  db_array_init(&hashes);
  db_array_init(&names);
  for (size_t i = 0; i < rules.overrides.n; i++) {
    struct digest hash;
    if (digest_parse(rules.overrides.all[i].kernel, &hash))
      db_array_digest(&hashes, &hash);
    else
      db_array_text(&names, rules.overrides.all[i].kernel);
  }
  bind_array(&parameters, "hashes", &hashes);
  bind_array(&parameters, "names", &names);
  if (rules.overrides.n) {
    if (!db_run(db, &sql_function_kernels, &parameters, &rows, error))
      return false;
    rules.kernels = xcalloc((size_t)db_count(rows) + 1, sizeof *rules.kernels);
    for (int row = 0; row < db_count(rows); row++)
      kernel_read(rows, row, &rules);
  }

  *ret = rules;
  rules = (struct function_rules){0};
  return true;
}

void function_rules_release(struct function_rules *rules) {
  for (size_t i = 0; i < rules->n_kernels; i++) {
    struct function_kernel *it = &rules->kernels[i];
    if (it->has_key)
      tuning_key_release(&it->key);
    function_record_release(&it->record);
    kernel_free(it->manifest);
    free(it->name);
  }
  free(rules->kernels);
  overrides_release(&rules->overrides);
  *rules = (struct function_rules){0};
}

/* Whether the override's key is one of the kernel's. *ret_text: the autotuner's key, canonical;
 * NULL: the build does not tell it. */
static bool key_translate(const struct function_kernel *kernel, const struct override *override,
                          char **ret_text) {
  cleanup_key struct key key = {0};
  cleanup_json json_t *texts = json_array();
  struct error why;
  *ret_text = NULL;
  if (!key_parse(override->key, (const char *const *)kernel->manifest->key_names,
                 kernel->manifest->n_key_names, &key, &why))
    return false;
  if (kernel->has_key && tuning_key_texts(&kernel->key, key.values, texts, &why))
    *ret_text = json_canonical(texts);
  return true;
}

/* Adds the override for a key of the function, which is taken over; NULL: any, or not known. */
static void add(struct overrides *own, const struct override *override, const char *closure,
                char *key_text) {
  if (override->key && !key_text && override->kind == OVERRIDE_PIN)
    return;

  struct override *it = APPEND(own->all, own->n);
  *it = *override;
  it->kernel = (char *)closure;
  it->key_text = key_text;
}

void function_overrides_init(struct overrides *ret, const struct function_rules *rules,
                             const char *closure, const char *name) {
  cleanup_free const struct function_kernel **kernels =
      xcalloc(rules->n_kernels + 1, sizeof(struct function_kernel *));
  struct digest digest;
  size_t n = 0;
  *ret = (struct overrides){0};
  ALWAYS(digest_parse(closure, &digest));
  for (size_t i = 0; i < rules->n_kernels; i++)
    if (digest_equal(&rules->kernels[i].record.closure, &digest))
      kernels[n++] = &rules->kernels[i];

  for (size_t i = 0; i < rules->overrides.n; i++) {
    const struct override *it = &rules->overrides.all[i];
    bool is_known = false; /* by a build */
    for (size_t j = 0; j < n; j++) {
      char *text = NULL;
      if (!override_names(it, kernels[j]->hash, kernels[j]->name))
        continue;
      is_known = true;
      if (!it->key || key_translate(kernels[j], it, &text))
        add(ret, it, closure, text);
    }
    if (!is_known && override_names(it, closure, name))
      add(ret, it, closure, NULL);
  }
}

void function_overrides_release(struct overrides *overrides) {
  for (size_t i = 0; i < overrides->n; i++)
    free(overrides->all[i].key_text);
  free(overrides->all);
  *overrides = (struct overrides){0};
}
