/* A connection to PostgreSQL and the statements that run on it.
 *
 * A statement is a static object; it is prepared on a connection when it is first used there.
 * Parameters and results are text. Every run is counted and timed by the statement's name
 * (/metrics). After a lost connection the next db_run outside a transaction makes a new one. The
 * statement that was running has failed, and may have been committed: every write is idempotent, so
 * the caller lets its client try again.
 *
 * Every wait is bounded, even when PostgreSQL hangs (its processes are stopped, or its storage is
 * gone), which TCP does not notice: a run that passes its deadline fails with ERROR_DEADLINE, its
 * connection is closed, and the next run makes another. Connecting takes until the deadline, but at
 * least 2 s and at most 5 s for each address in the connection string, after their names are
 * resolved.
 *
 * Memory: db_rows are the caller's. Threads: a db belongs to one thread, except for
 * db_stop. */
#ifndef WAVETUNE_SERVER_DB_DB_H
#define WAVETUNE_SERVER_DB_DB_H

#include "common/base/error.h"

struct db;

/* Opens nothing yet: the first statement connects. `conninfo` is libpq's connection string or
 * URI. */
must_check struct db *db_new(const char *conninfo, const char *application_name);
void db_free(struct db *db);

/* How long one run may take (default: DB_RUN_MS). PostgreSQL ends a statement at nine tenths of it,
 * on connections made from now on, so that the connection is kept. */
#define DB_RUN_MS 60000
int64_t db_set_run_ms(struct db *db, int64_t run_ms); /* returns the former value */

/* Sets a deadline for all runs from now on, such as a request's, by clock_monotonic_ms. 0: each run
 * has only its own. */
void db_set_deadline(struct db *db, int64_t until_ms);

/* False after a run that lost the connection or could not connect. */
bool db_is_connected(const struct db *db);

/* When PostgreSQL last answered a connection of this process, by clock_monotonic_ms; 0: never. Any
 * thread. */
int64_t db_answered_ms(void);

/* What PostgreSQL last said when it lacked a resource, such as room on its disk, and when, by
 * clock_monotonic_ms; "" and 0: never. Any thread. */
#define DB_SHORTAGE_SIZE 256
int64_t db_shortage(char ret_text[DB_SHORTAGE_SIZE]);

/* The present run and later ones fail within 100 ms. Any thread. */
void db_stop(struct db *db);

/* Statements are written in .sql files, from which server/db/statements.cmake makes objects
 * sql_NAME in "FILE.sql.h". Parameters are called :name there. */
struct statement {
  const char *name; /* [a-z_0-9]+, unique */
  const char *sql;
};

/* Parameters of a statement, by name. Names, texts and bytes are borrowed until the run, except the
 * text of bind_taken. */
#define DB_PARAMETERS_MAX 64
struct record;
struct db_parameters {
  int n;
  const struct record *record; /* the first of bind_records: {columns} are its; NULL: none */
  struct db_parameter {
    const char *name;
    const char *value; /* NULL: SQL null */
    int size;          /* of a binary one; 0: text */
    bool is_binary, may_be_unused;
    char *owned;
    /* Of a list for db_query (db_record.h), what stands for several: an author, an object of
     * `record`, or `n` of them. */
    enum { PARAMETER_ONE, PARAMETER_AUTHOR, PARAMETER_RECORD, PARAMETER_RECORDS } kind;
    const struct record *record;
    size_t n;
  } all[DB_PARAMETERS_MAX];
};
void db_parameters_release(struct db_parameters *parameters);
#define cleanup_parameters __attribute__((cleanup(db_parameters_release)))

/* Each parameter of the statement must be bound once; binding one that it does not have aborts. */
void bind_parameter(struct db_parameters *parameters, struct db_parameter parameter);
#define bind_text(parameters, name, text) bind_parameter(parameters, parameter_text(name, text))
#define bind_integer(parameters, name, n) bind_parameter(parameters, parameter_integer(name, n))
#define bind_id(parameters, name, id) bind_parameter(parameters, parameter_id(name, id))
struct db_parameter parameter_text(const char *name, const char *text);   /* NULL: null */
struct db_parameter parameter_integer(const char *name, int64_t integer); /* FIELD_NONE: null */
struct db_parameter parameter_id(const char *name, int64_t id);           /* 0: null */
struct db_parameter parameter_number(const char *name, double number);    /* NaN: null */
struct db_parameter parameter_bool(const char *name, bool is_true);
/* bytea */
struct db_parameter parameter_bytes(const char *name, const void *bytes, size_t size);
/* Takes over `text`, which was allocated. */
struct db_parameter parameter_taken(const char *name, char *text);
/* Binds such a text; `may_be_unused`: the statement need not have the parameter. */
void bind_taken(struct db_parameters *parameters, const char *name, char *text, bool may_be_unused);

/* A text array literal being built for unnest: {"a","b",NULL}. */
struct db_array {
  char *text; /* complete after db_array_finish */
  size_t size, capacity;
  size_t n;
};
void db_array_init(struct db_array *array);
void db_array_text(struct db_array *array,
                   const char *element); /* NULL: null; quoted and escaped */
