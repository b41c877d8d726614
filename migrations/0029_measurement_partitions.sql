-- Measurements in partitions by ranges of jobs, so that old ones are removed by dropping a table.
--
-- Unique keys: those with job_id hold in the whole table. (lease_id, epoch, seq) is unique in each
-- partition, and so in the whole table, because a lease belongs to one job and its measurements are
-- stored with the id of that job.

-- Reads the old table while measurements are stored; the locks after it are held for milliseconds.
ALTER TABLE measurements VALIDATE CONSTRAINT measurements_range;
LOCK TABLE measurements IN ACCESS EXCLUSIVE MODE;

-- With this key, removing a partition would look up each of its rows. The transaction that stores
-- an object stores its measurement, and the function that removes measurements removes their
-- objects.
ALTER TABLE measurement_objects DROP CONSTRAINT measurement_objects_job_id_measurement_fkey;

ALTER TABLE measurements RENAME TO measurements_0;
ALTER TABLE measurements_0 RENAME CONSTRAINT measurements_pkey TO measurements_0_pkey;
ALTER TABLE measurements_0
    RENAME CONSTRAINT measurements_lease_id_epoch_seq_key TO measurements_0_lease_id_epoch_seq_key;
ALTER INDEX measurements_once RENAME TO measurements_0_once;
CREATE TABLE measurements (
    LIKE measurements_0 INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    PRIMARY KEY (job_id, id)
) PARTITION BY RANGE (job_id);
ALTER TABLE measurements DROP CONSTRAINT measurements_range;
-- No config counts twice in a process of a stage.
CREATE UNIQUE INDEX measurements_once ON measurements (job_id, stage, round, process, config)
    WHERE NOT late;

-- The ids continue. Because of the valid constraint, the table is not read again to attach it.
DO $$
DECLARE
    next_id bigint := nextval(pg_get_serial_sequence('measurements_0', 'id'));
BEGIN
    ALTER TABLE measurements_0 ALTER id DROP IDENTITY;
    EXECUTE format('ALTER TABLE measurements
                    ALTER id ADD GENERATED ALWAYS AS IDENTITY (START WITH %s)', next_id);
    EXECUTE format('ALTER TABLE measurements
                    ATTACH PARTITION measurements_0 FOR VALUES FROM (0) TO (%s)',
                   (SELECT end_job FROM measurement_partitions));
END $$;
ALTER TABLE measurements_0 DROP CONSTRAINT measurements_range;

-- A table for the measurements of a range of jobs, not yet a partition. Because of its constraint,
-- it is not read to attach it.
CREATE FUNCTION measurement_table_make(name text, first_job bigint, end_job bigint)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'CREATE TABLE %I (
             LIKE measurements INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
             CONSTRAINT measurements_range CHECK (job_id >= %s AND job_id < %s),
             PRIMARY KEY (job_id, id),
             UNIQUE (lease_id, epoch, seq)
         ) WITH (autovacuum_vacuum_insert_scale_factor = 0.05,
                 autovacuum_analyze_scale_factor = 0.02)', name, first_job, end_job);
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (job_id, stage, round, process, config)
                    WHERE NOT late', name || '_once', name);
END $$;

CREATE FUNCTION measurement_table_attach(name text, first_job bigint, end_job bigint)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE measurements ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                   name, first_job, end_job);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT measurements_range', name);
END $$;

-- How many jobs a new partition is for: those with about 4 million measurements, or those of 30
-- days if these are fewer; as estimated from the newest jobs.
CREATE FUNCTION measurement_partition_width() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT GREATEST(100, LEAST(1000000, 4e6 / size.configs, 30 * pace.jobs / pace.days))::bigint
    FROM (SELECT avg(LEAST(configs, search_trials)) AS configs
          FROM (SELECT * FROM jobs ORDER BY id DESC LIMIT 1000) newest) size,
         (SELECT count(*) AS jobs,
                 GREATEST(1, extract(epoch FROM now() - min(created_at)) / 86400) AS days
          FROM (SELECT created_at FROM jobs ORDER BY id DESC LIMIT 30000) newest) pace
$$;

-- Makes the next partition if `newest`, a job, is in the second half of the last one or behind it.
-- The lock conflicts with other attachments and with VACUUM, but not with reads, posts and
-- submissions; and it is waited for only if the job has no partition yet.
CREATE FUNCTION measurement_partition_follow(newest bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last measurement_partitions;
    next_end bigint;
    name text;
BEGIN
    SELECT * INTO STRICT last FROM measurement_partitions ORDER BY first_job DESC LIMIT 1;
    IF newest < (last.first_job + last.end_job) / 2 THEN
        RETURN;
    END IF;

    IF newest < last.end_job THEN
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
CREATE OR REPLACE FUNCTION measurement_partition_needed()
    RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM measurement_partition_follow(max(id)) FROM inserted HAVING count(*) > 0;
    RETURN NULL;
END $$;
SELECT measurement_partition_follow(max(id)) FROM jobs HAVING count(*) > 0;

-- The partitions that may be emptied: all of their jobs ended more than keep_days ago. A job was
-- added behind them long enough ago that no transaction can still add one to them.
CREATE FUNCTION measurements_due(keep_days integer)
    RETURNS TABLE (first_job bigint, end_job bigint, partition text, jobs bigint, bytes bigint)
    LANGUAGE sql STABLE AS $$
    SELECT p.first_job, p.end_job, p.partition,
        (SELECT count(*) FROM jobs j WHERE j.id >= p.first_job AND j.id < p.end_job),
        pg_total_relation_size(p.partition::regclass)
    FROM measurement_partitions p
    WHERE p.emptied_at IS NULL
      AND EXISTS (SELECT
                  FROM jobs j
                  WHERE j.id >= p.end_job AND j.created_at < now() - interval '1 hour')
      AND NOT EXISTS (
          SELECT
          FROM jobs j
          WHERE j.id >= p.first_job AND j.id < p.end_job
            AND (j.finished_at IS NULL
                 OR j.finished_at >= now() - make_interval(days => keep_days)))
    ORDER BY p.first_job
$$;

-- The jobs of a range whose finals are kept: their winner is in a stored release, or the next
-- release may take it, because no decided winner of the same kernel, key, environment, tag and
-- regime is newer.
CREATE FUNCTION measurements_needed(from_job bigint, before_job bigint)
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
          SELECT
          FROM jobs newer
          JOIN winners n ON n.job_id = newer.id
          WHERE (newer.environment_id, newer.tag, newer.regime, newer.kernel, newer.key_digest)
                = (j.environment_id, j.tag, j.regime, j.kernel, j.key_digest)
            AND newer.state = 'done' AND newer.id > j.id
            AND n.verdict ->> 'verdict' <> 'AMBIGUOUS'
            AND n.flagged IS NULL AND n.quarantined IS NULL)
