/* An open hash of statements by address. Memory and threads: statement.h. */
#include "server/db/statement.h"

#include <stdatomic.h>

/* A statement as PostgreSQL has it: :name is $1, $2, … */
struct compiled {
  char *sql;
  int n; /* named parameters */
  char *names[DB_PARAMETERS_MAX];
};

static struct statistic {
  _Atomic(const struct statement *) statement;
  _Atomic(struct compiled *) compiled; /* for as long as the process lives */
  atomic_uint_fast64_t values[DB_STATISTICS];
} statistics[STATEMENTS_MAX];

size_t statement_slot(const struct statement *statement) {
  size_t slot = ((uintptr_t)statement >> 4) * 0x9e3779b97f4a7c15u >> 54;
  for (size_t i = 0; i < STATEMENTS_MAX; i++, slot = (slot + 1) % STATEMENTS_MAX) {
    const struct statement *there =
        atomic_load_explicit(&statistics[slot].statement, memory_order_acquire);
    /* On failure the exchange sets `there` to the statement of the thread that was faster. */
    if (!there && atomic_compare_exchange_strong(&statistics[slot].statement, &there, statement))
      return slot;
    if (there == statement)
      return slot;
  }

  die("more than %d statements", STATEMENTS_MAX);
}

void statement_count(const struct statement *statement, int64_t began_ns, uint64_t rows,
                     bool is_failure) {
  const uint64_t values[DB_STATISTICS] = {[DB_RUNS] = 1,
                                          [DB_ROWS] = rows,
                                          [DB_NANOSECONDS] =
                                              (uint64_t)(clock_monotonic_ns() - began_ns),
                                          [DB_FAILURES] = is_failure};
  struct statistic *statistic = &statistics[statement_slot(statement)];
  for (size_t i = 0; i < DB_STATISTICS; i++)
    atomic_fetch_add_explicit(&statistic->values[i], values[i], memory_order_relaxed);
}

void db_statistics_visit(void (*visit)(void *context, const char *statement,
                                       const uint64_t values[DB_STATISTICS]),
                         void *context) {
  for (size_t slot = 0; slot < STATEMENTS_MAX; slot++) {
    const struct statement *statement = atomic_load(&statistics[slot].statement);
    uint64_t values[DB_STATISTICS];
    for (size_t i = 0; i < DB_STATISTICS; i++)
      values[i] = atomic_load(&statistics[slot].values[i]);
    if (statement)
      visit(context, statement->name, values);
  }
}

/* A colon before a small letter or "_" begins a parameter, outside of quotes and where it is not
 * the cast "::". A name that occurs again is the same parameter. */
static struct compiled *compile(const char *sql) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
  struct compiled *compiled = xcalloc(1, sizeof *compiled);
  size_t size;
  FILE *out = open_memstream(&compiled->sql, &size);
  ALWAYS(out != NULL);

  for (char quote = '\0'; *sql; sql++) {
    if (quote ? *sql == quote : *sql == '\'' || *sql == '"')
      quote = quote ? '\0' : *sql;
    bool is_parameter = !quote && sql[0] == ':' && !(sql[1] >= '0' && sql[1] <= '9');
    size_t length = is_parameter ? strspn(sql + 1, letters) : 0;
    if (!length) {
      putc(*sql, out);
      if (is_parameter && sql[1] == ':')
        putc(*++sql, out);
      continue;
    }

    int i = 0;
    while (i < compiled->n && (strlen(compiled->names[i]) != length ||
                               memcmp(compiled->names[i], sql + 1, length) != 0))
      i++;
    if (i == compiled->n) {
      ALWAYS(compiled->n < DB_PARAMETERS_MAX);
      compiled->names[compiled->n++] = xstrndup(sql + 1, length);
    }
    fprintf(out, "$%d", i + 1);
    sql += length;
  }

  ALWAYS(fclose(out) == 0);
  return compiled;
}

static const struct compiled *statement_compiled(const struct statement *statement,
                                                 const struct db_parameters *parameters) {
  struct statistic *statistic = &statistics[statement_slot(statement)];
  struct compiled *there = atomic_load_explicit(&statistic->compiled, memory_order_acquire);
  if (there)
    return there;

  cleanup_free char *sql = statement_expand(statement->sql, parameters ? parameters->record : NULL);
  struct compiled *made = compile(sql);
  if (atomic_compare_exchange_strong(&statistic->compiled, &there, made))
    return made;

  for (int i = 0; i < made->n; i++)
    free(made->names[i]);
  free(made->sql);
  free(made);
  return there;
}

const char *statement_text(const struct statement *statement,
                           const struct db_parameters *parameters) {
  return statement_compiled(statement, parameters)->sql;
}

void statement_bind(const struct statement *statement, const struct db_parameters *parameters,
                    struct bound *ret) {
  const struct compiled *compiled = statement_compiled(statement, parameters);
  bool is_bound[DB_PARAMETERS_MAX] = {false};

  for (int k = 0; parameters && k < parameters->n; k++) {
    const struct db_parameter *parameter = &parameters->all[k];
    int i = 0;
    while (i < compiled->n && strcmp(compiled->names[i], parameter->name) != 0)
      i++;
    if (i == compiled->n && !parameter->may_be_unused)
      die("%s: the parameter \"%s\" is one that the statement does not have", statement->name,
          parameter->name);
    if (i == compiled->n)
      continue;
    if (is_bound[i])
      die("%s: the parameter \"%s\" is bound twice", statement->name, parameter->name);
    is_bound[i] = true;
    ret->values[i] = parameter->value;
    ret->lengths[i] = parameter->size;
    ret->formats[i] = parameter->is_binary;
  }

  for (int i = 0; i < compiled->n; i++)
    if (!is_bound[i])
      die("%s: the parameter \"%s\" is not bound", statement->name, compiled->names[i]);

  ret->n = compiled->n;
}
