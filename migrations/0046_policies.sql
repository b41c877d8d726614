-- A policy belongs to the token that sets it, and there may be several.

ALTER TABLE policy RENAME TO policies;
DELETE FROM policies WHERE set_at IS NULL; -- what a server had that nobody gave a policy
ALTER TABLE policies
    DROP COLUMN is_only,
    ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ALTER COLUMN set_at SET NOT NULL,
    ALTER COLUMN set_by SET NOT NULL, -- by its name, so that a token that replaces another one has its policy
    ADD UNIQUE (set_by),
    ADD UNIQUE (channel); -- two policies would replace each other's proposals

-- The policy that is there is kept, and acts as it did, also if its token has ended since.
UPDATE policies SET set_by_id = NULL WHERE NOT EXISTS (SELECT FROM tokens t WHERE t.name = set_by AND token_is_live(t));

-- A policy acts until its token ends; with the token, in whose name it makes jobs.
CREATE VIEW policy_states AS
SELECT p.*, t.id AS token, array_to_string(array_prepend(t.role, t.also), ',') AS roles,
       p.mode <> 'off' AND (t.id IS NOT NULL OR p.set_by_id IS NULL) AS acts
FROM policies p
LEFT JOIN tokens t ON t.name = p.set_by AND token_is_live(t);

-- Of the policies that name a token, the one that does most.
CREATE FUNCTION policy_of_captures(reporter tokens) RETURNS SETOF policy_states LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT p.*
    FROM policy_states p
    WHERE p.acts AND (reporter).name = ANY (p.tokens) AND (reporter).revoked_at IS NULL
    ORDER BY p.mode <> 'automatic', p.channel IS NULL, p.id
    LIMIT 1;
END;

-- Who reported a key, of tokens that a policy named then, each with the image that it named last.
CREATE TABLE demand_reporters (
    demand bigint NOT NULL REFERENCES demand (id) ON DELETE CASCADE,
    token text NOT NULL,
    image text NOT NULL,
    PRIMARY KEY (demand, token)
);
INSERT INTO demand_reporters (demand, token, image)
SELECT id, policy_token, COALESCE(policy_image, '') FROM demand WHERE policy_token IS NOT NULL;
ALTER TABLE demand DROP COLUMN policy_token, DROP COLUMN policy_image;
