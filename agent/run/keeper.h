/* Enrolment, heartbeats, the agent's token, and the renewal of its leases.
 *
 * Threads: one, the keeper's. Memory: the agent owns what is stored in it. */
#ifndef WAVETUNE_AGENT_RUN_KEEPER_H
#define WAVETUNE_AGENT_RUN_KEEPER_H

#include "agent/run/agent.h"

/* Before anything is posted: finds out which of the agent's tokens the server accepts; waits while
 * the server does not answer. */
void own_token_choose(struct agent *agent);
/* Stores the boot nonce, so that a restarted agent enrols with it until an enrolment is answered.
 */
void boot_keep(struct agent *agent);
/* Enrols; false when the server refuses for good (*ret_code is the exit code). */
must_check bool agent_enrol(struct agent *agent, int *ret_code);
/* Runs the keeper until the poster has ended. */
void agent_keep(struct agent *agent);
/* Tells the server that the agent ends, so that it is not taken for lost. */
void agent_say_end(struct agent *agent);

#endif
