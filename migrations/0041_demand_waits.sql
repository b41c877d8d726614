-- Keys for which no job was queued because no agent was live: they stay listed, with the reason, until one enrols.

ALTER TABLE demand ADD COLUMN waits boolean NOT NULL DEFAULT false;
