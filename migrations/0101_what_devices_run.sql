-- What each device runs, as its agent states it: "measure:" and a regime. An agent that states nothing is from before there were
-- more than these two. The names of regimes are a table of the programs (common/regime/regime.h), which check every one.

ALTER TABLE devices ADD COLUMN runs text[] NOT NULL DEFAULT '{measure:cold,measure:warm}';

-- Whether a device that runs these may measure in the regime.
CREATE FUNCTION may_measure(runs text[], regime text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'measure:' || regime = ANY (runs);

ALTER TABLE jobs DROP CONSTRAINT jobs_regime_check;
ALTER TABLE releases DROP CONSTRAINT releases_regime_check;
ALTER TABLE demand DROP CONSTRAINT demand_regime_check;
