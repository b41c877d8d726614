/* Rendering a release for the formats that were asked for, and what a release's folder says of how
 * it was done.
 *
 * FORMAT/.wavetune.json tells what a rendering depended on besides the release: the image's
 * identity, the place (Triton's cache holds absolute paths) and the program. When one of them is
 * another, the format is rendered again. A format that cannot say anything of a release leaves a
 * folder with the reason alone, so that the next start need not try again.
 *
 * Memory and threads: fetch.h. */
#include "cli/fetch.h"
#include "cli/files.h"
#include "common/base/file.h"

#define RENDERING_FILE ".wavetune.json"
#define SKIPPED_FILE ".wavetune.skipped.json"
#define RENDERING_MAX ((size_t)1 << 20)
#define SKIPPED_MAX ((size_t)256 << 20)

static json_t *identity_to_json(const struct fetch *fetch) {
  struct digest digest =
      fetch->identity ? json_digest(fetch->identity->json) : (struct digest){{0}};
  return fetch->identity ? json_digest_text(&digest) : json_null();
}

static char *format_root(const struct fetch *fetch, const char *name,
                         const struct cache_format *format) {
  return xasprintf("%s/%s/%s", fetch->absolute, name, format->name);
}

/* Whether a rendering is what would be rendered now. */
static bool rendering_fits(const struct fetch *fetch, const json_t *rendering, const char *root) {
  cleanup_json json_t *identity = identity_to_json(fetch);
  return json_equal(json_object_get(rendering, "identity"), identity) &&
         string_equal(cli_member(rendering, "root"), root) &&
         string_equal(cli_member(rendering, "version"), WAVETUNE_VERSION);
}

bool renderings_read(struct fetch *fetch, const char *name, bool any) {
  bool all = true, is_folder = folder_has_release(fetch, name);
  for (size_t i = 0; i < fetch->n_formats; i++) {
    cleanup_free char *root = format_root(fetch, name, fetch->formats[i]);
    cleanup_free char *path = xasprintf("%s/" RENDERING_FILE, root);
    cleanup_json json_t *json = NULL;
    struct error ignored;
    bool is_there = json_parse_file(path, RENDERING_MAX, &json, &ignored) && json_is_object(json) &&
                    (any || (is_folder && rendering_fits(fetch, json, root)));
    json_decref(fetch->renderings[i].json);
    fetch->renderings[i].json = is_there ? TAKE(json) : NULL;
    all = all && is_there;
  }
  return all;
}

void renderings_forget(struct fetch *fetch) {
  for (size_t i = 0; i < fetch->n_formats; i++) {
    json_decref(fetch->renderings[i].json);
    fetch->renderings[i].json = NULL;
  }
}

json_t *renderings_skipped(const struct fetch *fetch, size_t index) {
  cleanup_free char *path =
      xasprintf("%s/current/%s/" SKIPPED_FILE, fetch->absolute, fetch->formats[index]->name);
  json_t *skipped = NULL;
  struct error ignored;
  return json_parse_file(path, SKIPPED_MAX, &skipped, &ignored) ? skipped : json_array();
}

static json_t *variables_to_json(const struct cache_files *files) {
  json_t *variables = json_array();
  for (size_t i = 0; i < files->n_variables; i++) {
    const struct cache_variable *variable = &files->variables[i];
    ALWAYS(json_array_append_new(
               variables,
               json_pack("{s:s, s:s}", "name", variable->name, variable->path ? "path" : "value",
                         variable->path ? variable->path : variable->literal)) == 0);
  }
  return variables;
}

static void json_add(struct cache_files *files, const char *path, const json_t *json) {
  char *text = json_canonical(json);
  cache_files_add(files, path, text, strlen(text));
}

/* `reason`: why nothing was rendered, or NULL. */
static json_t *rendering_note(const struct fetch *fetch, const char *root, const char *reason,
                              struct cache_files *files) {
  const json_int_t n_files = (json_int_t)files->n + (json_int_t)files->n_sunk;
  json_t *rendering =
      json_pack("{s:I, s:o, s:s, s:I, s:o, s:s}", "files", n_files, "identity",
                identity_to_json(fetch), "root", root, "skipped", (json_int_t)files->n_skipped,
                "variables", variables_to_json(files), "version", WAVETUNE_VERSION);
  ALWAYS(rendering != NULL);
  if (reason)
    ALWAYS(json_object_set_new(rendering, "reason", json_string(reason)) == 0);
  json_add(files, RENDERING_FILE, rendering);
  if (files->n_skipped) {
    cleanup_json json_t *skipped = json_array();
    for (size_t i = 0; i < files->n_skipped; i++) {
      const struct cache_skipped *one = &files->skipped[i];
      ALWAYS(json_array_append_new(skipped, json_pack("{s:s, s:s?, s:s}", "name", one->name, "key",
                                                      one->key, "reason", one->reason)) == 0);
    }
    json_add(files, SKIPPED_FILE, skipped);
  }
  return rendering;
}

