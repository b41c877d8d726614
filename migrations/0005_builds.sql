-- Builds are large: what choosing one needs stands beside each, so that submitting a job does not read them. Measurements
-- name the compiled code that was timed and keep the state of the device while it was.

ALTER TABLE builds ADD COLUMN head json; -- the build's JSON, of its variants only "when"
UPDATE builds SET head = json_build_object(
    'kernel', build -> 'kernel', 'toolchain', build -> 'toolchain', 'arch', build -> 'arch', 'warp_size', build -> 'warp_size',
    'variants', (SELECT json_agg(json_strip_nulls(json_build_object('when', variant -> 'when')) ORDER BY n)
                 FROM json_array_elements(build -> 'variants') WITH ORDINALITY AS v (variant, n)));
ALTER TABLE builds ALTER COLUMN head SET NOT NULL;

-- What these columns and tables refer to may have a hundred million rows: nothing here reads or rewrites them. So the code
-- that was timed stands in a table of its own, and is not a column with a check and an index to build.
ALTER TABLE measurements ADD COLUMN conditions json;

CREATE TABLE measurement_objects (
    job_id bigint NOT NULL,
    measurement bigint NOT NULL,
    object bytea NOT NULL REFERENCES blobs (digest),
    PRIMARY KEY (job_id, measurement),
    FOREIGN KEY (job_id, measurement) REFERENCES measurements (job_id, id) ON DELETE CASCADE
);
CREATE INDEX measurement_objects_object ON measurement_objects (object);
