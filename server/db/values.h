/* Digests, sets of configs, JSON and budgets as SQL's texts.
 *
 * Threads: pure functions. */
#ifndef WAVETUNE_SERVER_DB_VALUES_H
#define WAVETUNE_SERVER_DB_VALUES_H

#include "common/space/space.h"
#include "common/verdict/budget.h"
#include "server/db/db.h"

/* A bytea literal, \x and 64 digits. */
#define BYTEA_TEXT_SIZE (2 + 2 * DIGEST_SIZE + 1)
char *digest_bytea(const struct digest *digest, char text[BYTEA_TEXT_SIZE]);
void db_array_digest(struct db_array *array, const struct digest *digest);
/* A bytea column of 32 bytes; aborts on anything else. */
struct digest db_get_digest(const struct db_rows *rows, int row, const char *column);

/* A json column, parsed; null for SQL null; a new reference. Aborts on invalid JSON: the column's
 * type forbids it. */
must_check json_t *db_get_json(const struct db_rows *rows, int row, const char *column);

/* An int8multirange literal, {[0,48),[50,72)}; the caller's. */
must_check char *multirange_format(const struct config_ranges *ranges);
/* The inverse, for what the database wrote; aborts on anything else. */
struct config_ranges multirange_parse(const char *text);

/* A bigint[] of ordinals, {17,3}: writes at most `most` of them and returns how many. */
size_t ordinals_parse(const char *text, uint64_t *ret, size_t most);

/* From the columns of the database's function job_spending. */
struct budget db_get_budget(const struct db_rows *rows, int row);

#endif
