/* Spaces: from JSON, ordinals, identity. */
#include "common/space/space.h"
#include "common/base/error.h"

const char *const space_fact_names[] = {"gpu_name", "arch"};

enum { ROLE_DEFINE = ROLE_ENV + 1 }; /* an alias of constexpr */
static const char *const role_names[] = {"constexpr", "option", "env", "define", NULL};

bool condition_error(struct error *error, size_t index) {
  error_prefix(error, "condition %zu, ", index);
  error_pointer_prefix(error, POINTER_INDEX("/conditions", index));
  return false;
}

static int rows_compare(const struct value *a, const struct value *b, size_t n) {
  int sign = 0;
  for (size_t i = 0; i < n && sign == 0; i++)
    sign = value_compare(a[i], b[i]);
  return sign;
}

struct rows {
  const struct value *values;
  size_t width;
};

static int rows_sort_compare(const void *a, const void *b, void *context) {
  const struct rows *rows = context;
  uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
  int sign =
      rows_compare(rows->values + i * rows->width, rows->values + j * rows->width, rows->width);
  return sign ? sign : (i > j) - (i < j);
}

/* The indices of n rows of `width` values, sorted; *ret_twice is the first row that repeats an
 * earlier one, or n. */
static uint32_t *rows_order(const struct value *values, size_t n, size_t width, size_t *ret_twice) {
  struct rows rows = {values, width};
  uint32_t *order = xcalloc(n, sizeof *order);
  for (size_t i = 0; i < n; i++)
    order[i] = (uint32_t)i;
  qsort_r(order, n, sizeof *order, rows_sort_compare, &rows);
  *ret_twice = n;
  for (size_t i = 1; i < n; i++)
    if (order[i] < *ret_twice &&
        rows_compare(values + order[i - 1] * width, values + order[i] * width, width) == 0)
      *ret_twice = order[i];

  return order;
}

static bool row_find(const struct value *values, const uint32_t *order, size_t n, size_t width,
                     const struct value *row, uint64_t *ret_index) {
  size_t low = 0, high = n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int sign = rows_compare(values + order[middle] * width, row, width);
    if (sign == 0) {
      *ret_index = order[middle];
      return true;
    }
    if (sign < 0)
      low = middle + 1;
    else
      high = middle;
  }

  return false;
}

static bool space_value_from_json(const json_t *json, const char *pointer, struct value *ret,
                                  struct error *error) {
  if (!value_from_json(json, ret, error))
    return error_pointer_prefix(error, pointer);
  if (ret->type == VALUE_FLOAT)
    return error_at(error, pointer,
                    "a parameter has no float values; write an integer or a string");
  return true;
}

static bool parameter_name_check(const char *name, struct error *error) {
  const char *shown = NAME_CUT(name);
  if (!expr_can_name(name))
    return error_set(
        error,
        "\"%s\" cannot name a parameter: use letters, digits and _, and no keyword of expressions",
        shown);

  for (size_t i = 0; i < SPACE_FACTS; i++)
    if (string_equal(name, space_fact_names[i]))
      return error_set(error,
                       "a parameter cannot be named \"%s\": conditions read the GPU's by that name",
                       shown);

  return true;
}

/* A space as its JSON states it. */
struct given_parameter {
  char *name;
  json_t *values;
};
PRIVATE_RECORD(parameter, struct given_parameter,
               RECORD_FIELD(TEXT, struct given_parameter, name, .check = parameter_name_check),
               {"values", FIELD_JSON, offsetof(struct given_parameter, values),
                FIELD_NOT_NULL | FIELD_ARRAY, .least = 1, .most = SPACE_VALUES_MAX,
                .schema = "{\"type\": [\"integer\", \"string\", \"boolean\", \"null\"]}"});

struct given_role {
  char *parameter;
  enum role role;
};
PRIVATE_RECORD(role, struct given_role, RECORD_FIELD(TEXT, struct given_role, parameter),
               RECORD_FIELD(ENUM, struct given_role, role, FIELD_NOT_NULL, .names = role_names));

