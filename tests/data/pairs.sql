-- For tests/system/test_pairs.py: a copy of a small database, and what must never be true of it.

CREATE SCHEMA before;

CREATE TABLE before.tables (name text PRIMARY KEY, columns text);
INSERT INTO before.tables
SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                   AND a.attgenerated = ''
WHERE c.relnamespace = 'public'::regnamespace
  AND c.relname = ANY (:tables)
  AND c.relkind IN ('r', 'p')
GROUP BY c.relname;

DO $$
DECLARE t before.tables;
BEGIN
    FOR t IN SELECT * FROM before.tables LOOP
        EXECUTE format('CREATE TABLE before.%I AS SELECT %s FROM public.%I', 'x_' || t.name,
                       t.columns, t.name);
    END LOOP;
END $$;

-- Changes that no transaction may make.
CREATE TABLE before.violations (what text);

CREATE FUNCTION before.note(what text, old_row anyelement, new_row anyelement) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO before.violations VALUES (what || ': ' || old_row::text || ' to ' || new_row::text);
$$;

CREATE FUNCTION before.look_leases() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (old.state, new.state) IN (('done', 'held'), ('done', 'cancelled'), ('cancelled', 'open'),
                                  ('cancelled', 'held'), ('cancelled', 'done'))
       OR (old.state = 'open' AND new.state = 'held' AND new.epoch <> old.epoch + 1)
       OR (NOT (old.state = 'open' AND new.state = 'held') AND new.epoch <> old.epoch)
       OR new.posts < old.posts OR new.device_us < old.device_us OR new.priority < old.priority
       OR NOT new.configs @> old.configs THEN
        PERFORM before.note('lease', old, new);
    END IF;
    RETURN new;
END $$;

CREATE FUNCTION before.look_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF old.state IN ('done', 'failed', 'cancelled') AND new.state <> old.state
       OR old.state = 'running' AND new.state = 'queued'
       OR new.events < old.events OR new.priority < old.priority OR new.round < old.round
       OR new.best_ratio > old.best_ratio OR (old.likely <> '{}' AND new.likely <> old.likely) THEN
        PERFORM before.note('job', old, new);
    END IF;
    RETURN new;
END $$;

CREATE FUNCTION before.look_tokens() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF old.revoked_at IS NOT NULL AND new.revoked_at IS DISTINCT FROM old.revoked_at
       OR new.uses_left > old.uses_left
       OR COALESCE(new.expires_at, 'infinity') > COALESCE(old.expires_at, 'infinity') THEN
        PERFORM before.note('token', old, new);
    END IF;
    RETURN new;
END $$;

CREATE FUNCTION before.look_channels() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.counter NOT IN (old.counter, old.counter + 1) OR new.signings < old.signings
       OR (new.counter = old.counter AND new.release <> old.release) THEN
        PERFORM before.note('channel', old, new);
    END IF;
    RETURN new;
END $$;

CREATE FUNCTION before.look_proposals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF old.state <> 'open' AND new.state <> old.state THEN
        PERFORM before.note('proposal', old, new);
    END IF;
    RETURN new;
END $$;

CREATE FUNCTION before.look_measurements() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (old.late AND NOT new.late) OR (old.quarantined AND NOT new.quarantined) THEN
        PERFORM before.note('measurement', old, new);
    END IF;
    RETURN new;
END $$;

CREATE FUNCTION before.look_agents() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.last_seen < old.last_seen OR (old.token_id IS NOT NULL AND new.token_id IS NULL) THEN
        PERFORM before.note('agent', old, new);
    END IF;
    RETURN new;
END $$;

CREATE TRIGGER look BEFORE UPDATE ON leases FOR EACH ROW EXECUTE FUNCTION before.look_leases();
CREATE TRIGGER look BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION before.look_jobs();
CREATE TRIGGER look BEFORE UPDATE ON tokens FOR EACH ROW EXECUTE FUNCTION before.look_tokens();
CREATE TRIGGER look BEFORE UPDATE ON channels FOR EACH ROW EXECUTE FUNCTION before.look_channels();
CREATE TRIGGER look BEFORE UPDATE ON proposals
    FOR EACH ROW EXECUTE FUNCTION before.look_proposals();
CREATE TRIGGER look BEFORE UPDATE ON measurements
    FOR EACH ROW EXECUTE FUNCTION before.look_measurements();
CREATE TRIGGER look BEFORE UPDATE ON agents FOR EACH ROW EXECUTE FUNCTION before.look_agents();

