-- Why agents hand back leases of which they measured nothing.

ALTER TABLE leases
    ADD COLUMN handed_back text, -- the reason that was given last
    ADD COLUMN handed_back_times integer NOT NULL DEFAULT 0; -- how often in a row it was this one, numbers aside

CREATE FUNCTION without_numbers(text text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN regexp_replace(text, '[0-9.]+', '0', 'g');

ALTER TABLE job_events DROP CONSTRAINT job_events_kind_check;
ALTER TABLE job_events ADD CONSTRAINT job_events_kind_check CHECK (
    kind IN ('queued', 'running', 'stage', 'lease_lost', 'handed_back', 'poisoned', 'done', 'failed', 'cancelled',
             'budget', 'late', 'quarantined', 'flagged', 'retried')) NOT VALID;