struct given {
  RECORD_ARRAY(struct given_parameter, n_parameters, parameters);
  json_t *configs;
  RECORD_ARRAY(struct given_role, n_roles, roles);
  RECORD_ARRAY(char *, n_conditions, conditions);
  json_t *default_config;
};
#define SCHEMA_CONFIG "{\"$ref\": \"#/components/schemas/Config\"}"
static const struct field given_fields[] = {
    {"parameters", FIELD_MAP, offsetof(struct given, n_parameters), .least = 1,
     .most = SPACE_PARAMETERS_MAX, .of = &parameter_record,
     .about = "each with its values; their order counts"},
    RECORD_FIELD(JSON, struct given, configs, FIELD_ARRAY, .least = 1, .most = SPACE_LIST_MAX,
                 .schema = SCHEMA_CONFIG,
                 .about = "in place of parameters and conditions: all configs, of the same names"),
    {"roles", FIELD_MAP, offsetof(struct given, n_roles), .of = &role_record,
     .about = "of parameters; constexpr for others"},
    {"conditions", FIELD_TEXTS, offsetof(struct given, n_conditions), .most = SPACE_CONDITIONS_MAX,
     .about = "expressions that are true for every config that is measured"},
    {"default", FIELD_JSON, offsetof(struct given, default_config), FIELD_OBJECT,
     .schema = SCHEMA_CONFIG},
};
const struct record space_json_record = RECORD("Space", struct given, given_fields);

static void given_release(struct given *given) { record_release(&space_json_record, given); }

static bool parameters_parse(struct space *space, const struct given *given, struct error *error) {
  space->raw_count = 1;
  for (size_t i = 0; i < given->n_parameters; i++) {
    struct parameter *parameter = &space->parameters[space->n_parameters++];
    const json_t *values = given->parameters[i].values;
    size_t n = json_array_size(values), twice;
    parameter->name = xstrdup(given->parameters[i].name);
    parameter->values = xcalloc(n, sizeof *parameter->values);
    parameter->n_values = n;
    const char *pointer = POINTER_MEMBER("/parameters", parameter->name);

    for (size_t j = 0; j < n; j++)
      if (!space_value_from_json(json_array_get(values, j), POINTER_INDEX(pointer, j),
                                 &parameter->values[j], error))
        return false;
    parameter->values_order = rows_order(parameter->values, n, 1, &twice);
    if (twice < n)
      return error_at(error, POINTER_INDEX(pointer, twice), "the value occurs twice; take one out");
    if (__builtin_mul_overflow(space->raw_count, (uint64_t)n, &space->raw_count) ||
        space->raw_count > INT64_MAX)
      return error_at(
          error, pointer,
          "the raw product of the parameters exceeds 2**63 - 1 points; split the space");
  }

  return true;
}

/* False, with the error at pointer/name, where there is no such parameter. */
static bool parameter_find(const struct space *space, const char *name, const char *pointer,
                           size_t *ret_index, struct error *error) {
  const char *names[SPACE_PARAMETERS_MAX];
  for (size_t i = 0; i < space->n_parameters; i++) {
    names[i] = space->parameters[i].name;
    if (string_equal(names[i], name)) {
      *ret_index = i;
      return true;
    }
  }

  error_at(error, POINTER_MEMBER(pointer, name), "the space has no parameter \"%s\"",
           NAME_CUT(name));
  error_suggest(error, name, names, space->n_parameters);
  return false;
}

/* Reads {name: value}, whose members must be exactly the parameters, into a row. */
static bool row_parse(const struct space *space, const json_t *json, const char *pointer,
                      struct value *row, struct error *error) {
  if (!json_is_object(json))
    return error_at(error, pointer, "a config must be an object of parameters and values");

  json_members (json, name, member) {
    size_t index;
    if (!parameter_find(space, name, pointer, &index, error) ||
        !space_value_from_json(member, POINTER_MEMBER(pointer, name), &row[index], error))
      return false;
  }

  for (size_t i = 0; i < space->n_parameters; i++)
    if (!json_object_get(json, space->parameters[i].name))
      return error_at(error, POINTER_MEMBER(pointer, space->parameters[i].name),
                      "the config has no value for parameter \"%.64s\"", space->parameters[i].name);
  return true;
}