-- What is wrong in the committed state.
CREATE VIEW before.broken AS
SELECT what FROM before.violations
UNION ALL
SELECT format('leases %s and %s share configs %s', a.id, b.id, a.remaining * b.remaining)
FROM leases a
JOIN leases b ON a.id < b.id
             AND (a.job_id, a.stage, a.round, a.process) = (b.job_id, b.stage, b.round, b.process)
WHERE a.state IN ('open', 'held') AND b.state IN ('open', 'held') AND a.remaining && b.remaining
UNION ALL
SELECT format('config %s of lease %s was measured and is leased', m.config, l.id)
FROM leases l
JOIN measurements m ON (m.job_id, m.stage, m.round, m.process)
                       = (l.job_id, l.stage, l.round, l.process)
                   AND NOT m.late AND l.remaining @> m.config
WHERE l.state IN ('open', 'held')
UNION ALL
SELECT format('configs %s of job %s, %s, are neither leased nor measured', l.missing - m.configs,
              l.job_id, l.stage)
FROM (SELECT job_id, stage, round, process, range_agg(configs) - range_agg(remaining) AS missing
      FROM (SELECT job_id, stage, round, process, unnest(configs) AS configs,
                   int8range(0, 0) AS remaining
            FROM leases
            UNION ALL
            SELECT job_id, stage, round, process, int8range(0, 0), unnest(remaining)
            FROM leases) r
      GROUP BY job_id, stage, round, process) l
CROSS JOIN LATERAL (
    SELECT COALESCE(range_agg(int8range(config, config + 1)), '{}') AS configs
    FROM measurements m
    WHERE (m.job_id, m.stage, m.round, m.process) = (l.job_id, l.stage, l.round, l.process)
      AND NOT m.late) m
WHERE NOT isempty(l.missing - m.configs)
UNION ALL
SELECT format('job %s counts %s events of %s, the last %s', j.id, j.events, count(*), max(e.event))
FROM jobs j
JOIN job_events e ON e.job_id = j.id
GROUP BY j.id
HAVING j.events <> count(*) OR j.events <> max(e.event)
UNION ALL
SELECT format('job %s is %s, and has a winner: %s', j.id, j.state, w.job_id IS NOT NULL)
FROM jobs j
LEFT JOIN winners w ON w.job_id = j.id
WHERE (j.state = 'done' AND j.reason IS NULL) <> (w.job_id IS NOT NULL)
UNION ALL
SELECT format('channel %s has counter %s and %s entries, the last of %s', c.name, c.counter,
              count(*), max(e.counter))
FROM channels c
JOIN channel_entries e USING (name, tag, regime, environment_digest)
GROUP BY c.id, c.name, c.counter, c.release
HAVING c.counter <> count(*) OR c.counter <> max(e.counter)
    OR c.release <> (array_agg(e.release ORDER BY e.counter DESC))[1]
UNION ALL
SELECT format('job_usage counts %s of %s jobs of tag %s that ended, %s of %s us', u.ended, j.ended,
              j.tag, u.us, j.us)
FROM (SELECT tag, job_usage_run(run) AS run,
             count(*) FILTER (WHERE finished_at IS NOT NULL) AS ended,
             COALESCE(sum((SELECT sum(device_us + opening_us) FROM leases WHERE job_id = jobs.id))
                      FILTER (WHERE state = 'done'), 0) AS us
      FROM jobs
      GROUP BY 1, 2) j
LEFT JOIN (SELECT tag, run, sum(done + failed + cancelled) AS ended, sum(done_us) AS us
           FROM job_usage
           GROUP BY tag, run) u USING (tag, run)
WHERE (j.ended, j.us) <> (COALESCE(u.ended, 0), COALESCE(u.us, 0))
UNION ALL
SELECT 'no admin token is left'
WHERE NOT EXISTS (SELECT FROM tokens t WHERE role = 'admin' AND token_is_live(t))
UNION ALL
SELECT format('lease %s lost config %s twice at one epoch', lease_id, config)
FROM losses
GROUP BY lease_id, epoch, config
HAVING count(*) > 1
UNION ALL
SELECT format('entry %s of the ledger of poison was released, and is in force again without a loss',
              r.id)
FROM poison r
JOIN poison p ON p.subject = r.subject AND p.released_at IS NULL
WHERE r.released_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM losses o
                  WHERE o.subjects @> ARRAY[p.subject] AND o.id > r.last_loss);

-- Only until the housekeeper has been there.
CREATE VIEW before.unswept AS
SELECT l.id
FROM leases l
JOIN jobs j ON j.id = l.job_id
WHERE l.state IN ('open', 'held') AND j.state IN ('done', 'failed', 'cancelled');
