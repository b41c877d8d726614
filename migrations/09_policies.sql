-- Policies, which make jobs of captures and demand, and proposals: releases that were made for a
-- channel and wait to be promoted.

-- Policies, each of the token that set it. One acts until its token ends.
CREATE TABLE policies (
    mode text NOT NULL DEFAULT 'off' CHECK (mode IN ('off', 'suggest', 'automatic')),
    device_seconds_per_day double precision CHECK (device_seconds_per_day > 0), -- null: no limit
    configs_max bigint CHECK (configs_max > 0), -- of a job; null: no limit
    -- Names; only captures and demand of these count. '*': of any token.
    tokens text[] NOT NULL DEFAULT '{}',
    images text[] NOT NULL DEFAULT '{}', -- patterns; none: every image
    channel text, -- where proposals go; null: none are made
    require text NOT NULL DEFAULT 'agrees'
        CHECK (require IN ('none', 'agrees', 'bitwise', 'interpreted')),
    promote boolean NOT NULL DEFAULT false, set_at timestamptz NOT NULL,
    set_by text NOT NULL, -- by its name, so that a token that replaces another one has its policy
    set_by_id bigint,
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    jobs_per_hour bigint CHECK (jobs_per_hour > 0), -- null: no limit
    -- Null: for demand the budget of the kernel's newest job; for captures none.
    device_seconds_per_job double precision CHECK (device_seconds_per_job > 0),
    run text NOT NULL DEFAULT 'policy', -- of its jobs, which its token submits
    UNIQUE (set_by),
    UNIQUE (channel) -- two policies would replace each other's proposals
);

-- Proposals. The release of an open one is not collected; that of another one may be gone.
CREATE TABLE proposals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel text NOT NULL, release bytea NOT NULL, environment_digest bytea NOT NULL,
    environment json NOT NULL, tag text NOT NULL, regime text NOT NULL, winners bigint NOT NULL,
    images text[] NOT NULL, -- whose keys are all done
    etag text, -- of the channel's entry that it was compared with; null: there was none
    changes json NOT NULL, -- against the release of that entry, and what was kept or skipped
    state text NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'promoted', 'rejected', 'replaced')),
    reason text, -- of a rejection or replacement
    made_at timestamptz NOT NULL DEFAULT now(), decided_at timestamptz,
    decided_by text, decided_by_id bigint,
    CHECK ((state = 'open') = (decided_at IS NULL))
);
CREATE UNIQUE INDEX proposals_open ON proposals (channel, environment_digest, tag, regime)
    WHERE state = 'open';
CREATE INDEX proposals_release ON proposals (release);
