-- Compiled code for programs (remote.h).

-- name: remote_of_build
SELECT files
FROM build_caches
WHERE folder = :folder;

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

-- What is there stays as it was written first. Beyond :bytes_max bytes of a token nothing is stored.
-- name: remote_write
INSERT INTO remote_files (token_id, image, folder, name, is_group, bytes)
SELECT :token::bigint, :image, :folder, :name, :is_group::boolean, :bytes::bytea
WHERE (SELECT COALESCE(sum(octet_length(bytes)), 0)
       FROM remote_files
       WHERE token_id = :token) + octet_length(:bytes) <= :bytes_max::bigint
ON CONFLICT (token_id, image, folder, name, is_group) DO NOTHING
RETURNING id;

-- name: remote_collect
DELETE FROM remote_files
WHERE used_at < now() - make_interval(days => :days::int);
