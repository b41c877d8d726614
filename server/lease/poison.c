/* The poison rule. Threads: pure functions. */
#include "server/lease/poison.h"

enum poison_step poison_decide(const struct poison_facts *facts) {
  if (facts->losses < 2)
    return POISON_AGAIN;
  if (facts->devices >= 2 || facts->other_agents == 0)
    return POISON_GIVE_UP;
  return POISON_APART;
}
