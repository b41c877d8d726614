-- Builds are large: what choosing one needs stands beside each, so that submitting a job does not read them. Measurements
-- name the compiled code that was timed and keep the state of the device while it was.

ALTER TABLE builds ADD COLUMN head json; -- the build's JSON, of its variants only "when"
UPDATE builds SET head = json_build_object(
    'kernel', build -> 'kernel', 'toolchain', build -> 'toolchain', 'arch', build -> 'arch', 'warp_size', build -> 'warp_size',
    'variants', (SELECT json_agg(json_strip_nulls(json_build_object('when', variant -> 'when')) ORDER BY n)
                 FROM json_array_elements(build -> 'variants') WITH ORDINALITY AS v (variant, n)));
ALTER TABLE builds ALTER COLUMN head SET NOT NULL;

ALTER TABLE measurements
    ADD COLUMN object bytea REFERENCES blobs (digest) CHECK (octet_length(object) = 32),
    ADD COLUMN conditions json,
    ADD CHECK (object IS NULL OR outcome = 'correct');
CREATE INDEX measurements_object ON measurements (object) WHERE object IS NOT NULL;
