-- The operator's policy, which makes jobs of captures and demand, and proposals: releases that were made for a channel and
-- wait to be promoted.

CREATE TABLE policy (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    mode text NOT NULL DEFAULT 'off' CHECK (mode IN ('off', 'suggest', 'automatic')),
    device_seconds_per_day double precision CHECK (device_seconds_per_day > 0), -- null: no limit
    configs_max bigint CHECK (configs_max > 0), -- of a job; null: no limit
    tokens text[] NOT NULL DEFAULT '{}', -- names; only captures and demand of these count
    images text[] NOT NULL DEFAULT '{}', -- patterns; none: every image
    channel text, -- where proposals go; null: none are made
    require text NOT NULL DEFAULT 'agrees' CHECK (require IN ('none', 'agrees', 'bitwise', 'interpreted')),
    promote boolean NOT NULL DEFAULT false,
    set_at timestamptz,
    set_by text, set_by_id bigint
);
INSERT INTO policy DEFAULT VALUES;

-- Whether an image is one of those that the patterns name, in which * is any text and ? one character. No pattern: all are.
CREATE FUNCTION image_fits(image text, patterns text[]) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN cardinality(patterns) = 0 OR image LIKE ANY (
        SELECT replace(replace(regexp_replace(p, '([\\%_])', '\\\1', 'g'), '*', '%'), '?', '_') FROM unnest(patterns) p);

-- The members of an environment that a node has, whatever is installed in the program's image.
CREATE FUNCTION environment_hardware(environment json) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN environment::jsonb - '{torch,triton}'::text[];

-- What a job of a launch needs. What was built before is built again, so that its space is known.
ALTER TABLE captured_launches
    ADD COLUMN environment json, -- as the program states it
    ADD COLUMN image text, -- '' where the program did not know it
    ADD COLUMN space_digest bytea REFERENCES spaces (digest), -- of its job: what the build compiled for the key
    ADD COLUMN configs bigint, -- of that space
    ADD COLUMN job_id bigint REFERENCES jobs (id), -- that was made or found for it
    ADD COLUMN not_queued text, -- why no job could be made
    ADD COLUMN decided_at timestamptz;
UPDATE captured_launches
SET environment = document::json -> 'environment', image = COALESCE(document::json ->> 'image', ''), build = NULL, kernel = NULL;
ALTER TABLE captured_launches
    ALTER COLUMN environment SET NOT NULL,
    ALTER COLUMN image SET NOT NULL,
    ADD CHECK (build IS NULL OR (kernel IS NOT NULL AND space_digest IS NOT NULL AND configs IS NOT NULL));
CREATE INDEX captured_launches_without_job ON captured_launches (id) WHERE build IS NOT NULL AND job_id IS NULL;

-- Demand of a token and image that the policy named when it was reported.
ALTER TABLE demand ADD COLUMN policy_token text, ADD COLUMN policy_image text;

-- What the policy's jobs use is summed for a day.
CREATE INDEX jobs_of_policy ON jobs (finished_at) WHERE run = 'policy';

-- Which keys of captured kernels a release has.
CREATE TABLE release_captures (
    release bytea NOT NULL REFERENCES releases (digest) ON DELETE CASCADE,
    kernel bytea NOT NULL,
    key_digest bytea NOT NULL,
    PRIMARY KEY (kernel, key_digest, release)
);
CREATE INDEX release_captures_release ON release_captures (release);

-- The release of an open proposal is not collected; that of another one may be gone.
CREATE TABLE proposals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel text NOT NULL,
    release bytea NOT NULL,
    environment_digest bytea NOT NULL,
    environment json NOT NULL,
    tag text NOT NULL,
    regime text NOT NULL,
    winners bigint NOT NULL,
    images text[] NOT NULL, -- whose keys are all done
    etag text, -- of the channel's entry that it was compared with; null: there was none
    changes json NOT NULL, -- against the release of that entry, and what was kept or skipped
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'promoted', 'rejected', 'replaced')),
    reason text, -- of a rejection or replacement
    made_at timestamptz NOT NULL DEFAULT now(),
    decided_at timestamptz,
    decided_by text, decided_by_id bigint,
    CHECK ((state = 'open') = (decided_at IS NULL))
);
CREATE UNIQUE INDEX proposals_open ON proposals (channel, environment_digest, tag, regime) WHERE state = 'open';
CREATE INDEX proposals_release ON proposals (release);

-- The mean device time of a config: in the newest done jobs of a kernel, and in those of all.
CREATE FUNCTION kernel_config_us(of_kernel bytea) RETURNS double precision LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT nullif(sum(l.us), 0)::float8 / sum(j.configs)
            FROM (SELECT id, configs FROM jobs
                  WHERE kernel = of_kernel AND state = 'done' AND purpose = 'tune' ORDER BY id DESC LIMIT 16) j
            CROSS JOIN LATERAL (SELECT sum(device_us + opening_us) AS us FROM leases WHERE job_id = j.id) l);
CREATE FUNCTION recent_config_us() RETURNS double precision LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT nullif(sum(l.us), 0)::float8 / sum(j.configs)
            FROM (SELECT job_id FROM winners ORDER BY at DESC LIMIT 64) w
            JOIN jobs j ON j.id = w.job_id
            CROSS JOIN LATERAL (SELECT sum(device_us + opening_us) AS us FROM leases WHERE job_id = j.id) l);
CREATE INDEX winners_newest ON winners (at);

-- The newest job of a captured key on its hardware, with its state as captures have it. A job that was cancelled counts only
-- where there is no other.
CREATE FUNCTION job_of_capture(captured_kernel bytea, captured_key bytea, hardware jsonb)
    RETURNS TABLE (job bigint, environment_id bigint, state text, reason text)
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT j.id, j.environment_id,
           CASE WHEN j.state = 'running' THEN 'tuning'
                WHEN j.state IN ('queued', 'failed', 'cancelled') THEN j.state::text
                WHEN w.job_id IS NULL THEN 'failed'
                WHEN w.quarantined IS NOT NULL OR w.verdict ->> 'verdict' = 'AMBIGUOUS' THEN 'undecided'
                ELSE 'tuned' END,
           COALESCE(j.reason, w.quarantined)
    FROM jobs j
    JOIN environments e ON e.id = j.environment_id
    LEFT JOIN winners w ON w.job_id = j.id
    WHERE j.kernel = captured_kernel AND j.key_digest = captured_key AND j.tag = 'default' AND j.regime = 'cold'
      AND j.purpose = 'tune' AND e.identity::jsonb @> hardware
    ORDER BY j.state = 'cancelled', j.id DESC
    LIMIT 1;
END;

-- Each captured key with how far it is: the last that it reached.
CREATE VIEW capture_states AS
SELECT l.id, l.function_id, l.token_id, l.image, environment_hardware(l.environment) AS hardware, l.kernel, l.refused,
       l.not_queued, j.job, j.environment_id, j.reason, r.channel, r.proposal,
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
LEFT JOIN LATERAL job_of_capture(l.kernel, l.key_digest, environment_hardware(l.environment)) j ON l.build IS NOT NULL
LEFT JOIN LATERAL (
    SELECT min(c.name) AS channel, min(p.id) AS proposal, count(*) > 0 AS is_released
    FROM release_captures rc
    JOIN releases m ON m.digest = rc.release AND m.environment::jsonb @> environment_hardware(l.environment)
    LEFT JOIN channels c ON c.release = rc.release
    LEFT JOIN proposals p ON p.release = rc.release AND p.state = 'open'
    WHERE rc.kernel = l.kernel AND rc.key_digest = l.key_digest) r ON l.build IS NOT NULL;
