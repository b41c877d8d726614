/* What becomes of a config whose lease was lost while it was being measured: bad luck, a bad device or a bad config?
 *
 * Threads: pure functions. */
#ifndef WAVETUNE_SERVER_LEASE_POISON_H
#define WAVETUNE_SERVER_LEASE_POISON_H

#include "common/base/base.h"

struct poison_facts {
  int64_t losses;       /* leases lost while this config of this job was being measured, this one included */
  int64_t devices;      /* on how many different devices */
  int64_t other_agents; /* live, not draining agents that could run the job and have not lost this config */
};

enum poison_step {
  POISON_AGAIN,   /* any agent may try again */
  POISON_APART,   /* it moves to a lease of its own that the agents which lost it do not get */
  POISON_GIVE_UP, /* its outcome is runtime */
};

/* Two losses poison a config for that device, losses on two devices for the environment. */
enum poison_step poison_decide(const struct poison_facts *facts);

#endif
