/* The thread that collects once a day (serve --keep-days).
 *
 * One of the servers that share a database does it: it sets the time of the next collection first.
 * A server that ends meanwhile has collected a part; the rest waits for the next day.
 *
 * Memory and threads: collect_main has a thread and a connection of its own. */
#ifndef WAVETUNE_SERVER_BLOB_COLLECT_H
#define WAVETUNE_SERVER_BLOB_COLLECT_H

/* The thread's main function: takes its struct worker. */
void *collect_main(void *worker);
/* Removes files that nothing names. The housekeeper's. */
struct worker;
void files_housekeep(struct worker *worker);

#endif
