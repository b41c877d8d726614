-- What deployments do with caches: which environments may serve each other, which releases they fetch, what they miss.

ALTER TYPE token_role ADD VALUE 'demand';

-- An operator's word that a cache of one stack works on another (core/cache_rules.h). Few, tried in the order of ids.
CREATE TABLE compatibilities (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    asked json NOT NULL,
    served json NOT NULL,
    reason text NOT NULL,
    made_by text NOT NULL, -- the token's name
    made_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX compatibilities_pair ON compatibilities ((asked::text), (served::text)); -- canonical texts

-- When a release was fetched last, to within minutes. Apart from releases, whose rows never change.
CREATE TABLE release_fetches (
    release bytea PRIMARY KEY REFERENCES releases (digest) ON DELETE CASCADE,
    fetched_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The history of a channel outlives the releases that it names: those that nothing needs are collected.
ALTER TABLE channel_entries DROP CONSTRAINT channel_entries_release_environment_digest_tag_fkey;
CREATE INDEX channels_release ON channels (release);

-- Keys that deployments asked for. Counts only: who asked is in the log of the one who asks.
CREATE TABLE demand (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kernel bytea NOT NULL REFERENCES kernels (hash),
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32),
    key json NOT NULL,
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL, -- as the deployment states it
    tag text NOT NULL CHECK (tag <> ''),
    hits bigint NOT NULL CHECK (hits >= 0),
    misses bigint NOT NULL CHECK (misses >= 0),
    tuning_ms double precision NOT NULL CHECK (tuning_ms >= 0), -- spent by deployments on tuning this key, in all
    kernel_ms double precision CHECK (kernel_ms > 0), -- of one call, as it was reported last
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    job_id bigint REFERENCES jobs (id), -- that was queued for it
    refused text, -- why no job could be queued
    decided_at timestamptz,
    UNIQUE (kernel, key_digest, environment_digest, tag)
) WITH (fillfactor = 70);
CREATE INDEX demand_open ON demand (last_at) WHERE job_id IS NULL AND misses > 0;
