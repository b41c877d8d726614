/* Misses in the logs of vLLM, SGLang and AITER; demand_log.h. The lines are those of vLLM 0.33.0
 * (fused_moe.py, fp8_utils.py, mamba_ssm.py, lora/ops/triton_ops/utils.py), SGLang 0.5.23
 * (fused_moe_triton_config.py, fp8_kernel.py, int8_kernel.py) and AITER (aiter/ops/gemm_op_*.py).
 */
#include "cli/demand_log.h"

#include <errno.h>

#include "common/formats/tables.h"

#define NUMBER_DIGITS_MAX 9
#define READ_SIZE 65536

/* How a line begins that states missing files; what follows are paths. */
static const char *const phrases[] = {"onfig file not found at ",
                                      "No LoRA kernel configs found in "};

struct demand_log demand_log_new(void) {
  return (struct demand_log){.misses = json_array(), .places = json_object()};
}

void demand_log_release(struct demand_log *log) {
  json_decref(log->misses);
  json_decref(log->places);
}

/* Counts a miss. Takes the reference. */
static void miss_add(struct demand_log *log, json_t *miss) {
  cleanup_free char *identity = json_canonical(miss);
  const json_t *place = json_object_get(log->places, identity);
  if (!place && json_array_size(log->misses) == LOG_MISSES_MAX) {
    log->n_left++;
    json_decref(miss);
    return;
  }

  if (!place) {
    json_put(log->places, identity, json_integer((json_int_t)json_array_size(log->misses)));
    json_put(miss, "misses", json_integer(1));
    json_push(log->misses, miss);
    return;
  }

  json_t *before = json_array_get(log->misses, (size_t)json_integer_value(place));
  json_int_t n = json_integer_value(json_object_get(before, "misses"));
  json_put(before, "misses", json_integer(n + 1));
  json_decref(miss);
}

/* Whether a value is 1 to 999999999 in plain digits. */
static bool is_number(const char *text) {
  size_t size = strlen(text);
  return size >= 1 && size <= NUMBER_DIGITS_MAX && *text != '0' &&
         strspn(text, "0123456789") == size;
}

/* The tables that a line is about: its words tell the programs apart, for the same GEMM the blank
 * in SGLang's names does. */
static const struct table_family *family_of(const char *path, const char *line) {
  const char *name = path_name(path);
  if (string_starts(name, "N="))
    return strstr(name, ", ") || strstr(path, "/sglang/") ? &tables_sglang_w8a8 : &tables_vllm_w8a8;
  return strstr(line, "MoE kernel config") || strstr(line, "Down MoE") ? &tables_sglang_moe
                                                                       : &tables_vllm_moe;
}

/* Reads the path of a table as a miss; NULL: its name is not one of a table. */
static json_t *miss_of_path(const char *path, const char *line) {
  static const char fallback[] = "Fallback to triton version ";
  const struct table_family *family = family_of(path, line);
  cleanup_table_place struct table_place place = {0};
  cleanup_json json_t *row = NULL;
  const struct table_kind *kind;
  struct error ignored;
  if (!table_path_parse(family, path, &kind, &row, &place, &ignored))
    return NULL;

  json_t *members = json_object();
  json_members (row, name, value)
    if (!json_is_null(value) && !json_is_false(value))
      json_object_set(members, name, value);
  json_t *miss = json_pack("{s:s, s:s, s:s, s:o, s:s*}", "table", kind->name, "file",
                           path_name(path), "device", place.device ? place.device : "", "members",
                           members, "triton", place.triton);
  const char *other = strstr(line, fallback);
  if (other) {
    other += strlen(fallback);
    json_put(miss, "fallback", json_stringn(other, strspn(other, "0123456789.")));
  }
  return miss;
}

/* The end of the path that begins at `at`: behind its ".json", which no letter follows; NULL: there
 * is none. Names of tables hold commas. */
static const char *path_end(const char *at) {
  while ((at = strstr(at, ".json"))) {
    at += strlen(".json");
    if (!*at || strchr(" ,;\"'\\)]}?", *at) || (*at == '.' && (at[1] == ' ' || !at[1])))
      return at;
  }
  return NULL;
}

