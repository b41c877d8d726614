/* Writing rendered caches. Memory and threads: files.h. */
#include "cli/files.h"

#include "cli/file_stream.h"
#include "common/base/file.h"
#include "common/cache/format.h"
#include "common/program/options.h"

#define IDENTITY_DEFAULT "/etc/wavetune/identity.json"

bool files_write(const struct cache_files *files, const char *folder, struct error *error) {
  const char *name = strrchr(folder, '/') + 1;
  cleanup_free char *parent = xstrndup(folder, (size_t)(name - folder));
  cleanup_file_stream struct file_stream *stream = NULL;
  if (!file_stream_new(parent, 0, &stream, error))
    return false;
  file_stream_add(stream, name, files);
  return file_stream_finish(stream, error);
}

bool files_write_tar(const struct cache_files *files, const char *path, struct error *error) {
  size_t size;
  cleanup_free char *bytes = cache_files_tar(files, &size);
  return file_write_atomically(path, bytes, size, 0644, error) ||
         error_prefix(error, "cannot write %s: ", path);
}

static bool is_among(const struct cache_format *format, const struct cache_format *const *formats,
                     size_t n) {
  while (n)
    if (formats[--n] == format)
      return true;
  return false;
}

bool formats_of_option(const struct options *options, const struct cache_format ***ret_formats,
                       size_t *ret_n, struct error *error) {
  static const char *const standard[] = {"json"};
  const char *const *names;
  size_t n_names = option_list(options, "format", &names), n = 0;
  if (n_names == 0) {
    names = standard;
    n_names = 1;
  }
  cleanup_free const struct cache_format **formats =
      xcalloc(n_names, sizeof(struct cache_format *));
  for (size_t i = 0; i < n_names; i++) {
    const struct cache_format *format;
    if (!cache_format_find(names[i], &format, error))
      return error_prefix(error, "--format: ");
    if (!is_among(format, formats, n))
      formats[n++] = format;
  }
  *ret_formats = TAKE(formats);
  *ret_n = n;
  return true;
}

bool identity_of_option(const struct options *options, struct identity **ret_identity,
                        struct error *error) {
  const char *path = option_text(options, "identity");
  cleanup_json json_t *json = NULL;
  *ret_identity = NULL;
  if (!path && access(IDENTITY_DEFAULT, F_OK) != 0)
    return true;
  if (!path)
    path = IDENTITY_DEFAULT;
  return json_parse_file(path, IDENTITY_SIZE_MAX, &json, error) &&
         (identity_parse(json, ret_identity, error) || error_prefix(error, "%s: ", path));
}
