-- An identity of a provider may have several live rows of one name (0034), and a policy has one token: the row that set it,
-- or the newest. One that may make no jobs makes none by a policy either.

CREATE OR REPLACE VIEW policy_states AS
SELECT p.*, t.id AS token, array_to_string(array_prepend(t.role, t.also), ',') AS roles,
       p.mode <> 'off' AND (p.set_by_id IS NULL AND t.id IS NULL
                            OR array_prepend(t.role, t.also) && '{submitter,operator,admin}') AS acts
FROM policies p
LEFT JOIN LATERAL (SELECT o.*
                   FROM tokens o
                   WHERE o.name = p.set_by AND token_is_live(o)
                   ORDER BY (o.id = p.set_by_id) IS TRUE DESC, o.id DESC
                   LIMIT 1) t ON true;
