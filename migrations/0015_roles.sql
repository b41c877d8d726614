-- Tokens with one role or several, of publishers with the channels that they may move; which token wrote each row that
-- people and programs write; and the record of all such writes.

ALTER TYPE token_role ADD VALUE 'cache-writer';
ALTER TYPE token_role ADD VALUE 'builder';
ALTER TYPE token_role ADD VALUE 'publisher';
ALTER TYPE token_role ADD VALUE 'operator';

ALTER TABLE tokens
    ADD COLUMN also token_role[] NOT NULL DEFAULT '{}', -- roles beside the first
    ADD COLUMN channels text[] CHECK (cardinality(channels) > 0), -- patterns of fnmatch(3), of the role publisher
    ADD COLUMN certificate text, -- the name of the client certificate that stands for it; then the digest is that name's
    ADD CHECK (role::text NOT IN ('agent', 'enrol', 'admin') OR also = '{}'),
    ADD CHECK (array_position(also::text[], 'agent') IS NULL AND array_position(also::text[], 'enrol') IS NULL
               AND array_position(also::text[], 'admin') IS NULL AND array_position(also::text[], role::text) IS NULL),
    ADD CHECK ((role::text = 'publisher' OR array_position(also::text[], 'publisher') IS NOT NULL)
               = (channels IS NOT NULL));

-- The token that wrote a row, by name and id: null where the row is older than these columns. "(server)" and "(command
-- line)", which no token can be called, have no id. No foreign keys: tokens are never removed, and a row that names one
-- need not look it up.
ALTER TABLE tokens
    ADD COLUMN made_by text, ADD COLUMN made_by_id bigint,
    ADD COLUMN revoked_by text, ADD COLUMN revoked_by_id bigint;
ALTER TABLE blobs ADD COLUMN put_by text, ADD COLUMN put_by_id bigint;
ALTER TABLE kernels ADD COLUMN made_by text, ADD COLUMN made_by_id bigint;
ALTER TABLE builds ADD COLUMN made_by text, ADD COLUMN made_by_id bigint;
ALTER TABLE jobs
    ADD COLUMN submitted_by text, ADD COLUMN submitted_by_id bigint,
    ADD COLUMN cancelled_by text, ADD COLUMN cancelled_by_id bigint;
ALTER TABLE agents ADD COLUMN drained_by text, ADD COLUMN drained_by_id bigint;
ALTER TABLE devices ADD COLUMN drained_by text, ADD COLUMN drained_by_id bigint;
ALTER TABLE releases ADD COLUMN made_by text, ADD COLUMN made_by_id bigint;
ALTER TABLE channel_entries ADD COLUMN moved_by_id bigint;
ALTER TABLE channel_signatures ADD COLUMN added_by_id bigint;
ALTER TABLE code_signatures ADD COLUMN added_by text, ADD COLUMN added_by_id bigint;
ALTER TABLE imports ADD COLUMN imported_by_id bigint;
ALTER TABLE images ADD COLUMN put_by_id bigint;
ALTER TABLE compatibilities ADD COLUMN made_by_id bigint;
ALTER TABLE demand ADD COLUMN last_by text, ADD COLUMN last_by_id bigint; -- that reported it last

-- What was written, in the transaction that wrote it. Rows are only ever added: a role that serves and is not the owner
-- has no right to do anything else (wavetune-server migrate --serve-role); how long they are kept is the owner's.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    token text NOT NULL,
    token_id bigint,
    role text NOT NULL, -- of the token, as it was then
    peer text, -- the address that the request came from: a proxy's where that is not trusted to say whose it is
    action text NOT NULL,
    object text NOT NULL,
    detail json NOT NULL
);
CREATE INDEX audit_token ON audit (token, id);
CREATE INDEX audit_object ON audit (object, id);
CREATE INDEX audit_at ON audit (at);
CREATE TRIGGER audit_rows_do_not_change BEFORE UPDATE ON audit
    FOR EACH ROW EXECUTE FUNCTION append_only();
