-- Among leases of one priority those of the oldest job come first: its final, too, before the screens of later jobs.

DROP INDEX leases_open;
CREATE INDEX leases_open ON leases (device_class, priority DESC, job_id, id) WHERE state = 'open';
