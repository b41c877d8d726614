/* What a release holds: its order, and how two releases differ. Memory: a release owns everything.
 * Threads: read-only, any. */
#include "common/cache/release.h"

static void kernel_release(struct release_kernel *kernel) {
  free(kernel->name);
  for (size_t i = 0; i < kernel->n_key_names; i++)
    free(kernel->key_names[i]);
  free(kernel->key_names);
  for (size_t i = 0; i < kernel->n_configs; i++)
    json_decref(kernel->configs[i].values);
  free(kernel->configs);
  for (size_t i = 0; i < kernel->n_provenance; i++)
    json_decref(kernel->provenance[i]);
  free(kernel->provenance);
  free(kernel->winners);
}

void release_free(struct release *release) {
  if (!release)
    return;
  for (size_t i = 0; i < release->n_kernels; i++)
    kernel_release(&release->kernels[i]);
  free(release->kernels);
  environment_release(&release->environment);
  free(release->tag);
  free(release->bytes);
  free(release);
}

int release_kernel_compare(const struct release_kernel *a, const struct release_kernel *b) {
  int order = strcmp(a->name, b->name);
  return order ? order : memcmp(a->hash.bytes, b->hash.bytes, DIGEST_SIZE);
}

int release_winner_compare(const struct release_winner *a, const struct release_winner *b) {
  int order = memcmp(a->key, b->key, a->key_size < b->key_size ? a->key_size : b->key_size);
  return order ? order : (a->key_size > b->key_size) - (a->key_size < b->key_size);
}

/* A walk over all winners in their order. */
struct walk {
  const struct release *release;
  size_t kernel, winner;
};

static const struct release_kernel *walk_kernel(const struct walk *walk) {
  return walk->kernel < walk->release->n_kernels ? &walk->release->kernels[walk->kernel] : NULL;
}

static const json_t *walk_config(const struct walk *walk) {
  const struct release_kernel *kernel = walk_kernel(walk);
  return kernel->configs[kernel->winners[walk->winner].config].values;
}

static void walk_step(struct walk *walk) {
  if (++walk->winner == walk_kernel(walk)->n_winners) {
    walk->kernel++;
    walk->winner = 0;
  }
}

/* What is at its end comes after everything. */
static int walks_compare(const struct walk *a, const struct walk *b) {
  const struct release_kernel *left = walk_kernel(a), *right = walk_kernel(b);
  if (!left || !right)
    return left ? -1 : 1;
  int order = release_kernel_compare(left, right);
  return order ? order
               : release_winner_compare(&left->winners[a->winner], &right->winners[b->winner]);
}

static json_t *winner_named(const struct walk *walk) {
  const struct release_kernel *kernel = walk_kernel(walk);
  json_t *object = json_object();
  ALWAYS(json_object_set_new(object, "name", json_string(kernel->name)) == 0);
  ALWAYS(json_object_set_new(object, "kernel", json_digest_text(&kernel->hash)) == 0);
  ALWAYS(json_object_set_new(object, "key",
                             release_key_object(kernel, &kernel->winners[walk->winner])) == 0);
  return object;
}

/* `name`: "config", "from" or "to". */
static void config_set(json_t *object, const char *name, const struct walk *walk) {
  ALWAYS(json_object_set(object, name, (json_t *)walk_config(walk)) == 0);
}

static json_t *winner_with_config(const struct walk *walk) {
  json_t *object = winner_named(walk);
  config_set(object, "config", walk);
  return object;
}

static json_t *winner_change(const struct walk *from, const struct walk *to) {
  json_t *object = winner_named(to);
  config_set(object, "from", from);
  config_set(object, "to", to);
  return object;
}

json_t *release_diff(const struct release *from, const struct release *to) {
  struct walk before = {from}, after = {to};
  json_t *added = json_array(), *removed = json_array(), *changed = json_array();
  json_int_t same = 0;
  while (walk_kernel(&before) || walk_kernel(&after)) {
    int order = walks_compare(&before, &after);
    if (order == 0 && json_equal(walk_config(&before), walk_config(&after)))
      same++;
    else if (order == 0)
      ALWAYS(json_array_append_new(changed, winner_change(&before, &after)) == 0);
    else
      ALWAYS(json_array_append_new(order < 0 ? removed : added,
                                   winner_with_config(order < 0 ? &before : &after)) == 0);
    if (order <= 0)
      walk_step(&before);
    if (order >= 0)
      walk_step(&after);
  }
  json_t *diff = json_object();
  json_object_set_new(diff, "added", added);
  json_object_set_new(diff, "removed", removed);
  json_object_set_new(diff, "changed", changed);
  json_object_set_new(diff, "same", json_integer(same));
  return diff;
}
