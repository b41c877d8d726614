-- Leases. Every write locks its leases in the order of their ids, or skips what others have locked; after leases come
-- jobs: nothing waits for a lease while it holds a job's row.

-- Of a lease that was locked before, and was in from_state then: lease_state.h says what each part means.
-- name: lease_change_state
UPDATE leases l
SET state = c.to_state::lease_state,
    epoch = l.epoch + c.is_grant::int,
    agent = COALESCE(c.agent, l.agent),
    device = COALESCE(c.device, l.device),
    nonce = COALESCE(c.nonce, l.nonce),
    token_id = CASE WHEN c.is_grant THEN c.token ELSE l.token_id END,
    granted_at = CASE WHEN c.is_grant THEN now() ELSE l.granted_at END,
    expires_at = CASE WHEN c.is_grant THEN clock_timestamp() + c.held_ms * interval '1 ms' ELSE l.expires_at END,
    current_config = CASE WHEN c.to_state = 'held' AND NOT c.is_grant THEN l.current_config END,
    configs = l.configs + c.more,
    remaining = l.remaining - c.less + c.more,
    is_split = CASE WHEN c.is_grant THEN false ELSE l.is_split OR c.is_split END,
    posts = l.posts + c.posts,
    fruitless = GREATEST(l.fruitless + c.is_grant::int - c.fruitless_less, 0),
    device_us = l.device_us + c.device_us,
    opening_us = l.opening_us + c.opening_us,
    epoch_opening_us = CASE WHEN c.is_grant THEN 0 ELSE l.epoch_opening_us + c.opening_us END,
    outcomes = ARRAY[l.outcomes[1] + c.correct, l.outcomes[2] + c.compile, l.outcomes[3] + c.runtime,
                     l.outcomes[4] + c.correctness, l.outcomes[5] + c.timeout, l.outcomes[6] + c.constraints]
FROM (SELECT *, from_state <> 'held' AND to_state = 'held' AS is_grant
      FROM unnest(:lease::bigint[], :from_state::text[], :to_state::text[], :agent::text[], :device::text[],
                  :nonce::text[], :token::bigint[], :held_ms::bigint[], :less::int8multirange[],
                  :more::int8multirange[], :is_split::boolean[], :posts::int[], :fruitless_less::int[],
                  :device_us::bigint[], :opening_us::bigint[], :correct::int[], :compile::int[], :runtime::int[],
                  :correctness::int[], :timeout::int[], :constraints::int[])
           AS r(lease, from_state, to_state, agent, device, nonce, token, held_ms, less, more, is_split, posts,
                fruitless_less, device_us, opening_us, correct, compile, runtime, correctness, timeout,
                constraints)) c
WHERE l.id = c.lease AND l.state = c.from_state::lease_state;
