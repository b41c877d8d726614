-- The device's temperature when a measurement ended, in degrees Celsius, from its own telemetry; null
-- where it has none, as on a CPU. `measurements` may have a hundred million rows: nothing here reads
-- or rewrites it.

ALTER TABLE measurements ADD COLUMN temperature_c real;
