-- Leases that were lost are charged for what was not charged when results were posted, and expired
-- leases are found without passing over those that ended (server/lease/lease_losses.sql).
ALTER TABLE leases
    ADD COLUMN epoch_device_us bigint NOT NULL DEFAULT 0, -- of device_us: in the present epoch
    -- When a held lease is looked at: as it was granted, its end. Later ends are in no index, so
    -- that renewals are HOT updates; a lease that was renewed until after due_at gets its new end.
    ADD COLUMN due_at timestamptz;

-- No statement that does not state due_at may use it: the planner takes any index of held leases
-- for them, and this one has an entry of each lease that ended while a transaction is forgotten.
CREATE INDEX leases_due ON leases (due_at) WHERE state = 'held' AND due_at IS NOT NULL;

-- What is noted of a held lease when it is lost. uncharged_us: how long it was held, less what its
-- owner was charged for when results were posted. config: the one that was being measured.
CREATE VIEW held_leases AS
SELECT id, job_id, owner_id, epoch, agent, device, fruitless, expires_at, due_at,
       (extract(epoch FROM now() - granted_at) * 1e6)::bigint - epoch_device_us
           - epoch_opening_us AS uncharged_us,
       CASE WHEN current_config <@ remaining THEN current_config END AS config
FROM leases
WHERE state = 'held';
