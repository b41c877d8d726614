/* Whose turn it is. */
#include "server/lease/fair_share.h"

int64_t share_priority(const struct share_queue *queue) {
  int64_t gained = queue->waited_ms > 0 ? queue->waited_ms / SHARE_STEP_MS : 0;
  int64_t most = SHARE_PRIORITY_MAX - queue->priority;
  return queue->priority + (gained < most ? gained : most);
}

static bool is_before(const struct share_queue *a, const struct share_queue *b) {
  int64_t priority_a = share_priority(a), priority_b = share_priority(b);
  if (priority_a != priority_b)
    return priority_a > priority_b;

  double used_a = (a->owner->used_us + a->owner->held * a->owner->lease_us) / a->owner->weight;
  double used_b = (b->owner->used_us + b->owner->held * b->owner->lease_us) / b->owner->weight;
  if (a->owner != b->owner && used_a != used_b)
    return used_a < used_b;
  return a->group < b->group;
}

/* Keeps the first `most` so far sorted, and inserts each queue among them. */
size_t share_rank(const struct share_queue *queues, size_t n, size_t *ret, size_t most) {
  size_t n_ranked = 0;
  for (size_t i = 0; i < n; i++) {
    if (queues[i].owner->is_quota_used)
      continue;

    size_t at = n_ranked;
    while (at > 0 && is_before(&queues[i], &queues[ret[at - 1]]))
      at--;
    if (at == most)
      continue;

    if (n_ranked < most)
      n_ranked++;
    for (size_t k = n_ranked - 1; k > at; k--)
      ret[k] = ret[k - 1];
    ret[at] = i;
  }
  return n_ranked;
}

bool share_is_by_waiting(const struct share_queue *queues, size_t n, size_t index) {
  for (size_t i = 0; i < n; i++)
    if (!queues[i].owner->is_quota_used && queues[i].priority > queues[index].priority)
      return true;
  return false;
}

int64_t share_waited_after(int64_t waited_ms, bool is_by_waiting) {
  return is_by_waiting && waited_ms > SHARE_COST_MS ? waited_ms - SHARE_COST_MS : 0;
}
