/* Posting what is in the spool to the server. Threads: one at a time. */
#ifndef WAVETUNE_AGENT_RUN_POSTER_H
#define WAVETUNE_AGENT_RUN_POSTER_H

#include "agent/run/agent.h"

/* Posts the records of an earlier process. */
void agent_post_left(struct agent *agent);
/* A thread: posts new ones. `context` is the agent. */
void *poster_run(void *context);

#endif
