-- What makes a campaign fast: ranges sized by predicted seconds, tails that idle devices take over, what earlier winners
-- say, search where a space is too large, and finals on several devices. `measurements` may have a hundred million rows:
-- nothing here reads or rewrites it.

ALTER TABLE jobs
    ADD COLUMN baseline_from text NOT NULL DEFAULT 'default' CHECK (baseline_from IN ('incumbent', 'default', 'first')),
    ADD COLUMN default_config bigint CHECK (default_config >= 0), -- the space's default; null: it has none
    ADD COLUMN config_us bigint NOT NULL DEFAULT 30000 CHECK (config_us > 0), -- predicted device time of a config
    ADD COLUMN best_ratio double precision CHECK (best_ratio > 0), -- least of the accepted measurements so far
    ADD COLUMN likely bigint[] NOT NULL DEFAULT '{}', -- configs that win elsewhere, likeliest first
    ADD COLUMN search_strategy text CHECK (search_strategy IN ('random', 'descent', 'evolution')), -- null: every point
    ADD COLUMN search_trials integer CHECK (search_trials > 0),
    ADD COLUMN final_devices integer NOT NULL DEFAULT 1 CHECK (final_devices BETWEEN 1 AND 16),
    ADD CONSTRAINT jobs_search CHECK ((search_strategy IS NULL) = (search_trials IS NULL));
-- What is known of a kernel: its newest winners, and how long a config takes.
CREATE INDEX jobs_kernel_done ON jobs (kernel, id) WHERE state = 'done';

ALTER TABLE leases
    ADD COLUMN config_us bigint CHECK (config_us > 0), -- of a screen lease that is worth splitting; null: of all others
    ADD COLUMN is_split boolean NOT NULL DEFAULT false, -- its holder was granted more than `remaining` says
    ADD COLUMN apart_until timestamptz; -- until then only for a device without a final of the job; null: for any
CREATE INDEX leases_splittable ON leases (device_class) WHERE state = 'held' AND config_us IS NOT NULL;

ALTER TABLE measurements ADD COLUMN "end" text; -- why sampling ended
