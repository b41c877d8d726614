/* Expected values, read strictly: a builder may be another machine. */
#include "common/builds/expected.h"

#include "common/kernel/kernel_case.h"

struct stated_buffer {
  char *argument, *dtype;
  int64_t runs, values;
};
PRIVATE_RECORD(buffer, struct stated_buffer,
               RECORD_FIELD(TEXT, struct stated_buffer, argument, FIELD_REQUIRED),
               RECORD_FIELD(TEXT, struct stated_buffer, dtype, FIELD_REQUIRED),
               RECORD_FIELD(INTEGER, struct stated_buffer, runs, FIELD_REQUIRED, .least = 1,
                            .most = EXPECTED_SIZE_MAX),
               RECORD_FIELD(INTEGER, struct stated_buffer, values, FIELD_REQUIRED, .least = 1,
                            .most = EXPECTED_SIZE_MAX));

struct stated_values {
  json_t *config;
  RECORD_ARRAY(struct stated_buffer, n, buffers);
};
#define BUFFERS_FIELD(type, flags)                                                                 \
  RECORD_FIELD_AS("buffers", RECORDS, type, n, flags, .most = KERNEL_ARGUMENTS_MAX,                \
                  .of = &buffer_record)
PRIVATE_RECORD(values, struct stated_values,
               RECORD_FIELD(JSON, struct stated_values, config, FIELD_REQUIRED | FIELD_OBJECT),
               BUFFERS_FIELD(struct stated_values, FIELD_REQUIRED));

struct head {
  int64_t version, seed;
  json_t *grid, *programs;
  RECORD_ARRAY(struct stated_buffer, n, buffers);
  RECORD_ARRAY(struct stated_values, n_configs, configs);
};
PRIVATE_RECORD(head, struct head,
               RECORD_FIELD(INTEGER, struct head, version, FIELD_REQUIRED, .least = 1, .most = 2),
               RECORD_FIELD(INTEGER, struct head, seed, FIELD_REQUIRED, .least = 0,
                            .most = INT64_MAX),
               RECORD_FIELD(JSON, struct head, grid, FIELD_REQUIRED | FIELD_ARRAY),
               RECORD_FIELD(JSON, struct head, programs, FIELD_REQUIRED | FIELD_ARRAY),
               BUFFERS_FIELD(struct head, 0),
               RECORD_FIELD_AS("configs", RECORDS, struct head, n_configs, 0,
                               .most = EXPECTED_CONFIGS_MAX, .of = &values_record));

static void head_release(struct head *head) { record_release(&head_record, head); }

/* What of the blob was not read yet. */
struct rest {
  const char *at;
  size_t size;
};

static bool programs_check(const struct head *head, struct error *error) {
  size_t n = json_array_size(head->programs);
  bool is_good = json_array_size(head->grid) == 3 && n >= 1 && n <= EXPECTED_PROGRAMS_MAX;
  json_elements (head->programs, i, program)
    for (size_t k = 0; k < 3 && is_good; k++) {
      const json_t *at = json_array_get(program, k), *extent = json_array_get(head->grid, k);
      is_good = json_array_size(program) == 3 && json_is_integer(at) && json_is_integer(extent) &&
                json_integer_value(at) >= 0 && json_integer_value(at) < json_integer_value(extent);
    }
  return is_good || error_at(error, "/programs", "it must name 1 to %d programs of the grid",
                             EXPECTED_PROGRAMS_MAX);
}

/* Copies the next n * size bytes; the copy is aligned. */
static bool take(struct rest *rest, size_t n, size_t size, void **ret, struct error *error) {
  if (n > rest->size / size)
    return error_set(error, "it ends before its last value");
  *ret = xmemdup(rest->at, n * size);
  rest->at += n * size;
  rest->size -= n * size;
  return true;
}

/* The runs must rise, be within the buffer and have `values` elements in all. */
static bool runs_check(const struct expected_buffer *buffer, int64_t elements,
                       struct error *error) {
  int64_t end = 0, values = 0;
  for (size_t i = 0; i < buffer->n_runs; i++) {
    const struct expected_run *run = &buffer->runs[i];
    if (run->start < end || run->start >= elements || run->count < 1 ||
        run->count > elements - run->start)
      return error_set(error, "run %zu is not after the one before it and within the buffer", i);
    end = run->start + run->count;
    values += run->count;
    if (values > (int64_t)buffer->n_values)
      break;
  }
  return values == (int64_t)buffer->n_values ||
         error_set(error, "the runs have other than its %zu values", buffer->n_values);
}