static void skipped_tell(const struct cache_format *format, const struct cache_files *files) {
  if (!files->n_skipped)
    return;
  const struct cache_skipped *first = &files->skipped[0];
  fprintf(stderr, "wavetune: %s: %zu winner%s left out; the first: %s%s%s: %s\n", format->name,
          files->n_skipped, files->n_skipped == 1 ? " was" : "s were", first->name,
          first->key ? " " : "", first->key ? first->key : "", first->reason);
}

/* Files of one format into the stream. *ret_reason (the caller's): the format has nothing to say of
 * this release. False: what it needs did not arrive, or cannot be written. */
static bool format_make(struct fetch *fetch, struct http_source *source,
                        const struct render_request *request, size_t index,
                        struct file_stream *stream, char **ret_reason, struct error *error) {
  const struct cache_format *format = fetch->formats[index];
  cleanup_cache_files struct cache_files files = {.sink = file_stream_sink(stream, format->name)};
  struct error reason;
  int64_t begin_ns = clock_monotonic_ns(), waited_ns = http_source_waited_ns(source);
  bool is_rendered = format->render(request, &files, &reason);
  waited_ns = http_source_waited_ns(source) - waited_ns;
  fetch->took_ns[WORK_DOWNLOAD] += waited_ns;
  fetch->took_ns[WORK_RENDER] += clock_monotonic_ns() - begin_ns - waited_ns;
  if (!http_source_is_whole(source, error))
    return error_prefix(error, "%s: ", format->name);
  if (!is_rendered) {
    ALWAYS(files.n_sunk == 0); /* what is in the stream cannot be taken back */
    cache_files_release(&files);
    files = (struct cache_files){0};
    *ret_reason = xasprintf("%s: %s", format->name, reason.message);
  }
  skipped_tell(format, &files);
  json_decref(fetch->renderings[index].json);
  fetch->renderings[index].json = rendering_note(fetch, request->root, *ret_reason, &files);
  begin_ns = clock_monotonic_ns();
  file_stream_add(stream, format->name, &files);
  fetch->took_ns[WORK_WRITE] += clock_monotonic_ns() - begin_ns;
  return true;
}

bool renderings_are_useful(const struct fetch *fetch, const char *name, struct error *error) {
  size_t n_empty = 0;
  for (size_t i = 0; i < fetch->n_formats; i++) {
    const char *reason = cli_member(fetch->renderings[i].json, "reason");
    if (reason[0] && n_empty++ == 0)
      error_of(error, ERROR_UNUSABLE, "release %s: %s", name, reason);
  }
  return n_empty < fetch->n_formats;
}

bool renderings_make(struct fetch *fetch, const struct release *release, const char *name,
                     struct file_stream *stream, struct error *error) {
  cleanup_http_source struct http_source *source =
      http_source_new(fetch->client, fetch->deadline_ms);
  struct render_request request = {
      .release = release, .source = http_source_interface(source), .identity = fetch->identity};
  for (size_t i = 0; i < fetch->n_formats; i++) {
    if (fetch->renderings[i].json)
      continue;
    cleanup_free char *root = format_root(fetch, name, fetch->formats[i]), *reason = NULL;
    request.root = root;
    if (!format_make(fetch, source, &request, i, stream, &reason, error))
      return false;
  }
  return renderings_are_useful(fetch, name, error);
}

json_t *renderings_variables(const struct fetch *fetch) {
  json_t *variables = json_object(), *variable;
  size_t index;
  for (size_t i = 0; i < fetch->n_formats; i++) {
    json_array_foreach (json_object_get(fetch->renderings[i].json, "variables"), index, variable) {
      const char *below = json_string_value(json_object_get(variable, "path"));
      cleanup_free char *path = below ? xasprintf("%s/current/%s%s%s", fetch->absolute,
                                                  fetch->formats[i]->name, *below ? "/" : "", below)
                                      : NULL;
      const char *value = path ? path : cli_member(variable, "value");
      ALWAYS(json_object_set_new(variables, cli_member(variable, "name"), json_string(value)) == 0);
    }
  }
  return variables;
}
