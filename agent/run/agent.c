/* What the threads of an agent share: its flags, and waiting for them. */
#include "agent/run/agent.h"

#include <time.h>

void agent_stop(struct agent *agent) {
  HOLD(&agent->mutex);
  agent->stopping = agent->must_post = agent->must_renew = true;
  array_foreach (thread, agent->threads, agent->n_threads)
    http_client_cancel(thread->client);

  /* Once the agent works, these two have last requests to send. */
  if (!agent->is_working && agent->keeper_client)
    http_client_cancel(agent->keeper_client);
  if (!agent->is_working && agent->poster_client)
    http_client_cancel(agent->poster_client);
  pthread_cond_broadcast(&agent->changed);
}

bool agent_flag(struct agent *agent, const bool *flag) {
  HOLD(&agent->mutex);
  return *flag;
}

bool agent_is_stopping(struct agent *agent) { return agent_flag(agent, &agent->stopping); }

void agent_wait(struct agent *agent, int64_t timeout_ms, bool *until) {
  struct timespec end = time_in(timeout_ms);
  const bool *ends = until ? until : &agent->stopping;
  HOLD(&agent->mutex);
  while (!*ends && pthread_cond_timedwait(&agent->changed, &agent->mutex, &end) == 0)
    continue;
  if (until)
    *until = false;
}

void agent_back_off(struct agent *agent, struct backoff *backoff, int64_t retry_after_s) {
  agent_wait(agent, backoff_next_ms(backoff, retry_after_s), NULL);
}

void agent_signal(struct agent *agent, bool *flag) {
  HOLD(&agent->mutex);
  *flag = true;
  pthread_cond_broadcast(&agent->changed);
}

char *agent_id(struct agent *agent) {
  HOLD(&agent->mutex);
  return agent->id ? xstrdup(agent->id) : NULL;
}
