-- What publishers sign: a channel's entry, with its expiry. The server keeps signatures and holds no key that makes them.

ALTER TABLE channels
    ADD COLUMN signings bigint NOT NULL DEFAULT 0; -- how often a signature was added after a move, so that it is noticed

ALTER TABLE channel_entries
    ADD COLUMN expires_at timestamptz; -- null: never

-- By several keys, so that one can take over from another. A key that signs an entry again replaces its signature.
CREATE TABLE channel_signatures (
    name text NOT NULL,
    environment_digest bytea NOT NULL,
    tag text NOT NULL,
    counter bigint NOT NULL,
    key bytea NOT NULL CHECK (octet_length(key) = 32), -- SHA-256 of the raw public key
    signature text NOT NULL CHECK (octet_length(decode(signature, 'base64')) = 64),
    added_by text NOT NULL, -- the token's name
    added_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, tag, environment_digest, counter, key),
    FOREIGN KEY (name, tag, environment_digest, counter)
        REFERENCES channel_entries (name, tag, environment_digest, counter)
);

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
