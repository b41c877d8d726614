/* Any bytes as files of a cache format. The first byte is the letter of a format (format_letters);
 * then come files, each a path, a newline and its bytes, with a NUL between files. What a format
 * reads is consistent: its manifests are kernels, a release can be made of it, and what the format
 * writes of that release it reads again with the same meaning. */
#include "common/cache/format.h"
#include "common/cache/release.h"
#include "tests/fuzz/fuzz.h"

/* Letters, rather than indices: a new format must not assign the corpus to other formats. */
static const struct {
  char letter;
  const char *name;
} format_letters[] = {{'A', "aiter-triton"}, {'C', "choices"},  {'D', "dejavu"},
                      {'I', "inductor"},     {'J', "json"},     {'S', "sglang-moe"},
                      {'G', "sglang-w8a8"},  {'T', "triton"},   {'U', "tunableop"},
                      {'V', "vllm-moe"},     {'W', "vllm-w8a8"}};

/* NULL: the byte is not a letter of a format. */
static const struct cache_format *format_of(uint8_t letter) {
  const struct cache_format *format = NULL;
  struct error error;
  for (size_t i = 0; i < ARRAY_LENGTH(format_letters); i++) {
    ALWAYS(cache_formats[i] != NULL);
    if (format_letters[i].letter == letter)
      ALWAYS(cache_format_find(format_letters[i].name, &format, &error));
  }

  ALWAYS(!cache_formats[ARRAY_LENGTH(format_letters)]); /* a new format needs a letter */
  return format;
}

struct kernels {
  size_t n;
  struct kernel **all; /* NULL where the import knows the kernel by its hash */
};

static bool find_kernel(void *context, const struct digest *hash, const struct kernel **ret,
                        struct error *error) {
  const struct kernels *kernels = context;
  for (size_t i = 0; i < kernels->n; i++) {
    if (kernels->all[i] && digest_equal(&kernels->all[i]->hash, hash)) {
      *ret = kernels->all[i];
      return true;
    }
  }
  return error_set(error, "no such kernel");
}

static void kernels_release(struct kernels *kernels) {
  for (size_t i = 0; i < kernels->n; i++) {
    if (kernels->all[i])
      kernel_free(kernels->all[i]);
  }
  free(kernels->all);
}

static void files_take(struct cache_files *files, const char *bytes, size_t size) {
  while (size) {
    const char *end = memchr(bytes, '\0', size);
    size_t length = end ? (size_t)(end - bytes) : size;
    const char *newline = memchr(bytes, '\n', length);
    size_t path = newline ? (size_t)(newline - bytes) : length, begin = newline ? path + 1 : length;
    GROW(files->files, files->n, files->capacity);
    files->files[files->n++] = (struct cache_file){
        xstrndup(bytes, path), xstrndup(bytes + begin, length - begin), length - begin};
    bytes += length;
    size -= length;
    if (size) { /* the NUL */
      bytes++;
      size--;
    }
  }
}

static void kernels_take(const struct imported *imported, struct kernels *kernels) {
  kernels->all = xcalloc(imported->n_kernels + 1, sizeof(struct kernel *));
  for (kernels->n = 0; kernels->n < imported->n_kernels; kernels->n++) {
    struct error error;
    const json_t *manifest = imported->kernels[kernels->n].manifest;
    if (manifest)
      ALWAYS(kernel_parse(manifest, &kernels->all[kernels->n], &error));
  }
}

/* A set with "kernel key config" of each entry, or without the kernels "key config". */
static json_t *meaning_of(const struct imported *imported, bool with_kernels) {
  json_t *meaning = json_object();
  for (size_t i = 0; i < imported->n_kernels; i++) {
    const struct imported_kernel *kernel = &imported->kernels[i];
    char text[DIGEST_TEXT_SIZE];
    struct digest digest = kernel->manifest ? json_digest(kernel->manifest) : kernel->hash;
    for (size_t j = 0; j < kernel->n_entries; j++) {
      cleanup_free char *key = json_canonical(kernel->entries[j].key),
                        *config = json_canonical(kernel->entries[j].config);
      cleanup_free char *entry =
          xasprintf("%s %s %s", with_kernels ? digest_format(&digest, text) : "", key, config);
      ALWAYS(json_object_set_new(meaning, entry, json_true()) == 0);
    }
  }

  return meaning;
}

