/* What an agent reads of its own disk and sends to its workers: a line with a parser's name, then
 * its bytes.
 *
 * launch: a launch specification as JSON.
 * spool: the number in spool.acknowledged (a line), then the bytes of the spool.
 * records: the same, but the bytes are made records of the spool: each header gets the magic, a
 * length and a number that are in range, and the check. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/compile/launch_spec.h"
#include "agent/run/spool.h"
#include "common/base/file.h"
#include "tests/fuzz/fuzz.h"

#define HEADER_SIZE 24 /* magic, length, number, check: see spool.c */
#define PEEKED 4

static void check_launch(const char *bytes, size_t size) {
  cleanup_json json_t *json = NULL;
  struct error error = {0};
  struct launch_spec spec, again;
  if (!json_parse(bytes, size, &json, &error))
    return;
  if (!launch_spec_from_json(json, &spec, &error)) {
    check_refusal(&error);
    return;
  }

  ALWAYS(spec.cluster >= 1 && spec.threads >= 0 && spec.shared_bytes >= 0);
  ALWAYS(spec.n_scratch >= 0 && spec.n_scratch <= LAUNCH_SCRATCH_MAX);
  ALWAYS(spec.grid.n == 0 || spec.grid.n == 3);
  cleanup_json json_t *written = launch_spec_to_json(&spec), *twice = NULL;
  ALWAYS(launch_spec_from_json(written, &again, &error));
  twice = launch_spec_to_json(&again);
  ALWAYS(json_equal(written, twice));
  launch_spec_release(&spec);
  launch_spec_release(&again);
}

static char folder[] = "/dev/shm/wt-fuzz-spool-XXXXXX";

static void end(void) {
  struct error ignored;
  ALWAYS(folder_remove(folder, &ignored));
}

static void folder_file_write(const char *name, const char *bytes, size_t size) {
  cleanup_free char *path = xasprintf("%s/%s", folder, name);
  cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ALWAYS(fd >= 0 && fd_write_all(fd, bytes, size));
}

/* Makes records of the bytes, with growing numbers; the bytes after the last are an incomplete one.
 * Returns how many there are. */
static size_t records_make(char *bytes, size_t size) {
  uint64_t number = 0;
  size_t n = 0;
  for (size_t at = 0; size - at >= HEADER_SIZE; n++) {
    uint32_t magic = 0x57545350u, length;
    memcpy(&length, bytes + at + 4, sizeof length);
    length %= (uint32_t)(size - at - HEADER_SIZE) + 1;
    number += 1 + (uint8_t)bytes[at + 8];
    memcpy(bytes + at, &magic, sizeof magic);
    memcpy(bytes + at + 4, &length, sizeof length);
    memcpy(bytes + at + 8, &number, sizeof number);
    struct digest_stream *stream = digest_stream_new();
    digest_stream_add(stream, bytes + at, 16);
    digest_stream_add(stream, bytes + at + HEADER_SIZE, length);
    struct digest digest = digest_stream_finish(stream);
    memcpy(bytes + at + 16, digest.bytes, 8);
    at += HEADER_SIZE + length;
  }
  return n;
}

/* Acknowledges all records, in order; false when one cannot be read. */
static bool spool_drain(struct spool *spool, uint64_t *last, size_t *ret_n) {
  struct error error = {0};
  for (*ret_n = 0;;) {
    struct spool_record records[PEEKED];
    size_t n = 0;
    if (!spool_peek(spool, records, PEEKED, &n, &error)) {
      ALWAYS(error.message[0]);
      return false;
    }
    if (n == 0)
      return true;
    for (size_t i = 0; i < n; i++) {
      ALWAYS(records[i].number > *last);
      *last = records[i].number;
      json_decref(records[i].json);
    }
    *ret_n += n;
    ALWAYS(spool_acknowledge(spool, *last, &error));
  }
}

/* Without its warnings, one for each damaged file. */
static bool spool_open_silently(struct spool **ret_spool, struct error *error) {
  cleanup_fd int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  ALWAYS(saved >= 0 && null >= 0 && dup2(null, STDERR_FILENO) == STDERR_FILENO);
  bool ok = spool_open(folder, 64, ret_spool, error);
  ALWAYS(dup2(saved, STDERR_FILENO) == STDERR_FILENO);
  return ok;
}

/* Whatever the files have, the spool takes a new record, whose number is the highest, and returns
 * it once, also after it was opened again. */
static void check_spool(const char *bytes, size_t size, bool is_made) {
  static bool has_folder; /* the made name, too, may end in X */
  if (!has_folder) {
    has_folder = mkdtemp(folder) != NULL;
    ALWAYS(has_folder);
    ALWAYS(atexit(end) == 0);
  }

  const char *at = bytes;
  cleanup_free char *acknowledged = line_next(&at, bytes + size), *written = NULL, *rest = NULL;
  size_t n_made = 0, rest_size = size - (size_t)(at - bytes), n_read;
  uint64_t number, last = strtoull(acknowledged, NULL, 10);
  if (is_made && last > 1u << 20)
    return;
  written = xasprintf("%s\n", acknowledged);
  rest = xmemdup(at, rest_size);
  if (is_made)
    n_made = records_make(rest, rest_size);
  folder_file_write("spool.acknowledged", written, strlen(written));
  folder_file_write("spool", rest, rest_size);

  struct spool *spool;
  struct error error = {0};
  if (!spool_open_silently(&spool, &error)) {
    check_refusal(&error);
    return;
  }

  cleanup_json json_t *record = json_pack("{s:i}", "x", 1);
  bool is_drained = spool_drain(spool, &last, &n_read);
  ALWAYS(n_read <= n_made && (is_made || !is_drained || n_read == 0));
  if (is_drained) {
    ALWAYS(spool_is_empty(spool));
    ALWAYS(spool_append(spool, record, &number, &error) && number > last);
    spool_close(spool);
    ALWAYS(spool_open_silently(&spool, &error) && !spool_is_empty(spool));
    ALWAYS(spool_drain(spool, &last, &n_read) && n_read == 1 && last == number);
  }
  spool_close(spool);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const char *at = (const char *)bytes, *end = at + size;
  cleanup_free char *name = line_next(&at, end);
  if (string_equal(name, "launch"))
    check_launch(at, (size_t)(end - at));
  else if (string_equal(name, "spool") || string_equal(name, "records"))
    check_spool(at, (size_t)(end - at), string_equal(name, "records"));
  return 0;
}
