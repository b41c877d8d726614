-- Stands in for a migration of another branch, which is merged before this one.
SELECT 1;