static void entry_add(struct release_builder *builder, const struct imported_kernel *from,
                      const struct kernel *kernel, const struct imported_entry *entry) {
  struct error error;
  const char *names[KEY_MEMBERS_MAX], *name;
  json_t *value;
  size_t n = 0;

  json_object_foreach (entry->key, name, value) {
    if (n < KEY_MEMBERS_MAX)
      names[n++] = name;
  }

  cleanup_json json_t *provenance = json_copy(entry->provenance);
  json_object_set_new(provenance, "origin", json_string("imported"));
  struct release_entry winner = {.name = kernel ? kernel->name : "k",
                                 .kernel = kernel ? kernel->hash : from->hash,
                                 .key_names =
                                     kernel ? (const char *const *)kernel->key_names : names,
                                 .n_key_names = kernel ? kernel->n_key_names : n,
                                 .key = entry->key,
                                 .config = entry->config,
                                 .provenance = provenance,
                                 .ms = entry->ms,
                                 .n_ms = entry->n_ms};
  bool ok = release_builder_add(builder, &winner, &error);
  ALWAYS(ok || !kernel); /* cache.json is of registered kernels, whose names and keys were not
                            checked here */
}

static struct release *release_of(const struct imported *imported, const struct kernels *kernels) {
  struct error error;
  cleanup_environment struct environment environment = {0};
  cleanup_json json_t *json = json_object();

  if (imported->environment)
    json_object_update(json, imported->environment);
  ALWAYS(environment_parse(json, &environment, &error));
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(&environment, "default", REGIME_COLD);
  for (size_t i = 0; i < imported->n_kernels; i++) {
    for (size_t j = 0; j < imported->kernels[i].n_entries; j++)
      entry_add(builder, &imported->kernels[i], kernels->all[i], &imported->kernels[i].entries[j]);
  }

  struct release *release = NULL;
  bool ok = release_builder_finish(builder, &release, &error);
  return ok ? release : NULL;
}

static void read_again(const struct cache_format *format, const struct imported *imported,
                       const struct cache_files *files) {
  struct error error;
  cleanup_imported struct imported again = {0};
  struct import_request request = {.files = files};
  if (!cache_format_read(format, &request, &again, &error))
    die("%s does not read what it wrote: %s", format->name, error.message);

  /* The manifest of a kernel that is known by name may state what all of its entries have in
   * common, and some may not have been written. */
  bool is_whole = files->n_skipped == 0;
  cleanup_json json_t *before = meaning_of(imported, is_whole),
                      *after = meaning_of(&again, is_whole);
  ALWAYS(!is_whole || json_object_size(before) == json_object_size(after));

  const char *entry;
  json_t *value;
  json_object_foreach (after, entry, value) {
    if (!json_object_get(before, entry))
      die("%s read %s from what it wrote, which was not imported", format->name, entry);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  struct error error;
  const struct cache_format *format = size ? format_of(bytes[0]) : NULL;

  if (!format)
    return 0;

  cleanup_cache_files struct cache_files files = {0}, out = {0};
  cleanup_imported struct imported imported = {0};
  files_take(&files, (const char *)bytes + 1, size - 1);
  struct import_request request = {.files = &files};
  if (!cache_format_read(format, &request, &imported, &error)) {
    check_refusal(&error);
    ALWAYS(!imported.n_kernels && !imported.environment);
    return 0;
  }

  __attribute__((cleanup(kernels_release))) struct kernels kernels = {0};
  kernels_take(&imported, &kernels);
  cleanup_release struct release *release = release_of(&imported, &kernels);
  struct cache_source source = {.context = &kernels, .kernel = find_kernel};
  struct render_request rendering = {.release = release, .source = &source};
  if (release && format->render(&rendering, &out, &error))
    read_again(format, &imported, &out);
  return 0;
}