$$;

-- Replaces a partition that is due, and those beside it that were emptied before, by one with the
-- finals that are kept. No row: it is not due, or another transaction was faster. While rows are
-- copied, only posts to leases of these old jobs wait. The exchange locks the whole table, for
-- milliseconds, and gives up if statements that use the table do not end within two seconds.
CREATE FUNCTION measurements_remove(of_first_job bigint, keep_days integer)
    RETURNS TABLE (jobs bigint, bytes bigint, kept bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '2s' AS $$
DECLARE
    due record;
    old text[];
    old_name text;
    from_job bigint;
    before_job bigint;
    name text;
    needed bigint[];
    unended bigint[];
    n bigint;
BEGIN
    PERFORM FROM measurement_partitions p WHERE p.first_job = of_first_job FOR UPDATE;
    SELECT * INTO due FROM measurements_due(keep_days) d WHERE d.first_job = of_first_job;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT array_agg(DISTINCT p.partition) INTO old
    FROM measurement_partitions p
    WHERE p.first_job = of_first_job
       OR (p.emptied_at IS NOT NULL AND (p.end_job = due.first_job OR p.first_job = due.end_job));
    SELECT min(p.first_job), max(p.end_job) INTO from_job, before_job
    FROM measurement_partitions p
    WHERE p.partition = ANY (old);
    FOREACH old_name IN ARRAY old LOOP
        EXECUTE format('LOCK TABLE %I IN SHARE MODE', old_name);
    END LOOP;

    -- A job that was added to an emptied range later may not have ended: it keeps everything.
    unended := ARRAY(
        SELECT id
        FROM jobs j
        WHERE j.id >= from_job AND j.id < before_job
          AND (j.finished_at IS NULL
               OR j.finished_at >= now() - make_interval(days => keep_days)));
    needed := ARRAY(
        SELECT measurements_needed(from_job, before_job)
        EXCEPT
        SELECT unnest(unended));
    name := 'measurements_kept_' || from_job || '_' || before_job;
    PERFORM measurement_table_make(name, from_job, before_job);
    EXECUTE format(
        'INSERT INTO %I
         SELECT m.*
         FROM unnest($3) AS job (id)
         CROSS JOIN LATERAL (
             SELECT *
             FROM measurements
             WHERE job_id >= $1 AND job_id < $2
               AND job_id = job.id AND stage = ''final'' AND NOT late) m
         UNION ALL
         SELECT m.*
         FROM unnest($4) AS job (id)
         CROSS JOIN LATERAL (
             SELECT *
             FROM measurements
             WHERE job_id >= $1 AND job_id < $2 AND job_id = job.id) m', name)
    USING from_job, before_job, needed, unended;
    GET DIAGNOSTICS n = ROW_COUNT;
    EXECUTE format('ANALYZE %I', name);
    EXECUTE format(
        'DELETE FROM measurement_objects o
         WHERE o.job_id >= $1 AND o.job_id < $2
           AND NOT EXISTS (SELECT FROM %I k WHERE k.job_id = o.job_id AND k.id = o.measurement)',
        name)
    USING from_job, before_job;

    FOREACH old_name IN ARRAY old LOOP
        EXECUTE format('ALTER TABLE measurements DETACH PARTITION %I', old_name);
        EXECUTE format('DROP TABLE %I', old_name);
    END LOOP;
    PERFORM measurement_table_attach(name, from_job, before_job);
    UPDATE measurement_partitions p
    SET partition = name, emptied_at = COALESCE(p.emptied_at, now())
    WHERE p.partition = ANY (old);
    RETURN QUERY SELECT due.jobs, due.bytes, n;
END $$;

-- When one of the servers with --keep-days collects next.
CREATE TABLE collection_due (
    at timestamptz NOT NULL,
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only)
);
INSERT INTO collection_due (at) VALUES (now());

-- Functions that act as the owner of the tables find only the names of this schema.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION measurement_partition_needed() SET search_path = %I, pg_temp',
                   current_schema());
    EXECUTE format('ALTER FUNCTION measurements_remove(bigint, integer)
                    SET search_path = %I, pg_temp', current_schema());
END $$;
REVOKE EXECUTE ON FUNCTION measurements_remove(bigint, integer) FROM PUBLIC;
