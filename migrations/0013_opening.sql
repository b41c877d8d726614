-- What opening the kernel takes of a device is spent for the job, too: filling its inputs, its
-- reference, the baseline with its warm-up. An agent says of a lease what that took so far in the
-- present epoch; older agents say nothing.

ALTER TABLE leases
    ADD COLUMN opening_us bigint NOT NULL DEFAULT 0, -- in all epochs; device_us is without it
    ADD COLUMN epoch_opening_us bigint NOT NULL DEFAULT 0; -- of it: the most stated of the present one
