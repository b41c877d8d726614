-- An agent that says that it ends is not live from then on, and is not lost. Enrolling again clears
-- ended_at.
ALTER TABLE agents ADD COLUMN ended_at timestamptz;

CREATE FUNCTION agent_is_live(agent agents, live_ms bigint) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN agent.ended_at IS NULL AND agent.last_seen > now() - live_ms * interval '1 ms';