void db_array_integer(struct db_array *array, int64_t element);
const char *db_array_finish(struct db_array *array); /* closes it and returns its text */
/* Closes the array, takes its text and releases it. */
struct db_parameter parameter_array(const char *name, struct db_array *array);
/* text[]; NULL: null */
struct db_parameter parameter_texts(const char *name, const char *const *texts, size_t n);
#define bind_array(parameters, name, array) bind_parameter(parameters, parameter_array(name, array))

struct db_rows;
void db_rows_free(struct db_rows *rows);
DEFINE_CLEANUP(struct db_rows *, cleanup_db_rows_free, db_rows_free)
#define cleanup_rows __attribute__((cleanup(cleanup_db_rows_free)))
int db_count(const struct db_rows *rows);
int64_t db_affected(const struct db_rows *rows); /* rows that INSERT/UPDATE/DELETE touched */
bool db_is_null(const struct db_rows *rows, int row,
                const char *column); /* columns by name; a missing one aborts */
const char *db_get(const struct db_rows *rows, int row, const char *column); /* text, "" for null */
int64_t db_get_integer(const struct db_rows *rows, int row, const char *column); /* 0 for null */
double db_get_double(const struct db_rows *rows, int row, const char *column);
bool db_get_bool(const struct db_rows *rows, int row, const char *column);
/* Decodes a bytea; the result is the caller's. */
must_check uint8_t *db_get_bytes(const struct db_rows *rows, int row, const char *column,
                                 size_t *ret_size);

/* Runs a statement. Errors: ERROR_UNAVAILABLE (no connection, or lost), ERROR_DEADLINE,
 * ERROR_CONTENTION (deadlock or serialization: run the transaction again), ERROR_UNIQUE (23505, a
 * unique index), ERROR_REFERENCE (23503, a row refers to one that is missing, or would), otherwise
 * ERROR_INTERNAL. */
must_check bool db_run(struct db *db, const struct statement *statement,
                       const struct db_parameters *parameters, struct db_rows **ret_rows,
                       struct error *error);

/* The same in a transaction, for a statement whose answer is not needed at once. When it fails, the
 * next run or the commit is not run and returns its error. `rows`: how many it must touch; another
 * number aborts. */
#define DB_ANY_ROWS (-1)
must_check bool db_send(struct db *db, const struct statement *statement,
                        const struct db_parameters *parameters, int64_t rows, struct error *error);

/* BEGIN is sent with the first statement: until then there is no snapshot and no now(). */
must_check bool db_begin(struct db *db, struct error *error);
/* The same, but sends BEGIN before it returns, so that now() is not later than the return. */
must_check bool db_begin_now(struct db *db, struct error *error);
/* What a program keeps with the connection; NULL: nothing. The caller's. */
void db_set_context(struct db *db, void *context);
void *db_context(const struct db *db);
/* Calls `done` after the transaction is committed, once for each `what`, with the sum of its `n`.
 */
void db_at_commit(struct db *db, void (*done)(struct db *db, int what, uint64_t n), int what,
                  uint64_t n);
bool db_is_in_transaction(const struct db *db);
must_check bool db_commit(struct db *db, struct error *error);
void db_rollback(struct db *db);
/* Commits when `is_good`; else rolls back, keeps *error and returns false. */
must_check bool db_end(struct db *db, bool is_good, struct error *error);

/* Calls `run` in a transaction and commits when it returns true; `run` begins with what an earlier
 * attempt left. Both are repeated, at most `attempts` times in all, after ERROR_CONTENTION,
 * ERROR_UNIQUE and ERROR_REFERENCE: another transaction changed what this one had read. */
#define DB_ATTEMPTS 5
typedef bool db_work(struct db *db, void *context, struct error *error);
must_check bool db_transaction(struct db *db, int attempts, db_work *run, void *context,
                               struct error *error);

/* When this connection was made last, by clock_monotonic_ms. No lease expires for one lease time
 * after that. */
int64_t db_connected_since_ms(const struct db *db);

/* Runs several statements by the simple protocol, without parameters. */
must_check bool db_run_script(struct db *db, const char *sql, struct error *error);

/* Calls visit, for /metrics, with the statistics of each statement that this process has run. Any
 * thread. */
enum { DB_RUNS, DB_ROWS, DB_NANOSECONDS, DB_FAILURES, DB_STATISTICS };
void db_statistics_visit(void (*visit)(void *context, const char *statement,
                                       const uint64_t values[DB_STATISTICS]),
                         void *context);

/* The author of a write: the token of the request, as tables store it.
 *
 * Memory: authors borrow their texts. Threads: plain values. */
struct author {
  int64_t token;     /* id; 0: none */
  const char *name;  /* of the token; else a name that no token can have */
  const char *roles; /* of the token, separated by commas */
  const char *peer;  /* numeric address; NULL: none */
};
extern const struct author author_server;       /* writes of the server itself */
extern const struct author author_command_line; /* writes of wavetune-server's commands */

/* Binds the name as :author and the id, null without a token, as :author_id. */
void bind_author(struct db_parameters *parameters, const struct author *author);

#endif
