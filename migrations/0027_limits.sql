-- What each token has, for the limits of tokens: how much it stored, its agents, its open jobs. Each connection counts files in
-- one of 16 rows of the token, because writes that change the same row wait for each other's commit. A file counts 4 KiB more than
-- its size, for its rows.
CREATE TABLE blob_usage (
    token_id bigint NOT NULL,
    part int NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (token_id, part)
) WITH (fillfactor = 50);

CREATE FUNCTION blobs_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO blob_usage AS u (token_id, part, bytes)
        SELECT put_by_id, pg_backend_pid() % 16, sum(size + 4096) * CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END
        FROM changed
        WHERE put_by_id IS NOT NULL
        GROUP BY put_by_id
        ORDER BY put_by_id
    ON CONFLICT (token_id, part) DO UPDATE
        SET bytes = u.bytes + excluded.bytes;
    RETURN NULL;
END
$$;
CREATE TRIGGER blobs_added AFTER INSERT ON blobs
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION blobs_changed();
CREATE TRIGGER blobs_removed AFTER DELETE ON blobs
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION blobs_changed();

-- After the triggers, whose making waits for all writes.
INSERT INTO blob_usage (token_id, part, bytes)
    SELECT put_by_id, 0, sum(size + 4096)
    FROM blobs
    WHERE put_by_id IS NOT NULL
    GROUP BY put_by_id;

CREATE INDEX agents_of_token ON agents (token_id);
CREATE INDEX jobs_open_of_token ON jobs (submitted_by_id) WHERE state IN ('queued', 'running');