static bool list_parse(struct space *space, const json_t *json, struct error *error) {
  size_t n = json_array_size(json);
  json_t *first = json_array_get(json, 0);

  if (json_object_size(first) > SPACE_PARAMETERS_MAX)
    return error_at(error, "/configs/0", "the space has more than %d parameters",
                    SPACE_PARAMETERS_MAX);

  json_members (first, name, member) {
    if (!parameter_name_check(name, error))
      return error_pointer_prefix(error, POINTER_MEMBER("/configs/0", name));
    space->parameters[space->n_parameters++].name = xstrdup(name);
  }

  space->is_list = true;
  space->raw_count = n;
  space->list = xcalloc(n, space->n_parameters * sizeof *space->list);
  for (size_t i = 0; i < n; i++)
    if (!row_parse(space, json_array_get(json, i), POINTER_INDEX("/configs", i),
                   space->list + i * space->n_parameters, error))
      return false;

  if (space->n_parameters == 0)
    return error_at(
        error, "/configs/0",
        "the configs have no parameters; for a kernel without any, write one with a single value");
  size_t twice;
  space->list_order = rows_order(space->list, n, space->n_parameters, &twice);
  if (twice < n)
    return error_at(error, POINTER_INDEX("/configs", twice),
                    "the config occurs twice in the list; take one out");
  return true;
}

static json_t *values_to_json(const struct value *values, size_t n) {
  json_t *json = json_array();
  ALWAYS(json != NULL);
  for (size_t i = 0; i < n; i++)
    json_push(json, value_to_json(values[i]));
  return json;
}

/* The digest of the canonical form: the order of parameters, values, configs and conditions counts;
 * what is absent, empty or the default is left out. {"parameters": [[name, [values]]] or "names":
 * [name], "configs": [[values]], "roles": {name: "option" or "env"}, "conditions": [text],
 * "default": {name: value}} */
static struct digest identity(const struct space *space) {
  json_t *parameters = json_array(), *roles = json_object(), *configs = NULL;
  for (size_t i = 0; i < space->n_parameters; i++) {
    const struct parameter *parameter = &space->parameters[i];
    json_t *member = space->is_list
                         ? json_string(parameter->name)
                         : json_pack("[s, o]", parameter->name,
                                     values_to_json(parameter->values, parameter->n_values));
    json_push(parameters, member);
    if (parameter->role != ROLE_CONSTEXPR)
      json_put(roles, parameter->name, json_string(role_names[parameter->role]));
  }

  if (space->is_list)
    configs = json_array();

  for (uint64_t i = 0; configs && i < space->raw_count; i++)
    json_push(configs, values_to_json(space->list + i * space->n_parameters, space->n_parameters));

  cleanup_json json_t *form =
      json_pack("{s:o, s:o*, s:O*, s:O*, s:o*}", space->is_list ? "names" : "parameters",
                parameters, "configs", configs, "conditions",
                space->n_conditions > 0 ? json_object_get(space->json, "conditions") : NULL,
                "roles", json_object_size(roles) > 0 ? roles : NULL, "default",
                space->has_default ? space_config_to_json(space, space->default_ordinal) : NULL);
  json_decref(roles);
  ALWAYS(form != NULL);
  return json_digest(form);
}

bool space_parse(const json_t *json, struct space **ret_space, struct error *error) {
  cleanup_space struct space *space = xcalloc(1, sizeof *space);
  cleanup_by(given_release) struct given given = {0};
  space->json = json_deep_copy(json);

  if (!record_read(&space_json_record, space->json, "", &given, error))
    return false;
  if (!given.parameters == !given.configs)
    return error_set(error, "a space must have either \"parameters\" or \"configs\", %s",
                     given.parameters ? "not both" : "and it has neither");
  if (given.configs && given.conditions)
    return error_at(error, "/conditions",
                    "a list of configs has no conditions; leave excluded configs out of the list");

  space->parameters = xcalloc(SPACE_PARAMETERS_MAX, sizeof *space->parameters);
  if (!(given.parameters ? parameters_parse(space, &given, error)
                         : list_parse(space, given.configs, error)))
    return false;

  for (size_t i = 0; i < given.n_roles; i++) {
    enum role role = given.roles[i].role;
    size_t index;
    if (!parameter_find(space, given.roles[i].parameter, "/roles", &index, error))
      return false;
    space->parameters[index].role = role == (enum role)ROLE_DEFINE ? ROLE_CONSTEXPR : role;
  }

  space->n_conditions = given.n_conditions;
  space->conditions = TAKE(given.conditions);
  given.n_conditions = 0;
  for (size_t i = 0; i < space->n_conditions; i++) {
    cleanup_expr struct expr *expr = NULL;
    if (!expr_parse(space->conditions[i], &expr, error))
      return condition_error(error, i);
  }

  if (given.default_config) {
    if (!space_config_from_json(space, given.default_config, &space->default_ordinal, error))
      return error_pointer_prefix(error, "/default");
    space->has_default = true;
  }

  space->digest = identity(space);
  *ret_space = TAKE(space);
  return true;
}

