-- Kernels and builds are signed, and agents may take only what certain keys signed. The server keeps signatures and chooses by
-- them what it offers; agents verify them.

CREATE TABLE code_signatures (
    digest bytea NOT NULL CHECK (octet_length(digest) = 32), -- a kernel's hash or a build's digest
    key bytea NOT NULL CHECK (octet_length(key) = 32), -- the id of the key
    signature text NOT NULL,
    expires_at timestamptz, -- null: never
    signed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (digest, key)
);

-- What the agent said when it enrolled last; null: it takes what is not signed, too.
ALTER TABLE agents ADD COLUMN trusted_keys bytea[] CHECK (trusted_keys <> '{}');

-- False: the space could rename what the kernel's sources use, and agents with trusted keys take none of it. Of jobs of before it
-- is not known; agents look themselves.
ALTER TABLE jobs ADD COLUMN is_plain boolean NOT NULL DEFAULT true;
