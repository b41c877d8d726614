-- Functions, triggers and views, by the subjects of the files before. Nothing here has rows: this
-- file is also applied to databases that are adopted (adopt/), and so replaces what they have.
--
-- The planner puts functions of one expression without a sub-select, and those that are one SELECT,
-- into the statement that calls them; the others are called.

-- Tokens

-- Whether a token is accepted.
CREATE OR REPLACE FUNCTION token_is_live(token tokens) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN token.revoked_at IS NULL AND (token.expires_at IS NULL OR token.expires_at > now());

-- As the API writes times: RFC 3339 in UTC, to the millisecond.
CREATE OR REPLACE FUNCTION rfc3339(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

-- As the summary of the fleet writes times: milliseconds since 1970.
CREATE OR REPLACE FUNCTION epoch_ms(at timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (extract(epoch FROM at) * 1000)::bigint;

-- As the API writes digests: of the 32 bytes of a SHA-256.
CREATE OR REPLACE FUNCTION digest_text(digest bytea) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 'sha256:' || encode(digest, 'hex');

CREATE OR REPLACE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$;
CREATE OR REPLACE TRIGGER audit_rows_do_not_change BEFORE UPDATE ON audit
    FOR EACH ROW EXECUTE FUNCTION append_only();

-- Kernels

CREATE OR REPLACE FUNCTION blobs_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO blob_usage AS u (token_id, part, bytes)
        SELECT put_by_id, pg_backend_pid() % 16,
               sum(size + 4096) * CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END
        FROM changed WHERE put_by_id IS NOT NULL GROUP BY put_by_id ORDER BY put_by_id
    ON CONFLICT (token_id, part) DO UPDATE SET bytes = u.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER blobs_added AFTER INSERT ON blobs
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION blobs_changed();
CREATE OR REPLACE TRIGGER blobs_removed AFTER DELETE ON blobs
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION blobs_changed();

-- Whether one of the keys signed a kernel or a build, and still stands for it.
CREATE OR REPLACE FUNCTION is_signed(signed bytea, keys bytea[]) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN EXISTS (SELECT FROM code_signatures c WHERE c.digest = signed AND c.key = ANY (keys)
        AND (c.expires_at IS NULL OR c.expires_at > now()));

-- The signatures of a kernel or build, as the API has them.
CREATE OR REPLACE FUNCTION signatures_of(signed bytea) RETURNS json
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT COALESCE(json_agg(json_strip_nulls(json_build_object(
            'key', 'sha256:' || encode(c.key, 'hex'), 'signature', c.signature,
            'expires', to_char(c.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
            ORDER BY c.signed_at, c.key), '[]')
        FROM code_signatures c WHERE c.digest = signed);

-- Agents

CREATE OR REPLACE FUNCTION agent_is_live(agent agents, live_ms bigint) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN agent.ended_at IS NULL AND agent.last_seen > now() - live_ms * interval '1 ms';

-- Jobs

-- How many configs a job measures when nothing stops it.
CREATE OR REPLACE FUNCTION job_configs(job jobs) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    RETURN LEAST(job.configs, COALESCE(job.search_trials, job.configs));

-- An amount that halves every ten minutes, as it is now. Very small ones are 0, against an
-- underflow.
CREATE OR REPLACE FUNCTION share_decayed(amount double precision, at timestamptz)
    RETURNS double precision LANGUAGE sql STABLE AS $$
SELECT CASE WHEN amount > 1e-6 AND at > now() - interval '10 hours' THEN amount * power(
    0.5::double precision, GREATEST(extract(epoch FROM now() - at)::double precision, 0) / 600)
    ELSE 0 END $$;

-- The worst facts of each config of a job that its agents compared with the baseline, and why one
-- disagrees.
CREATE OR REPLACE FUNCTION job_agreement(job bigint)
    RETURNS TABLE (config bigint, agreement text, interpreted text, example text)
    LANGUAGE sql STABLE AS $$
    SELECT m.config,
        (ARRAY['bitwise', 'agrees', 'disagrees'])[max(array_position(
            ARRAY['bitwise', 'agrees', 'disagrees'], m.conditions ->> 'agreement'))],
        (ARRAY['agrees', 'disagrees'])[max(array_position(
            ARRAY['agrees', 'disagrees'], m.conditions ->> 'interpreted'))],
        min(left(m.detail, 300)) FILTER (WHERE m.conditions ->> 'agreement' = 'disagrees')
    FROM measurements m
    WHERE m.job_id = job AND NOT m.late AND m.conditions IS NOT NULL
    GROUP BY m.config $$;

-- Leases

-- Whether a lease of a known job is open, so that the index leases_job serves it. With state =
-- 'open' the planner may choose leases_open, which it believes to be empty when the tables were
-- analysed while no lease was open, and read every open lease there is, once for each job.
CREATE OR REPLACE FUNCTION is_open(state lease_state) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN state IN ('open', 'held') AND state <> 'held';

-- What is noted of a held lease when it is lost. uncharged_us: how long it was held, less what its
-- owner was charged for when results were posted. config: the one that was being measured.
CREATE OR REPLACE VIEW held_leases AS
SELECT id, job_id, owner_id, epoch, agent, device, fruitless, expires_at, due_at,
       (extract(epoch FROM now() - granted_at) * 1e6)::bigint - epoch_device_us - epoch_opening_us
           AS uncharged_us,
       CASE WHEN current_config <@ remaining THEN current_config END AS config
FROM leases WHERE state = 'held';

-- The open and held leases of each job that has any: /metrics and the summary of the fleet count by
-- it. There is one branch for each state, because each state has indexes of its own.
CREATE OR REPLACE VIEW job_leases AS
SELECT job_id, sum(open)::bigint AS open, sum(held)::bigint AS held, min(held_since) AS held_since
FROM (SELECT job_id, count(*) AS open, 0 AS held, NULL::timestamptz AS held_since
      FROM leases WHERE state = 'open' GROUP BY job_id
      UNION ALL
      SELECT job_id, 0, count(*), min(granted_at)
      FROM leases WHERE state = 'held' GROUP BY job_id) l
GROUP BY job_id;

-- A reason of a hand-back, to compare it with others.
CREATE OR REPLACE FUNCTION without_numbers(text text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN regexp_replace(text, '[0-9.]+', '0', 'g');

-- What the leases of a job took of its budget. For a job without one pass NULL, and nothing is
-- read: a condition of the join would be looked at too late.
CREATE OR REPLACE FUNCTION job_spending(job bigint)
    RETURNS TABLE (spent_us bigint, opening_us bigint, openings bigint, measured bigint,
                   final_us bigint, final_processes bigint) LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT sum(l.device_us + l.opening_us)::bigint, sum(l.opening_us)::bigint,
           count(*) FILTER (WHERE l.opening_us > 0),
           sum((SELECT sum(o) FROM unnest(l.outcomes) o))::bigint,
           (sum(l.device_us + l.opening_us) FILTER (WHERE l.stage = 'final'))::bigint,
           count(DISTINCT l.process) FILTER (WHERE l.stage = 'final' AND l.state = 'done')
    FROM leases l WHERE l.job_id = job;
END;

-- What of a job was measured, and what that took.
CREATE OR REPLACE FUNCTION job_progress(job bigint)
    RETURNS TABLE (spent_device_seconds float8, opening_device_seconds float8, measured bigint,
                   outcomes json) LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT COALESCE(sum(l.device_us + l.opening_us), 0)::bigint / 1e6::float8,
           COALESCE(sum(l.opening_us), 0)::bigint / 1e6::float8,
           COALESCE(sum(l.outcomes[1] + l.outcomes[2] + l.outcomes[3] + l.outcomes[4]
                        + l.outcomes[5] + l.outcomes[6]) FILTER (WHERE l.stage = 'screen'), 0),
           json_strip_nulls(json_build_object(
               'correct', nullif(sum(l.outcomes[1]) FILTER (WHERE l.stage = 'screen'), 0),
               'compile', nullif(sum(l.outcomes[2]) FILTER (WHERE l.stage = 'screen'), 0),
               'runtime', nullif(sum(l.outcomes[3]) FILTER (WHERE l.stage = 'screen'), 0),
               'correctness', nullif(sum(l.outcomes[4]) FILTER (WHERE l.stage = 'screen'), 0),
               'timeout', nullif(sum(l.outcomes[5]) FILTER (WHERE l.stage = 'screen'), 0),
               'constraints', nullif(sum(l.outcomes[6]) FILTER (WHERE l.stage = 'screen'), 0)))
    FROM leases l WHERE l.job_id = job;
END;

-- How long a queue has waited, whose first open lease is of the job.
CREATE OR REPLACE FUNCTION queue_waited_ms(class bytea, owner int, of_priority int, job bigint)
    RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT (extract(epoch FROM now() - GREATEST(
    (SELECT created_at FROM jobs WHERE id = job),
    (SELECT waiting_since FROM lease_queues WHERE device_class = class AND owner_id = owner
                                              AND priority = of_priority))) * 1000)::bigint $$;

-- Measurements

-- A table for the measurements of a range of jobs, not yet a partition. Because of its constraint,
-- it is not read to attach it.
CREATE OR REPLACE FUNCTION measurement_table_make(name text, first_job bigint, end_job bigint)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'CREATE TABLE %I (LIKE measurements INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
                          CONSTRAINT measurements_range CHECK (job_id >= %s AND job_id < %s),
                          PRIMARY KEY (job_id, id), UNIQUE (lease_id, epoch, seq))
         WITH (autovacuum_vacuum_insert_scale_factor = 0.05,
               autovacuum_analyze_scale_factor = 0.02)', name, first_job, end_job);
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (job_id, stage, round, process, config)
                    WHERE NOT late', name || '_once', name);
END $$;

CREATE OR REPLACE FUNCTION measurement_table_attach(name text, first_job bigint, end_job bigint)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE measurements ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                   name, first_job, end_job);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT measurements_range', name);
END $$;

-- How many jobs a new partition is for: those with about 4 million measurements, or those of 30
-- days if these are fewer; as estimated from the newest jobs.
CREATE OR REPLACE FUNCTION measurement_partition_width() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT GREATEST(100, LEAST(1000000, 4e6 / size.configs, 30 * pace.jobs / pace.days))::bigint
    FROM (SELECT avg(LEAST(configs, search_trials)) AS configs
          FROM (SELECT * FROM jobs ORDER BY id DESC LIMIT 1000) newest) size,
         (SELECT count(*) AS jobs,
                 GREATEST(1, extract(epoch FROM now() - min(created_at)) / 86400) AS days
          FROM (SELECT created_at FROM jobs ORDER BY id DESC LIMIT 30000) newest) pace $$;

-- Makes the next partition if `newest`, a job, is in the second half of the last one or behind it.
-- The lock conflicts with other attachments and with VACUUM, but not with reads, posts and
-- submissions; and it is waited for only if the job has no partition yet.
CREATE OR REPLACE FUNCTION measurement_partition_follow(newest bigint) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    last measurement_partitions;
    next_end bigint; name text;
BEGIN
    SELECT * INTO STRICT last FROM measurement_partitions ORDER BY first_job DESC LIMIT 1;
    IF newest < (last.first_job + last.end_job) / 2 THEN
        RETURN;
    ELSIF newest < last.end_job THEN
        BEGIN
            LOCK TABLE measurements IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
        EXCEPTION WHEN lock_not_available THEN
            RETURN; -- the next submission tries again
        END;
    ELSE
        LOCK TABLE measurements IN SHARE UPDATE EXCLUSIVE MODE;
    END IF;

    -- Another transaction may have made it meanwhile.
    SELECT * INTO STRICT last FROM measurement_partitions ORDER BY first_job DESC LIMIT 1;
    IF newest < (last.first_job + last.end_job) / 2 THEN
        RETURN;
    END IF;
    next_end := GREATEST(newest, last.end_job) + measurement_partition_width();
    name := 'measurements_' || last.end_job;
    PERFORM measurement_table_make(name, last.end_job, next_end);
    PERFORM measurement_table_attach(name, last.end_job, next_end);
    INSERT INTO measurement_partitions (first_job, end_job, partition)
    VALUES (last.end_job, next_end, name);
END $$;

-- Partitions are made by the transactions that insert jobs: no job is committed without one, and no
-- other process has to run.
CREATE OR REPLACE FUNCTION measurement_partition_needed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM measurement_partition_follow(max(id)) FROM inserted HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER measurement_partition_needed AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION measurement_partition_needed();

-- The partitions that may be emptied: all of their jobs ended more than keep_days ago. A job was
-- added behind them long enough ago that no transaction can still add one to them.
CREATE OR REPLACE FUNCTION measurements_due(keep_days integer)
    RETURNS TABLE (first_job bigint, end_job bigint, partition text, jobs bigint, bytes bigint)
    LANGUAGE sql STABLE AS $$
    SELECT p.first_job, p.end_job, p.partition,
        (SELECT count(*) FROM jobs j WHERE j.id >= p.first_job AND j.id < p.end_job),
        pg_total_relation_size(p.partition::regclass)
    FROM measurement_partitions p
    WHERE p.emptied_at IS NULL
      AND EXISTS (SELECT FROM jobs j
                  WHERE j.id >= p.end_job AND j.created_at < now() - interval '1 hour')
      AND NOT EXISTS (SELECT FROM jobs j
                      WHERE j.id >= p.first_job AND j.id < p.end_job
                        AND (j.finished_at IS NULL
                             OR j.finished_at >= now() - make_interval(days => keep_days)))
    ORDER BY p.first_job $$;

-- The jobs of a range whose finals are kept: their winner is in a stored release, or the next
-- release may take it, because no decided winner of the same kernel, key, environment, tag and
-- regime is newer.
CREATE OR REPLACE FUNCTION measurements_needed(from_job bigint, before_job bigint)
    RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    SELECT (winner ->> 4)::bigint
    FROM releases r
    CROSS JOIN json_array_elements(convert_from(r.bytes, 'UTF8')::json -> 'kernels') AS kernel
    CROSS JOIN json_array_elements(kernel -> 'winners') AS winner
    WHERE (winner ->> 4)::bigint >= from_job AND (winner ->> 4)::bigint < before_job
    UNION
    SELECT j.id
    FROM jobs j
    JOIN winners w ON w.job_id = j.id
    WHERE j.id >= from_job AND j.id < before_job AND j.state = 'done'
      AND NOT EXISTS (
          SELECT FROM jobs newer
          JOIN winners n ON n.job_id = newer.id
          WHERE (newer.environment_id, newer.tag, newer.regime, newer.kernel, newer.key_digest)
                = (j.environment_id, j.tag, j.regime, j.kernel, j.key_digest)
            AND newer.state = 'done' AND newer.id > j.id
            AND n.verdict ->> 'verdict' <> 'AMBIGUOUS'
            AND n.flagged IS NULL AND n.quarantined IS NULL) $$;

-- Replaces a partition that is due, and those beside it that were emptied before, by one with the
-- finals that are kept. No row: it is not due, or another transaction was faster. While rows are
-- copied, only posts to leases of these old jobs wait. The exchange locks the whole table, for
-- milliseconds, and gives up if statements that use the table do not end within two seconds.
CREATE OR REPLACE FUNCTION measurements_remove(of_first_job bigint, keep_days integer)
    RETURNS TABLE (jobs bigint, bytes bigint, kept bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '2s' AS $$
DECLARE
    due record;
    old text[]; old_name text; name text;
    from_job bigint; before_job bigint; n bigint;
    needed bigint[]; unended bigint[];
BEGIN
    PERFORM FROM measurement_partitions p WHERE p.first_job = of_first_job FOR UPDATE;
    SELECT * INTO due FROM measurements_due(keep_days) d WHERE d.first_job = of_first_job;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT array_agg(DISTINCT p.partition) INTO old FROM measurement_partitions p
    WHERE p.first_job = of_first_job
       OR (p.emptied_at IS NOT NULL AND (p.end_job = due.first_job OR p.first_job = due.end_job));
    SELECT min(p.first_job), max(p.end_job) INTO from_job, before_job
    FROM measurement_partitions p WHERE p.partition = ANY (old);
    FOREACH old_name IN ARRAY old LOOP
        EXECUTE format('LOCK TABLE %I IN SHARE MODE', old_name);
    END LOOP;

    -- A job that was added to an emptied range later may not have ended: it keeps everything.
    unended := ARRAY(
        SELECT id FROM jobs j
        WHERE j.id >= from_job AND j.id < before_job
          AND (j.finished_at IS NULL OR j.finished_at >= now() - make_interval(days => keep_days)));
    needed := ARRAY(SELECT measurements_needed(from_job, before_job) EXCEPT SELECT unnest(unended));
    name := 'measurements_kept_' || from_job || '_' || before_job;
    PERFORM measurement_table_make(name, from_job, before_job);
    EXECUTE format(
        'INSERT INTO %I
         SELECT m.* FROM unnest($3) AS job (id) CROSS JOIN LATERAL (
             SELECT * FROM measurements WHERE job_id >= $1 AND job_id < $2
               AND job_id = job.id AND stage = ''final'' AND NOT late) m
         UNION ALL
         SELECT m.* FROM unnest($4) AS job (id) CROSS JOIN LATERAL (
             SELECT * FROM measurements
             WHERE job_id >= $1 AND job_id < $2 AND job_id = job.id) m', name)
    USING from_job, before_job, needed, unended;
    GET DIAGNOSTICS n = ROW_COUNT;
    EXECUTE format('ANALYZE %I', name);
    EXECUTE format(
        'DELETE FROM measurement_objects o
         WHERE o.job_id >= $1 AND o.job_id < $2 AND NOT EXISTS (
             SELECT FROM %I k WHERE k.job_id = o.job_id AND k.id = o.measurement)', name)
    USING from_job, before_job;

    FOREACH old_name IN ARRAY old LOOP
        EXECUTE format('ALTER TABLE measurements DETACH PARTITION %I', old_name);
        EXECUTE format('DROP TABLE %I', old_name);
    END LOOP;
    PERFORM measurement_table_attach(name, from_job, before_job);
    UPDATE measurement_partitions p SET partition = name, emptied_at = COALESCE(p.emptied_at, now())
    WHERE p.partition = ANY (old);
    RETURN QUERY SELECT due.jobs, due.bytes, n;
END $$;
REVOKE EXECUTE ON FUNCTION measurements_remove(bigint, integer) FROM PUBLIC;

-- Functions that act as the owner of the tables find only the names of this schema.
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION measurement_partition_needed() SET search_path = %1$I, pg_temp;
                    ALTER FUNCTION measurements_remove(bigint, integer)
                        SET search_path = %1$I, pg_temp', current_schema());
END $$;

-- Releases

CREATE OR REPLACE TRIGGER releases_are_immutable BEFORE UPDATE ON releases
    FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER channel_entries_append_only BEFORE UPDATE OR DELETE ON channel_entries
    FOR EACH ROW EXECUTE FUNCTION append_only();

CREATE OR REPLACE FUNCTION channel_counter_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.counter < OLD.counter OR NEW.signings < OLD.signings
       OR (NEW.counter = OLD.counter AND NEW.signings = OLD.signings) THEN
        RAISE EXCEPTION 'a channel''s counter only grows' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.counter = OLD.counter AND NEW.release <> OLD.release THEN
        RAISE EXCEPTION 'a channel moves by one more count' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER channel_counter_grows BEFORE UPDATE OR DELETE ON channels
    FOR EACH ROW EXECUTE FUNCTION channel_counter_grows();

-- An expiry as it was signed: to the second.
CREATE OR REPLACE FUNCTION signed_expiry(at timestamptz) RETURNS json
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_json(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'));

-- The expiry and the signatures of one entry of a channel: one row, also where there is no such
-- entry.
CREATE OR REPLACE FUNCTION entry_signed(of_name text, of_tag text, of_regime text,
                                        of_environment bytea, of_counter bigint)
    RETURNS TABLE (expires json, signatures json) LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT (SELECT signed_expiry(e.expires_at) FROM channel_entries e
            WHERE e.name = of_name AND e.tag = of_tag AND e.regime = of_regime
              AND e.environment_digest = of_environment AND e.counter = of_counter),
           (SELECT COALESCE(json_agg(json_build_object(
                       'key', digest_text(s.key), 'signature', s.signature) ORDER BY s.key), '[]')
            FROM channel_signatures s
            WHERE s.name = of_name AND s.tag = of_tag AND s.regime = of_regime
              AND s.environment_digest = of_environment AND s.counter = of_counter);
END;

-- Programs

CREATE OR REPLACE FUNCTION remote_files_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO remote_usage AS u (token_id, part, files, bytes)
            SELECT token_id, pg_backend_pid() % 16, count(*), sum(size)
            FROM added GROUP BY token_id ORDER BY token_id
        ON CONFLICT (token_id, part) DO UPDATE
            SET files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO remote_usage AS u (token_id, part, files, bytes)
            SELECT token_id, pg_backend_pid() % 16, -count(*), -sum(size)
            FROM removed GROUP BY token_id ORDER BY token_id
        ON CONFLICT (token_id, part) DO UPDATE
            SET files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER remote_files_added AFTER INSERT ON remote_files
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION remote_files_changed();
CREATE OR REPLACE TRIGGER remote_files_removed AFTER DELETE ON remote_files
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION remote_files_changed();
CREATE OR REPLACE TRIGGER remote_files_replaced AFTER UPDATE ON remote_files
    REFERENCING OLD TABLE AS removed NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION remote_files_changed();

-- Policies

-- Policies with the token in whose name each makes jobs, and whether it acts. An identity of a
-- provider may have several live rows of one name; the policy's is the row that set it, or the
-- newest.
CREATE OR REPLACE VIEW policy_states AS
SELECT p.*, t.id AS token, array_to_string(array_prepend(t.role, t.also), ',') AS roles,
       p.mode <> 'off' AND (
           p.set_by_id IS NULL AND t.id IS NULL
           OR array_prepend(t.role, t.also) && '{submitter,operator,admin}') AS acts
FROM policies p
LEFT JOIN LATERAL (SELECT o.* FROM tokens o
                   WHERE o.name = p.set_by AND token_is_live(o)
                   ORDER BY (o.id = p.set_by_id) IS TRUE DESC, o.id DESC LIMIT 1) t ON true;

-- Of the policies that name a token, the one that does most.
CREATE OR REPLACE FUNCTION policy_of_captures(reporter tokens) RETURNS SETOF policy_states
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT p.* FROM policy_states p
    WHERE p.acts AND p.tokens && ARRAY[(reporter).name, '*'] AND (reporter).revoked_at IS NULL
    ORDER BY p.mode <> 'automatic', p.channel IS NULL, p.id LIMIT 1;
END;

-- Whether an image is one of those that the patterns name, in which * is any text and ? one
-- character. No pattern: all are.
CREATE OR REPLACE FUNCTION image_fits(image text, patterns text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN cardinality(patterns) = 0 OR image LIKE ANY (
        SELECT replace(replace(regexp_replace(p, '([\\%_])', '\\\1', 'g'), '*', '%'), '?', '_')
        FROM unnest(patterns) p);

-- The members of an environment that a node has, whatever is installed in the program's image.
CREATE OR REPLACE FUNCTION environment_hardware(environment json) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN environment::jsonb - '{torch,triton}'::text[];

-- The newest job of a captured key on its hardware, with its state as captures have it. A job that
-- was cancelled counts only where there is no other.
CREATE OR REPLACE FUNCTION job_of_capture(captured_kernel bytea, captured_key bytea, hardware jsonb)
    RETURNS TABLE (job bigint, environment_id bigint, state text, reason text)
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT j.id, j.environment_id,
           CASE WHEN j.state = 'running' THEN 'tuning'
                WHEN j.state IN ('queued', 'failed', 'cancelled') THEN j.state::text
                WHEN w.job_id IS NULL THEN 'failed'
                WHEN w.quarantined IS NOT NULL OR w.verdict ->> 'verdict' = 'AMBIGUOUS'
                    THEN 'undecided'
                ELSE 'tuned' END,
           COALESCE(j.reason, w.quarantined)
    FROM jobs j
    JOIN environments e ON e.id = j.environment_id
    LEFT JOIN winners w ON w.job_id = j.id
    WHERE j.kernel = captured_kernel AND j.key_digest = captured_key AND j.tag = 'default'
      AND j.regime = 'cold' AND j.purpose = 'tune' AND e.identity::jsonb @> hardware
    ORDER BY j.state = 'cancelled', j.id DESC LIMIT 1;
END;

-- Each captured key with how far it is: the last that it reached.
CREATE OR REPLACE VIEW capture_states AS
SELECT l.id, l.function_id, l.token_id, l.image, environment_hardware(l.environment) AS hardware,
       l.kernel, l.refused, l.not_queued, j.job, j.environment_id, j.reason, r.channel, r.proposal,
       CASE WHEN l.build IS NULL AND l.refused IS NOT NULL THEN 'refused'
            WHEN l.build IS NULL AND l.leased_until > now() THEN 'building'
            WHEN l.build IS NULL THEN 'waiting'
            WHEN r.channel IS NOT NULL THEN 'served'
            WHEN r.proposal IS NOT NULL THEN 'proposed'
            WHEN j.job IS NULL THEN 'built'
            WHEN j.state <> 'tuned' THEN j.state
            WHEN r.is_released THEN 'released'
            ELSE 'tuned' END AS state
FROM captured_launches l
LEFT JOIN LATERAL job_of_capture(l.kernel, l.key_digest, environment_hardware(l.environment)) j
    ON l.build IS NOT NULL
LEFT JOIN LATERAL (
    SELECT min(c.name) AS channel, min(p.id) AS proposal, count(*) > 0 AS is_released
    FROM release_captures rc
    JOIN releases m ON m.digest = rc.release
                   AND m.environment::jsonb @> environment_hardware(l.environment)
    LEFT JOIN channels c ON c.release = rc.release
    LEFT JOIN proposals p ON p.release = rc.release AND p.state = 'open'
    WHERE rc.kernel = l.kernel AND rc.key_digest = l.key_digest) r ON l.build IS NOT NULL;

-- The mean device time of a config: in the newest done jobs of a kernel, and in those of all.
CREATE OR REPLACE FUNCTION kernel_config_us(of_kernel bytea) RETURNS double precision
    LANGUAGE sql STABLE PARALLEL SAFE RETURN (SELECT nullif(sum(l.us), 0)::float8 / sum(j.configs)
            FROM (SELECT id, configs FROM jobs
                  WHERE kernel = of_kernel AND state = 'done' AND purpose = 'tune'
                  ORDER BY id DESC LIMIT 16) j
            CROSS JOIN LATERAL (SELECT sum(device_us + opening_us) AS us
                                FROM leases WHERE job_id = j.id) l);
CREATE OR REPLACE FUNCTION recent_config_us() RETURNS double precision
    LANGUAGE sql STABLE PARALLEL SAFE RETURN (SELECT nullif(sum(l.us), 0)::float8 / sum(j.configs)
            FROM (SELECT job_id FROM winners ORDER BY at DESC LIMIT 64) w
            JOIN jobs j ON j.id = w.job_id
            CROSS JOIN LATERAL (SELECT sum(device_us + opening_us) AS us
                                FROM leases WHERE job_id = j.id) l);

-- The fleet

-- Under which run a job is counted. A job that was tried again has a run of its own,
-- RUN/retried-ID, because its successor has its identity: all of these count under RUN/retried.
CREATE OR REPLACE FUNCTION job_usage_run(run text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN regexp_replace(run, '/retried-[0-9]+$', '/retried');

-- Counts a job that has ended (times = 1), or counts it no longer (-1). What a lease measures after
-- that, because it was not cancelled yet, is not counted.
CREATE OR REPLACE FUNCTION job_usage_add(job jobs, times int) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO job_usage AS u
    SELECT (job.finished_at AT TIME ZONE 'UTC')::date, job.kernel, job.tag, job_usage_run(job.run),
           COALESCE(job.submitted_by, ''), pg_backend_pid() % 16,
           times * (job.state = 'done')::int, times * (job.state = 'failed')::int,
           times * (job.state = 'cancelled')::int, times * job_configs(job),
           times * t.measurements, times * t.us,
           CASE WHEN job.state = 'done' THEN times * job_configs(job) ELSE 0 END,
           CASE WHEN job.state = 'done' THEN times * t.us ELSE 0 END,
           job.created_at, job.finished_at
    FROM (SELECT COALESCE(sum(device_us + opening_us), 0)::bigint AS us,
                 COALESCE(sum(outcomes[1] + outcomes[2] + outcomes[3] + outcomes[4] + outcomes[5]
                              + outcomes[6]), 0)::bigint AS measurements
          FROM leases WHERE job_id = job.id) t
    ON CONFLICT (day, kernel, tag, run, owner, part) DO UPDATE
        SET done = u.done + excluded.done, failed = u.failed + excluded.failed,
            cancelled = u.cancelled + excluded.cancelled, configs = u.configs + excluded.configs,
            measurements = u.measurements + excluded.measurements,
            device_us = u.device_us + excluded.device_us, done_us = u.done_us + excluded.done_us,
            done_configs = u.done_configs + excluded.done_configs,
            first_at = LEAST(u.first_at, excluded.first_at),
            last_at = GREATEST(u.last_at, excluded.last_at);
END;

CREATE OR REPLACE FUNCTION job_usage_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.finished_at IS NOT NULL THEN -- it is made open again, or gets another run
        PERFORM job_usage_add(OLD, -1);
    END IF;
    IF NEW.finished_at IS NOT NULL THEN
        PERFORM job_usage_add(NEW, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER job_usage_note AFTER UPDATE ON jobs
    FOR EACH ROW WHEN (OLD.finished_at IS DISTINCT FROM NEW.finished_at OR OLD.run <> NEW.run)
    EXECUTE FUNCTION job_usage_note();

-- Counts all jobs again.
CREATE OR REPLACE FUNCTION job_usage_rebuild() RETURNS void LANGUAGE sql
BEGIN ATOMIC
    DELETE FROM job_usage;
    SELECT job_usage_add(j, 1) FROM jobs j WHERE j.finished_at IS NOT NULL;
END;

-- The jobs that have not ended, with the device time that they took so far and will still take: a
-- config is expected to take as long as those of done jobs of the kernel, else of all kernels, else
-- what was predicted when the job was submitted. Only of running jobs leases are read.
CREATE OR REPLACE VIEW open_jobs AS
WITH pace AS MATERIALIZED (
    SELECT kernel, sum(done_us)::float8 / nullif(sum(done_configs), 0)::float8 AS config_us
    FROM job_usage GROUP BY kernel
), mean AS MATERIALIZED (
    SELECT sum(done_us)::float8 / nullif(sum(done_configs), 0)::float8 AS config_us FROM job_usage
)
SELECT j.id, j.kernel, j.tag, j.run, COALESCE(j.submitted_by, '') AS owner, j.state, j.created_at,
       j.device_class, j.priority, job_configs(j) AS configs,
       COALESCE(spent.measurements, 0) AS measurements, COALESCE(spent.us, 0) AS spent_us,
       pace.config_us IS NOT NULL AS is_known,
       GREATEST(0, LEAST(job_configs(j) * COALESCE(pace.config_us, (SELECT config_us FROM mean),
                                                   j.config_us::float8),
                         1000.0::float8 * j.budget_device_ms) - COALESCE(spent.us, 0)) AS left_us
FROM jobs j
LEFT JOIN pace ON pace.kernel = j.kernel
CROSS JOIN LATERAL (
    SELECT sum(device_us + opening_us)::float8 AS us,
           sum(outcomes[1] + outcomes[2] + outcomes[3] + outcomes[4] + outcomes[5]
               + outcomes[6])::bigint AS measurements
    FROM leases WHERE job_id = j.id AND j.state = 'running') spent
WHERE j.state IN ('queued', 'running');
