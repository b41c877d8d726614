-- Whether what was measured can be trusted: devices that drift from their own history, and winners that turned out slower
-- than the default. `measurements` may have a hundred million rows: nothing here reads or rewrites it.

ALTER TABLE devices
    ADD COLUMN drain_reason text, -- this device gets no leases; null: it does, unless its agent drains
    ADD COLUMN suspect_since timestamptz, -- it drifts: what it measured later is quarantined
    ADD COLUMN history_since timestamptz; -- what it measured before tells nothing of how it is now

-- What the baseline took in each lease, by device and subject: the SHA-256 of all that must be equal for two of them to be
-- comparable (store/drift.c).
CREATE TABLE device_baselines (
    agent text NOT NULL,
    device text NOT NULL,
    subject bytea NOT NULL CHECK (octet_length(subject) = 32),
    at timestamptz NOT NULL DEFAULT now(),
    lease_id bigint NOT NULL,
    epoch bigint NOT NULL,
    median_us double precision NOT NULL CHECK (median_us > 0),
    UNIQUE (lease_id, epoch)
);
CREATE INDEX device_baselines_history ON device_baselines (agent, device, subject, at DESC);

ALTER TABLE measurements ADD COLUMN quarantined boolean NOT NULL DEFAULT false;

ALTER TABLE winners
    ADD COLUMN quarantined text, -- why the samples it was decided from are not trusted
    ADD COLUMN flagged json; -- {"job", "ratio", "lower", "upper", "at"}: a later job measured it slower than the default

-- Checked for new rows only: the old ones have the kinds of before.
ALTER TABLE job_events DROP CONSTRAINT job_events_kind_check;
ALTER TABLE job_events ADD CONSTRAINT job_events_kind_check CHECK (
    kind IN ('queued', 'running', 'stage', 'lease_lost', 'poisoned', 'done', 'failed', 'cancelled', 'budget', 'late',
             'quarantined', 'flagged')) NOT VALID;
