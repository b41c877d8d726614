-- Compiled code for programs, and what their autotuners found (remote.h).

-- name: remote_read
SELECT bytes, used_at < now() - interval '1 day' AS is_old
FROM remote_files
WHERE token_id = :token::bigint
  AND image = :image
  AND folder = :folder
  AND name = :name
  AND is_group = :is_group::boolean;

-- name: remote_used
UPDATE remote_files
SET used_at = now()
WHERE token_id = :token::bigint
  AND image = :image
  AND folder = :folder
  AND name = :name
  AND is_group = :is_group::boolean;

-- A stored file is never replaced, except a list (:is_list). A file that would exceed
-- :bytes_max of the token, where each counts :file_cost more than its size, is not stored. Files
-- that are written at the same time may exceed it. Triggers keep remote_usage right.
-- name: remote_write
INSERT INTO remote_files (token_id, image, folder, name, is_group, bytes)
SELECT :token::bigint, :image, :folder, :name, :is_group::boolean, :bytes::bytea
WHERE (SELECT COALESCE(sum(bytes + files * :file_cost::bigint), 0)
       FROM remote_usage
       WHERE token_id = :token) + octet_length(:bytes) + :file_cost <= :bytes_max::bigint
ON CONFLICT (token_id, image, folder, name, is_group) DO UPDATE
  SET bytes = EXCLUDED.bytes,
      used_at = now()
  WHERE :is_list::boolean;

-- What an autotuner found last. Their folders have a ":", which those of Triton have not.
-- name: remote_newest
SELECT bytes
FROM remote_files
WHERE token_id = :token::bigint
  AND image = :image
  AND folder = :folder
ORDER BY id DESC
LIMIT :newest::bigint;

-- name: remote_collect
DELETE FROM remote_files
WHERE id IN (SELECT id
             FROM remote_files
             WHERE used_at < now() - make_interval(days => :days::int)
             ORDER BY used_at
             LIMIT :at_once::bigint
             FOR UPDATE SKIP LOCKED);
