-- The order in which open leases are granted, with every column ascending, so that a search may begin at a place in it
-- (server/lease/lease_front.h): a comparison of rows needs one direction.
DROP INDEX leases_open;
CREATE INDEX leases_open ON leases (device_class, (-priority), job_id, id) WHERE state = 'open';
