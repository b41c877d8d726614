-- How winners of kernels without a reference agree with the program's default config and with Triton's interpreter
-- (common/verdict/agreement.h). Both facts are in the conditions of measurements. `measurements` may have a hundred million rows:
-- nothing here reads or rewrites it.

ALTER TABLE winners
    ADD COLUMN agreement text -- its class; null: it was decided before classes were stored
        CHECK (agreement IN ('none', 'bitwise', 'interpreted', 'agrees', 'disagrees')),
    ADD COLUMN interpreted boolean NOT NULL DEFAULT false, -- the interpreter agrees, which may also be so of a bitwise one
    ADD COLUMN others json; -- the rest of the equivalence set, the best first: [{"config", "config_values", "agreement",
                            -- "interpreted"}]; null: the kernel has a reference

-- The configs that disagree, of a job that is done; null: none.
ALTER TABLE jobs ADD COLUMN disagreeing int8multirange;

-- The worst facts of each config of a job that its agents compared with the baseline, and why one disagrees.
CREATE FUNCTION job_agreement(job bigint)
    RETURNS TABLE (config bigint, agreement text, interpreted text, example text)
    LANGUAGE sql STABLE AS $$
    SELECT m.config,
        (ARRAY['bitwise', 'agrees', 'disagrees'])[
            max(array_position(ARRAY['bitwise', 'agrees', 'disagrees'], m.conditions ->> 'agreement'))],
        (ARRAY['agrees', 'disagrees'])[
            max(array_position(ARRAY['agrees', 'disagrees'], m.conditions ->> 'interpreted'))],
        min(left(m.detail, 300)) FILTER (WHERE m.conditions ->> 'agreement' = 'disagrees')
    FROM measurements m
    WHERE m.job_id = job AND NOT m.late AND m.conditions IS NOT NULL
    GROUP BY m.config
$$;
