-- What a measurement holds for has a regime beside its environment and tag: cold, when no call found its operands in a cache,
-- or warm. All there was before is cold. And jobs that measure a few configs of an earlier job again say so, because nobody
-- should take theirs for the kernel's space. `measurements` may have a hundred million rows: nothing here reads or rewrites
-- it.

ALTER TABLE jobs
    ADD COLUMN regime text NOT NULL DEFAULT 'cold' CHECK (regime IN ('cold', 'warm')),
    ADD COLUMN purpose text NOT NULL DEFAULT 'tune' CHECK (purpose IN ('tune', 'revalidate')),
    ALTER COLUMN runner SET DEFAULT 'build'; -- agents have no other
ALTER TABLE jobs DROP CONSTRAINT jobs_kernel_key_digest_space_digest_environment_id_tag_run_key;
ALTER TABLE jobs ADD CONSTRAINT jobs_identity
    UNIQUE (kernel, key_digest, space_digest, environment_id, tag, run, regime);
DROP INDEX jobs_done;
CREATE INDEX jobs_done ON jobs (environment_id, tag, regime, kernel, key_digest, id) WHERE state = 'done';
-- What `wavetune campaign revalidate` queued so far: its runs have that name, and what it tunes again has parameters.
UPDATE jobs SET purpose = 'revalidate' FROM spaces s
 WHERE jobs.run ~ '^revalidate-[0-9a-f]+$' AND s.digest = jobs.space_digest AND (s.space::json -> 'configs') IS NOT NULL;

ALTER TABLE channels DROP CONSTRAINT channels_release_environment_digest_tag_fkey;
ALTER TABLE releases ADD COLUMN regime text NOT NULL DEFAULT 'cold' CHECK (regime IN ('cold', 'warm'));
ALTER TABLE releases DROP CONSTRAINT releases_digest_environment_digest_tag_key;
ALTER TABLE releases ADD CONSTRAINT releases_place UNIQUE (digest, environment_digest, tag, regime);

ALTER TABLE channel_signatures DROP CONSTRAINT channel_signatures_name_tag_environment_digest_counter_fkey;
ALTER TABLE channels ADD COLUMN regime text NOT NULL DEFAULT 'cold';
ALTER TABLE channel_entries ADD COLUMN regime text NOT NULL DEFAULT 'cold';
ALTER TABLE channel_signatures ADD COLUMN regime text NOT NULL DEFAULT 'cold';
ALTER TABLE channels DROP CONSTRAINT channels_pkey;
ALTER TABLE channels ADD PRIMARY KEY (name, tag, regime, environment_digest);
ALTER TABLE channels ADD CONSTRAINT channels_release_is_of_the_place
    FOREIGN KEY (release, environment_digest, tag, regime) REFERENCES releases (digest, environment_digest, tag, regime);
ALTER TABLE channel_entries DROP CONSTRAINT channel_entries_pkey;
ALTER TABLE channel_entries ADD PRIMARY KEY (name, tag, regime, environment_digest, counter);
ALTER TABLE channel_signatures DROP CONSTRAINT channel_signatures_pkey;
ALTER TABLE channel_signatures ADD PRIMARY KEY (name, tag, regime, environment_digest, counter, key);
ALTER TABLE channel_signatures ADD CONSTRAINT channel_signatures_entry
    FOREIGN KEY (name, tag, regime, environment_digest, counter)
    REFERENCES channel_entries (name, tag, regime, environment_digest, counter);

ALTER TABLE demand ADD COLUMN regime text NOT NULL DEFAULT 'cold' CHECK (regime IN ('cold', 'warm'));
ALTER TABLE demand DROP CONSTRAINT demand_kernel_key_digest_environment_digest_tag_key;
ALTER TABLE demand ADD CONSTRAINT demand_place UNIQUE (kernel, key_digest, environment_digest, tag, regime);