void space_free(struct space *space) {
  if (!space)
    return;

  for (size_t i = 0; i < space->n_parameters; i++) {
    free(space->parameters[i].name);
    free(space->parameters[i].values);
    free(space->parameters[i].values_order);
  }

  for (size_t i = 0; i < space->n_conditions; i++)
    free(space->conditions[i]);
  free(space->parameters);
  free(space->conditions);
  free(space->list);
  free(space->list_order);
  json_decref(space->json);
  free(space);
}

bool space_config(const struct space *space, uint64_t ordinal, struct value *values) {
  if (ordinal >= space->raw_count)
    return false;
  if (space->is_list) {
    memcpy(values, space->list + ordinal * space->n_parameters,
           space->n_parameters * sizeof *values);
    return true;
  }

  for (size_t i = space->n_parameters; i-- > 0;) {
    const struct parameter *parameter = &space->parameters[i];
    values[i] = parameter->values[ordinal % parameter->n_values];
    ordinal /= parameter->n_values;
  }

  return true;
}

bool space_ordinal(const struct space *space, const struct value *values, uint64_t *ret_ordinal) {
  if (space->is_list)
    return row_find(space->list, space->list_order, (size_t)space->raw_count, space->n_parameters,
                    values, ret_ordinal);

  uint64_t ordinal = 0;
  for (size_t i = 0; i < space->n_parameters; i++) {
    const struct parameter *parameter = &space->parameters[i];
    uint64_t index;
    if (!row_find(parameter->values, parameter->values_order, parameter->n_values, 1, &values[i],
                  &index))
      return false;
    ordinal = ordinal * parameter->n_values + index;
  }

  *ret_ordinal = ordinal;
  return true;
}

size_t space_parameter(const struct space *space, const char *name) {
  size_t i = 0;
  while (i < space->n_parameters && !string_equal(space->parameters[i].name, name))
    i++;
  return i;
}

json_t *space_config_to_json(const struct space *space, uint64_t ordinal) {
  struct value values[SPACE_PARAMETERS_MAX];
  json_t *json = json_object();
  ALWAYS(space_config(space, ordinal, values));
  for (size_t i = 0; i < space->n_parameters; i++)
    json_put(json, space->parameters[i].name, value_to_json(values[i]));
  return json;
}

char *space_config_format(const struct space *space, uint64_t ordinal) {
  struct value values[SPACE_PARAMETERS_MAX];
  ALWAYS(space_config(space, ordinal, values));
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);

  for (size_t i = 0; i < space->n_parameters; i++) {
    cleanup_free char *value = value_format(values[i], false);
    fprintf(out, "%s%s=%s", i ? " " : "", space->parameters[i].name, value);
  }

  ALWAYS(fclose(out) == 0);
  return text;
}

bool space_config_from_json(const struct space *space, const json_t *json, uint64_t *ret_ordinal,
                            struct error *error) {
  struct value row[SPACE_PARAMETERS_MAX];
  if (!row_parse(space, json, "", row, error))
    return false;
  if (space_ordinal(space, row, ret_ordinal))
    return true;
  if (space->is_list)
    return error_set(error, "the config is not in the list of the space");

  for (size_t i = 0; i < space->n_parameters; i++) {
    const struct parameter *parameter = &space->parameters[i];
    uint64_t ignored;
    if (row_find(parameter->values, parameter->values_order, parameter->n_values, 1, &row[i],
                 &ignored))
      continue;
    cleanup_free char *value = value_format(row[i], true);
    return error_at(error, POINTER_MEMBER("", parameter->name),
                    "%s is not one of the %zu values of parameter \"%.64s\"", NAME_CUT(value),
                    parameter->n_values, parameter->name);
  }
  die("space_config_from_json: every value was found and the config was not");
}

bool space_scope_add(const struct space *space, uint64_t ordinal, struct scope *scope,
                     struct error *error) {
  struct value values[SPACE_PARAMETERS_MAX];
  ALWAYS(space_config(space, ordinal, values));
  for (size_t i = 0; i < space->n_parameters; i++)
    if (!scope_add(scope, space->parameters[i].name, values[i], error))
      return false;
  return true;
}