static bool buffer_read(const struct kernel *kernel, const struct stated_buffer *stated,
                        struct rest *rest, struct expected_buffer *buffer, struct error *error) {
  size_t i = 0;
  void *runs;
  while (i < kernel->n_arguments && !string_equal(kernel->arguments[i].name, stated->argument))
    i++;
  const struct argument *argument = &kernel->arguments[i];
  if (i == kernel->n_arguments || !argument_has_buffer(argument) || argument->access == ACCESS_READ)
    return error_set(error, "it is no buffer that the case writes");
  if (!string_equal(stated->dtype, dtype_name(argument->dtype)))
    return error_set(error, "it has values of %.20s and is of %s", stated->dtype,
                     dtype_name(argument->dtype));

  buffer->argument = i;
  buffer->n_runs = (size_t)stated->runs;
  buffer->n_values = (size_t)stated->values;
  if (!take(rest, buffer->n_runs, sizeof *buffer->runs, &runs, error))
    return false;
  buffer->runs = runs;
  return runs_check(buffer, strtoll(argument->shape[0], NULL, 10), error) &&
         take(rest, buffer->n_values, dtype_size(argument->dtype), &buffer->values, error);
}

/* Reads what the next n buffers of the head state. */
static bool buffers_read(const struct kernel *kernel, const struct stated_buffer *stated, size_t n,
                         struct rest *rest, struct expected_values *values, struct error *error) {
  values->buffers = xcalloc(n, sizeof *values->buffers);
  for (size_t i = 0; i < n; i++) {
    struct expected_buffer *buffer = &values->buffers[values->n++];
    if (!buffer_read(kernel, &stated[i], rest, buffer, error))
      return error_prefix(error, "\"%.64s\": ", stated[i].argument);
    for (size_t k = 0; k < i; k++)
      if (values->buffers[k].argument == buffer->argument)
        return error_set(error, "\"%.64s\" occurs twice", stated[i].argument);
  }
  return true;
}

static bool values_read(const struct kernel *kernel, const struct head *head, struct rest *rest,
                        struct expected *expected, struct error *error) {
  bool is_of_configs = head->version == 2;
  if (is_of_configs ? !head->n_configs || head->n : !head->n || head->n_configs)
    return error_set(error, "version 1 has \"buffers\" and version 2 has \"configs\"");
  expected->all = xcalloc(is_of_configs ? head->n_configs : 1, sizeof *expected->all);
  expected->n = 1;
  if (!is_of_configs &&
      !buffers_read(kernel, head->buffers, head->n, rest, &expected->all[0], error))
    return false;

  for (size_t i = 0; i < head->n_configs; i++) {
    const struct stated_values *stated = &head->configs[i];
    expected->n = i;
    if (expected_of_config(expected, stated->config))
      return error_set(error, "config %zu occurs twice", i);
    expected->n = i + 1;
    expected->all[i].config = json_incref(stated->config);
    if (!buffers_read(kernel, stated->buffers, stated->n, rest, &expected->all[i], error))
      return false;
  }
  return !rest->size || error_set(error, "%zu bytes follow its last value", rest->size);
}

bool expected_parse(const void *bytes, size_t size, const struct kernel *kernel,
                    struct expected **ret_expected, struct error *error) {
  cleanup_by(head_release) struct head head;
  cleanup_expected struct expected *expected = xcalloc(1, sizeof *expected);
  cleanup_json json_t *json = NULL;
  const char *end = size <= EXPECTED_SIZE_MAX ? memchr(bytes, '\n', size) : NULL;
  record_init(&head_record, &head);
  if (!end)
    return error_set(error, "expected values: they are one line and at most %zu bytes",
                     EXPECTED_SIZE_MAX);

  struct rest rest = {end + 1, size - (size_t)(end + 1 - (const char *)bytes)};
  if (!json_parse(bytes, (size_t)(end - (const char *)bytes), &json, error) ||
      !record_read(&head_record, json, "", &head, error) || !programs_check(&head, error) ||
      !values_read(kernel, &head, &rest, expected, error))
    return error_prefix(error, "expected values: ");
  expected->seed = (uint64_t)head.seed;
  *ret_expected = TAKE(expected);
  return true;
}

void expected_free(struct expected *expected) {
  for (size_t i = 0; i < expected->n; i++) {
    struct expected_values *values = &expected->all[i];
    for (size_t k = 0; k < values->n; k++) {
      free(values->buffers[k].runs);
      free(values->buffers[k].values);
    }
    free(values->buffers);
    json_decref(values->config);
  }
  free(expected->all);
  free(expected);
}

const struct expected_values *expected_of_config(const struct expected *expected,
                                                 const json_t *config) {
  for (size_t i = 0; i < expected->n; i++) {
    const json_t *own = expected->all[i].config;
    if (!own || json_equal(own, config))
      return &expected->all[i];
  }
  return NULL;
}

const struct expected_buffer *expected_find(const struct expected_values *values, size_t argument) {
  for (size_t i = 0; i < values->n; i++)
    if (values->buffers[i].argument == argument)
      return &values->buffers[i];
  return NULL;
}
