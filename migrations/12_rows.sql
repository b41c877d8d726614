-- The rows that a new database has.

INSERT INTO owners (id, name) OVERRIDING SYSTEM VALUE VALUES (0, '');
INSERT INTO collection_due (at) VALUES (now());

SELECT measurement_table_make('measurements_0', 0, 1001);
SELECT measurement_table_attach('measurements_0', 0, 1001);
INSERT INTO measurement_partitions (first_job, end_job, partition)
VALUES (0, 1001, 'measurements_0');
