/* Rows about the fleet, as `wavetune agents` and `wavetune top` print them, of what the server
 * answers to GET /v1/fleet/nodes and /v1/campaigns.
 *
 * Memory: rows are the caller's. Threads: one. */
#ifndef WAVETUNE_CLI_FLEET_H
#define WAVETUNE_CLI_FLEET_H

#include "common/base/json.h"

/* A row for each node: host, devices ("6 measuring, 2 idle"), doing ("matmul ×5, softmax"), reason,
 * seen, version, agent. `now_ms`: the as_of_ms of the answer. */
must_check json_t *fleet_node_rows(const json_t *nodes, int64_t now_ms);

/* A row for each device: the members of the answer, with host, agent, and for ("3 min"). */
must_check json_t *fleet_device_rows(const json_t *nodes, int64_t now_ms);

/* A copy of the campaigns with ended ("5/48"), span and to_go ("3.2 h"). */
must_check json_t *fleet_campaign_rows(const json_t *campaigns);

/* "drained: a new fan (by carol)"; the caller's. */
must_check char *fleet_state_text(const json_t *device);

#endif
