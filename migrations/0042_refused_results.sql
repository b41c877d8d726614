-- Whether a measurement came when its lease was no longer its holder's, and was refused (409) but
-- kept as evidence: a repetition of that post is refused, too. `late` alone does not tell it from a
-- measurement that was accepted after its config had moved to another device.
ALTER TABLE measurements ADD COLUMN refused boolean NOT NULL DEFAULT false;
