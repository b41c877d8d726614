/* The spool: measurements and ends of leases that the server has not acknowledged yet, in an
 * append-only file.
 *
 * FOLDER/spool holds records: a header (magic, length, number, check) and a JSON text. Numbers only
 * grow, also over restarts and after the file is shortened; a measurement's number is its `seq`.
 * FOLDER/spool.acknowledged holds a number: the server has stored all records up to that. An
 * incomplete record at the end, after a crash, is dropped when the spool is opened. Records are
 * synced to the disk before they are read, so nothing is posted that a crash could lose.
 * FOLDER/lock is locked while the spool is open: two agents in one folder would mix their numbers.
 *
 * Memory: owns its files. Threads: append from any, peek and acknowledge from one. */
#ifndef WAVETUNE_AGENT_RUN_SPOOL_H
#define WAVETUNE_AGENT_RUN_SPOOL_H

#include "common/base/json.h"

#define SPOOL_RECORD_MAX (16u << 20)
#define SPOOL_SHORTEN_AT_DEFAULT (4u << 20)

struct spool;

/* `shorten_at`: acknowledged records are removed from the file when they are more bytes than this,
 * and at least half of the file. */
must_check bool spool_open(const char *folder, uint64_t shorten_at, struct spool **ret_spool,
                           struct error *error);
void spool_close(struct spool *spool);

/* Appends a record; *ret_number is its number, from 1. False when it cannot be written; the file is
 * then unchanged. */
must_check bool spool_append(struct spool *spool, const json_t *record, uint64_t *ret_number,
                             struct error *error);

struct spool_record {
  uint64_t number;
  json_t *json;
};

/* The oldest records that are not acknowledged, at most `most`, in order; the caller decrefs them.
 * They stay until they are acknowledged. False when the disk cannot sync or read them. */
must_check bool spool_peek(struct spool *spool, struct spool_record *records, size_t most,
                           size_t *ret_n, struct error *error);

/* Marks all records up to and including `number` as stored by the server. */
must_check bool spool_acknowledge(struct spool *spool, uint64_t number, struct error *error);

/* Whether all records are acknowledged. spool_wait waits at most timeout_ms until one is not;
 * spool_wake ends a wait. */
bool spool_is_empty(struct spool *spool);
void spool_wait(struct spool *spool, int64_t timeout_ms);
void spool_wake(struct spool *spool);

#endif