/* Reads the paths that a line states. A program that looks in several folders states the same name
 * several times. */
static void paths_read(struct demand_log *log, const char *line, const char *at) {
  cleanup_free char *first = NULL;
  for (const char *end; (end = path_end(at)); at = end + 2) {
    cleanup_free char *path = xstrndup(at, (size_t)(end - at));
    bool is_again = string_equal(path_name(path), first);
    json_t *miss = is_again ? NULL : miss_of_path(path, line);
    if (!miss && !is_again)
      break;
    if (miss)
      miss_add(log, miss);
    if (!first)
      first = xstrdup(path_name(path));
    if (!string_starts(end, ", /"))
      break;
  }
  log->n_unread += first == NULL;
}

/* Reads AITER's "shape is M:16, N:1536, K:7168 …, not found tuned config in FILE, …", whose words
 * are NAME:VALUE or NAME=VALUE. */
static void aiter_read(struct demand_log *log, const char *at) {
  static const char within[] = " config in ", tuned[] = "not found tuned";
  const char *end = strstr(at, tuned), *file = end ? strstr(end, within) : NULL;
  cleanup_json json_t *members = json_object();
  if (!file)
    return;

  while (at < end) {
    size_t size = strcspn(at, " ,"), length = strcspn(at, ":= ,");
    const char *value = at + length + 1;
    if (length > 0 && length < size) {
      cleanup_free char *name = xstrndup(at, length), *text = xstrndup(value, size - length - 1);
      size_t n = strlen(text);
      bool is_quoted = n >= 2 && *text == '\'' && text[n - 1] == '\'',
           is_extent = strlen(name) == 1 && strchr("BMNKbmnk", *name);
      if (is_quoted)
        text[n - 1] = '\0';
      if (is_extent && !is_number(text)) {
        log->n_unread++;
        return;
      }
      if (is_extent)
        name[0] = (char)(name[0] & ~0x20); /* the line of mxscale has small letters */
      json_put(members, name,
               is_extent ? json_integer(strtoll(text, NULL, 10)) : json_string(text + is_quoted));
    }
    at += size + strspn(at + size, " ,");
  }

  if (!json_object_get(members, "M") || !json_object_get(members, "N") ||
      !json_object_get(members, "K")) {
    log->n_unread++;
    return;
  }

  file += strlen(within);
  cleanup_free char *path = xstrndup(file, strcspn(file, ", "));
  miss_add(log, json_pack("{s:s, s:s, s:s, s:O}", "table", "aiter-csv", "file", path_name(path),
                          "device", "", "members", members));
}

void demand_log_line(struct demand_log *log, const char *line, size_t size) {
  static const char aiter[] = "shape is ";
  cleanup_free char *text = name_plain(line, size < LOG_LINE_MAX ? size : LOG_LINE_MAX);
  const char *shape = strstr(text, aiter);
  if (shape && strstr(shape, "not found tuned")) {
    aiter_read(log, shape + strlen(aiter));
    return;
  }
  list_foreach (phrase, phrases) {
    const char *at = strstr(text, *phrase);
    if (at) {
      paths_read(log, text, at + strlen(*phrase));
      return;
    }
  }
}

bool demand_log_read(struct demand_log *log, int fd, const char *name, struct error *error) {
  cleanup_free char *bytes = xmalloc(READ_SIZE), *line = xmalloc(LOG_LINE_MAX);
  size_t used = 0; /* of the line; what does not fit is dropped */
  for (;;) {
    ssize_t n = read(fd, bytes, READ_SIZE);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return error_set(error, "cannot read %s: %s", name, strerror(errno));
    for (ssize_t i = 0; i < n; i++) {
      if (bytes[i] == '\n' || bytes[i] == '\r') { /* a progress bar ends with the latter */
        demand_log_line(log, line, used);
        used = 0;
      } else if (used < LOG_LINE_MAX) {
        line[used++] = bytes[i] ? bytes[i] : '?';
      }
    }
    if (n == 0)
      break;
  }
  demand_log_line(log, line, used);
  return true;
}
