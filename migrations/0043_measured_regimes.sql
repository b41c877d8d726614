-- The regime of a measurement is its job's. An agent that stated none was taken for cold, also in
-- warm jobs, and any text was accepted.
UPDATE measurements m
SET regime = j.regime
FROM jobs j
WHERE j.id = m.job_id AND m.regime <> j.regime;
