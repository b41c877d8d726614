/* Misses in the logs of vLLM, SGLang and AITER; demand_log.h. The lines are those of vLLM 0.33.0
 * (fused_moe.py, fp8_utils.py, mamba_ssm.py, lora/ops/triton_ops/utils.py), SGLang 0.5.23
 * (fused_moe_triton_config.py, fp8_kernel.py, int8_kernel.py) and AITER (aiter/ops/gemm_op_*.py).
 */
#include "cli/demand_log.h"

#include <errno.h>

#define NAME_MAX_HERE 512
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

/* Reads "E=8,N=14336,…" into `members`; commas within [] do not separate. Numbers are those that
 * `numbers` names. False: it is not such a name. */
static bool members_read(const char *name, const char *const *numbers, json_t *members) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  for (const char *at = name; *at;) {
    size_t size = strspn(at, letters);
    if (!size || at[size] != '=')
      return false;
    cleanup_free char *member = xstrndup(at, size);
    at += size + 1;
    size = strcspn(at, ",");
    if (*at == '[') {
      size = strcspn(at, "]");
      if (!at[size++])
        return false;
    }
    cleanup_free char *value = xstrndup(at, size);
    at += size;
    if (!size || (*at && *at != ',') || json_object_get(members, member))
      return false;
    at += *at == ',';

    bool is_of_numbers = false;
    for (size_t i = 0; numbers[i]; i++)
      is_of_numbers |= string_equal(member, numbers[i]);
    if (is_of_numbers && !is_number(value))
      return false;
    json_put(members, member,
             is_of_numbers ? json_integer(strtoll(value, NULL, 10)) : json_string(value));
  }
  return true;
}

/* The version of "…/triton_3_4_0/…" in a path, the caller's; NULL: there is none. */
static char *version_of_path(const char *path) {
  const char *at = strstr(path, "/triton_");
  if (!at)
    return NULL;
  at += strlen("/triton_");
  size_t size = strspn(at, "0123456789_");
  return size && at[size] == '/' ? text_replace(xstrndup(at, size), "_", '.') : NULL;
}

/* Reads the path of a table as a miss; NULL: its name is not one of a table. `line` is the whole
 * line, whose words tell the programs apart. */
static json_t *miss_of_path(const char *path, const char *line) {
  static const char *const of_moe[] = {"E", "N", NULL}, *const of_gemm[] = {"N", "K", NULL},
                           *const of_ssm[] = {"headdim", "dstate", NULL};
  const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path,
             *table, *const * numbers;
  cleanup_free char *name = xstrndup(file, strlen(file) - strlen(".json"));
  cleanup_json json_t *members = json_object();
  bool is_down = false;
  if (strstr(line, phrases[1])) {
    char *operation = strstr(name, "_FUSED_MOE_LORA_");
    table = operation ? "vllm-lora-moe" : "vllm-lora";
    operation = operation ? operation : strstr(name, "_SHRINK");
    operation = operation ? operation : strstr(name, "_EXPAND_");
    if (!operation || operation == name)
      return NULL;
    *operation = '\0';
    return json_pack("{s:s, s:s, s:s, s:{s:s}}", "table", table, "file", file, "device", name,
                     "members", "op", operation + 1);
  }

  if (string_starts(name, "E=")) {
    bool is_sglang = strstr(line, "MoE kernel config") || strstr(line, "Down MoE");
    table = is_sglang ? "sglang-moe" : "vllm-moe";
    numbers = of_moe;
    is_down = is_sglang && string_ends(name, "_down");
    if (is_down)
      name[strlen(name) - strlen("_down")] = '\0';
  } else if (string_starts(name, "N=")) {
    table = strstr(name, ", ") || strstr(path, "/sglang/") ? "sglang-w8a8" : "vllm-w8a8";
    numbers = of_gemm;
  } else {
    table = "vllm-ssm";
    numbers = of_ssm;
  }

  if (!members_read(name, numbers, members))
    return NULL;
  for (size_t i = 0; numbers[i]; i++)
    if (!json_object_get(members, numbers[i]))
      return NULL;
  const char *shape = json_text(members, "block_shape"),
             *device = json_text(members, "device_name");
  if (!device)
    return NULL;
  if (string_equal(json_text(members, "backend"), "flydsl")) {
    table = "vllm-flydsl";
    json_object_del(members, "backend");
    json_object_del(members, "dtype");
  }

  json_t *miss = json_pack("{s:s, s:s, s:s, s:O}", "table", table, "file", file, "device", device,
                           "members", members);
  json_object_del(members, "device_name");
  if (shape) {
    long long n, k;
    char *tight = sscanf(shape, "[%9lld,%9lld]", &n, &k) == 2 ? xasprintf("[%lld,%lld]", n, k)
                                                              : xstrdup(shape);
    json_put(members, "block_shape", json_string(tight));
    free(tight);
  }
  if (json_object_get(members, "per_channel_quant"))
    json_put(members, "per_channel_quant", json_true());
  if (is_down)
    json_put(members, "down", json_true());
  if (string_equal(table, "sglang-moe")) {
    static const char fallback[] = "Fallback to triton version ";
    cleanup_free char *version = version_of_path(path);
    const char *other = strstr(line, fallback);
    if (version)
      json_put(miss, "triton", json_string(version));
    if (other) {
      other += strlen(fallback);
      json_put(miss, "fallback", json_stringn(other, strspn(other, "0123456789.")));
    }
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
    const char *begin = at;
    for (const char *c = at; c < end; c++)
      begin = *c == '/' ? c + 1 : begin;
    cleanup_free char *path = xstrndup(at, (size_t)(end - at)),
                      *file = xstrndup(begin, (size_t)(end - begin));
    json_t *miss = strlen(file) <= NAME_MAX_HERE ? miss_of_path(path, line) : NULL;
    if (!miss) {
      log->n_unread += first == NULL;
      return;
    }
    if (first && string_equal(file, first))
      json_decref(miss);
    else
      miss_add(log, miss);
    if (!first)
      first = TAKE(file);
    if (!string_starts(end, ", /") || !path_end(end))
      return;
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
  size_t size = strcspn(file, ", ");
  for (const char *c = file; c < file + size;)
    if (*c++ == '/') {
      size -= (size_t)(c - file);
      file = c;
    }
  cleanup_free char *name = xstrndup(file, size);
  miss_add(log, json_pack("{s:s, s:s, s:s, s:O}", "table", "aiter-csv", "file", name, "device", "",
                          "members", members));
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
