-- Releases, the channels that point at them, and who fetches them.

-- Releases are only ever added.
CREATE TABLE releases (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- order of creation, for paging
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL, tag text NOT NULL CHECK (tag <> ''),
    winners integer NOT NULL CHECK (winners > 0),
    bytes bytea NOT NULL, -- the canonical JSON, whose SHA-256 the digest is
    created_at timestamptz NOT NULL DEFAULT now(),
    regime text NOT NULL DEFAULT 'cold' CHECK (regime IN ('cold', 'warm')),
    made_by text, made_by_id bigint,
    CHECK (sha256(bytes) = digest),
    CONSTRAINT releases_place UNIQUE (digest, environment_digest, tag, regime)
);

-- Which keys of captured kernels a release has.
CREATE TABLE release_captures (
    release bytea NOT NULL REFERENCES releases (digest) ON DELETE CASCADE,
    kernel bytea NOT NULL, key_digest bytea NOT NULL,
    PRIMARY KEY (kernel, key_digest, release)
);
CREATE INDEX release_captures_release ON release_captures (release);

-- Signatures of publishers over the choices of a release (format `choices`).
CREATE TABLE choices_signatures (
    release bytea NOT NULL REFERENCES releases (digest) ON DELETE CASCADE,
    key bytea NOT NULL CHECK (octet_length(key) = 32), -- the id of the key
    -- The digest; another version may render other choices.
    choices bytea NOT NULL CHECK (octet_length(choices) = 32), signature text NOT NULL,
    signed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (release, key)
);

-- When a release was fetched last, to within minutes, for collections. Apart from releases, whose
-- rows never change.
CREATE TABLE release_fetches (
    release bytea PRIMARY KEY REFERENCES releases (digest) ON DELETE CASCADE,
    fetched_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- To whom releases are served: which token fetched which release, by which requests, and how often
-- (server/cache/fetches.h).
CREATE TABLE release_fetchers (
    id bigint GENERATED ALWAYS AS IDENTITY, -- for paging
    release bytea NOT NULL REFERENCES releases (digest) ON DELETE CASCADE,
    fetched_by_id bigint NOT NULL, -- the token's id
    fetched_by text NOT NULL, -- its name; of a signed-in user perhaps the token's and the user's
    kind text NOT NULL CHECK (kind IN ('entry', 'choices', 'release', 'files')),
    channel text NOT NULL, -- '': the release was requested by its digest
    rule text NOT NULL, -- by which the channel's entry was found; '' without a channel
    requests bigint NOT NULL CHECK (requests > 0), first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL, -- in no index, so that updates are HOT
    PRIMARY KEY (release, fetched_by_id, fetched_by, kind, channel, rule),
    UNIQUE (id),
    UNIQUE (release, id)
) WITH (fillfactor = 70);

-- The newest entry of each channel, so that reading it is one index probe: one row for each (name,
-- environment, tag, regime). The counter only grows: rolling back is a higher counter with an older
-- release. Rows are never deleted, so the sum of all counters is the number of moves ever
-- committed.
CREATE TABLE channels (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    name text NOT NULL CHECK (name ~ '^[a-z0-9._-]{1,64}$'),
    environment_digest bytea NOT NULL, tag text NOT NULL, release bytea NOT NULL,
    counter bigint NOT NULL CHECK (counter > 0), updated_at timestamptz NOT NULL DEFAULT now(),
    signings bigint NOT NULL DEFAULT 0, -- signatures that were added after a move
    regime text NOT NULL DEFAULT 'cold',
    PRIMARY KEY (name, tag, regime, environment_digest),
    CONSTRAINT channels_release_is_of_the_place
        FOREIGN KEY (release, environment_digest, tag, regime)
        REFERENCES releases (digest, environment_digest, tag, regime)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 50);
CREATE INDEX channels_release ON channels (release);

-- All entries of channels, which are only ever added. They outlive the releases that they name:
-- those that nothing needs are collected.
CREATE TABLE channel_entries (
    name text NOT NULL, environment_digest bytea NOT NULL, tag text NOT NULL,
    counter bigint NOT NULL, release bytea NOT NULL, moved_by text NOT NULL,
    moved_at timestamptz NOT NULL,
    expires_at timestamptz, -- null: never
    regime text NOT NULL DEFAULT 'cold', moved_by_id bigint,
    PRIMARY KEY (name, tag, regime, environment_digest, counter)
);

-- Signatures of publishers over entries and their expiry, by several keys, so that one can take
-- over from another. The server holds no key that makes them. A key that signs an entry again
-- replaces its signature.
CREATE TABLE channel_signatures (
    name text NOT NULL, environment_digest bytea NOT NULL, tag text NOT NULL,
    counter bigint NOT NULL,
    key bytea NOT NULL CHECK (octet_length(key) = 32), -- SHA-256 of the raw public key
    signature text NOT NULL CHECK (octet_length(decode(signature, 'base64')) = 64),
    added_by text NOT NULL, added_at timestamptz NOT NULL DEFAULT now(),
    regime text NOT NULL DEFAULT 'cold', added_by_id bigint,
    PRIMARY KEY (name, tag, regime, environment_digest, counter, key),
    CONSTRAINT channel_signatures_entry
        FOREIGN KEY (name, tag, regime, environment_digest, counter)
        REFERENCES channel_entries (name, tag, regime, environment_digest, counter)
);

-- Pins and bans of configs that releases obey until they are removed
-- (server/release/override_rules.h).
CREATE TABLE overrides (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('pin', 'ban')),
    -- A hash ("sha256:…"), or a name that means all kernels which have it.
    kernel text NOT NULL CHECK (kernel <> ''),
    key json, -- null: any
    environment json NOT NULL, -- partial; {}: any
    tag text CHECK (tag <> ''), -- null: any
    config json NOT NULL, -- of a pin all values; of a ban those that together are banned
    reason text NOT NULL CHECK (reason <> ''),
    until timestamptz, -- null: until it is removed
    made_by text NOT NULL, made_by_id bigint, made_at timestamptz NOT NULL DEFAULT now()
);
-- Keys, environments and configs are canonical texts.
CREATE UNIQUE INDEX overrides_once ON overrides (
    kind, kernel, COALESCE(key::text, ''), (environment::text), COALESCE(tag, ''), (config::text));

-- Statements of operators that a cache of one environment works on another
-- (server/cache/cache_rules.h). They are few, and tried in the order of ids.
CREATE TABLE compatibilities (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    asked json NOT NULL, served json NOT NULL, -- canonical texts
    reason text NOT NULL, made_by text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(), made_by_id bigint
);
CREATE UNIQUE INDEX compatibilities_pair ON compatibilities ((asked::text), (served::text));
