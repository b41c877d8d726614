-- How much each token stores of what containers wrote, so that a write need not sum its files. Each connection counts in one of
-- 16 rows of the token, because writes that change the same row wait for each other's commit.
CREATE TABLE remote_usage (
    token_id bigint NOT NULL,
    part int NOT NULL,
    files bigint NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (token_id, part)
) WITH (fillfactor = 50);

CREATE FUNCTION remote_files_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO remote_usage AS u (token_id, part, files, bytes)
            SELECT token_id, pg_backend_pid() % 16, count(*), sum(size)
            FROM added
            GROUP BY token_id
            ORDER BY token_id
        ON CONFLICT (token_id, part) DO UPDATE
            SET files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO remote_usage AS u (token_id, part, files, bytes)
            SELECT token_id, pg_backend_pid() % 16, -count(*), -sum(size)
            FROM removed
            GROUP BY token_id
            ORDER BY token_id
        ON CONFLICT (token_id, part) DO UPDATE
            SET files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER remote_files_added AFTER INSERT ON remote_files
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION remote_files_changed();
CREATE TRIGGER remote_files_removed AFTER DELETE ON remote_files
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION remote_files_changed();
CREATE TRIGGER remote_files_replaced AFTER UPDATE ON remote_files
    REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION remote_files_changed();

-- After the triggers, whose making waits for all writes.
INSERT INTO remote_usage (token_id, part, files, bytes)
    SELECT token_id, 0, count(*), sum(size)
    FROM remote_files
    GROUP BY token_id;
DROP INDEX remote_files_size;
