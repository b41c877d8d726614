/* Names of mixture-of-experts tables, and the order in them. Pure functions, any thread; results are the caller's. */
#include "common/cache/moe_table.h"

#define NUMBER_MAX INT32_MAX

void moe_name_release(struct moe_name *name) {
  free(name->device);
  free(name->dtype);
  *name = (struct moe_name){0};
}

/* A positive decimal number without leading zeros; returns what is behind it, NULL when there is none. */
static const char *number_take(const char *at, int64_t *ret) {
  char *end;
  if (*at < '1' || *at > '9')
    return NULL;
  long long number = strtoll(at, &end, 10);
  if (number > NUMBER_MAX)
    return NULL;
  *ret = number;
  return end;
}

static const char *prefixed_number_take(const char *at, const char *prefix, int64_t *ret) {
  return at && string_starts(at, prefix) ? number_take(at + strlen(prefix), ret) : NULL;
}

/* "[128,128]", with one space or none; returns what is behind it. */
static const char *block_shape_take(const char *at, int64_t ret[2]) {
  at = *at == '[' ? number_take(at + 1, &ret[0]) : NULL;
  if (!at || *at != ',')
    return NULL;
  at = number_take(at + (at[1] == ' ' ? 2 : 1), &ret[1]);
  return at && *at == ']' ? at + 1 : NULL;
}

bool moe_block_shape_parse(const char *text, int64_t ret[2]) {
  const char *end = block_shape_take(text, ret);
  return end && !*end;
}

/* Text up to the next ",name=" or the end of the name. */
static const char *text_take(const char *at, const char *end, char **ret) {
  const char *behind = at;
  while (behind < end && *behind != ',')
    behind++;
  *ret = xstrndup(at, (size_t)(behind - at));
  return behind > at ? behind : NULL;
}

static const char *optional_take(const struct moe_dialect *dialect, const char *at, const char *end,
                                 struct moe_name *name) {
  static const char dtype[] = ",dtype=", block[] = ",block_shape=", channel[] = ",per_channel_quant=True";
  if (at && string_starts(at, dtype))
    at = text_take(at + strlen(dtype), end, &name->dtype);
  if (at && string_starts(at, block)) {
    at = block_shape_take(at + strlen(block), name->block_shape);
    name->has_block_shape = true;
  }
  if (at && dialect->has_variants && string_starts(at, channel)) {
    at += strlen(channel);
    name->per_channel_quant = true;
  }
  return at;
}

bool moe_name_parse(const struct moe_dialect *dialect, const char *text, struct moe_name *ret, struct error *error) {
  static const char device[] = ",device_name=", suffix[] = ".json", down[] = "_down";
  cleanup_moe_name struct moe_name name = {0};
  size_t size = strlen(text);
  const char *end = text + size - (size >= strlen(suffix) ? strlen(suffix) : 0);
  bool is_json = strcmp(end, suffix) == 0;
  if (is_json && dialect->has_variants && (size_t)(end - text) >= strlen(down) &&
      string_starts(end - strlen(down), down)) {
    end -= strlen(down);
    name.down = true;
  }
  const char *at = prefixed_number_take(text, "E=", &name.e);
  at = prefixed_number_take(at, ",N=", &name.n);
  at = at && string_starts(at, device) ? text_take(at + strlen(device), end, &name.device) : NULL;
  at = optional_take(dialect, at, end, &name);
  if (!is_json || at != end || !json_can_hold(text))
    return error_set(error,
                     "\"%.200s\" is no name like E=128,N=384,device_name=AMD_Instinct_MI300X.json, with dtype=, "
                     "block_shape=%s behind the device in this order",
                     text, dialect->has_variants ? " and per_channel_quant=True" : "");
  *ret = name;
  name = (struct moe_name){0};
  return true;
}

char *moe_name_format(const struct moe_dialect *dialect, const struct moe_name *name) {
  char block[96] = "";
  if (name->has_block_shape)
    snprintf(block, sizeof block, ",block_shape=[%lld%s%lld]", (long long)name->block_shape[0], dialect->separator,
             (long long)name->block_shape[1]);
  return xasprintf("E=%lld,N=%lld,device_name=%s%s%s%s%s%s.json", (long long)name->e, (long long)name->n, name->device,
                   name->dtype ? ",dtype=" : "", name->dtype ? name->dtype : "", block,
                   name->per_channel_quant ? ",per_channel_quant=True" : "", name->down ? "_down" : "");
}

json_t *moe_config_ordered(const json_t *config) {
  static const char *const usual[] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M",         "SPLIT_K",
                                      "num_warps",    "num_stages",   "waves_per_eu", "matrix_instr_nonkdim", "kpack"};
  json_t *ordered = json_object(), *value;
  const char *name;
  for (size_t i = 0; i < ARRAY_LENGTH(usual); i++) {
    value = json_object_get(config, usual[i]);
    if (value)
      json_object_set(ordered, usual[i], value);
  }
  json_object_foreach ((json_t *)config, name, value) {
    if (!json_object_get(ordered, name))
      json_object_set(ordered, name, value);
  }
  return ordered;
}
