-- Releases and the channels that point at them. Releases and channel entries are only ever added; a channel row is the
-- newest of its entries, kept apart so that reading it is one index probe.

CREATE TABLE releases (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- order of creation, for paging
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL,
    tag text NOT NULL CHECK (tag <> ''),
    winners integer NOT NULL CHECK (winners > 0),
    bytes bytea NOT NULL, -- the canonical JSON, whose SHA-256 the digest is
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK (sha256(bytes) = digest),
    UNIQUE (digest, environment_digest, tag)
);

-- One row for each (name, environment, tag). The counter only grows: rolling back is a higher counter with an older
-- release. Rows are never deleted, so the sum of all counters is the number of moves ever committed.
CREATE TABLE channels (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    name text NOT NULL CHECK (name ~ '^[a-z0-9._-]{1,64}$'),
    environment_digest bytea NOT NULL,
    tag text NOT NULL,
    release bytea NOT NULL,
    counter bigint NOT NULL CHECK (counter > 0),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, tag, environment_digest),
    -- A channel cannot point at another environment's or tag's release.
    FOREIGN KEY (release, environment_digest, tag) REFERENCES releases (digest, environment_digest, tag)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 50);

CREATE TABLE channel_entries (
    name text NOT NULL,
    environment_digest bytea NOT NULL,
    tag text NOT NULL,
    counter bigint NOT NULL,
    release bytea NOT NULL,
    moved_by text NOT NULL, -- the token's name
    moved_at timestamptz NOT NULL,
    PRIMARY KEY (name, tag, environment_digest, counter),
    FOREIGN KEY (release, environment_digest, tag) REFERENCES releases (digest, environment_digest, tag)
);

CREATE FUNCTION channel_counter_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.counter <= OLD.counter THEN
        RAISE EXCEPTION 'a channel''s counter only grows' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER channel_counter_grows BEFORE UPDATE OR DELETE ON channels
    FOR EACH ROW EXECUTE FUNCTION channel_counter_grows();

CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER channel_entries_append_only BEFORE UPDATE OR DELETE ON channel_entries
    FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER releases_are_immutable BEFORE UPDATE ON releases
    FOR EACH ROW EXECUTE FUNCTION append_only();
