-- To whom releases are served: which token fetched which release, by which requests, and how often
-- (server/cache/fetches.h). Beside release_fetches, which says for collections when a release was
-- last used.
CREATE TABLE release_fetchers (
    id bigint GENERATED ALWAYS AS IDENTITY, -- for paging
    release bytea NOT NULL REFERENCES releases (digest) ON DELETE CASCADE,
    fetched_by_id bigint NOT NULL, -- the token's id
    fetched_by text NOT NULL, -- its name; of a signed-in user perhaps the token's and the user's
    kind text NOT NULL CHECK (kind IN ('entry', 'choices', 'release', 'files')),
    channel text NOT NULL, -- '': the release was requested by its digest
    rule text NOT NULL, -- by which the channel's entry was found; '' without a channel
    requests bigint NOT NULL CHECK (requests > 0),
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL, -- in no index, so that updates are HOT
    PRIMARY KEY (release, fetched_by_id, fetched_by, kind, channel, rule),
    UNIQUE (id),
    UNIQUE (release, id)
) WITH (fillfactor = 70);
