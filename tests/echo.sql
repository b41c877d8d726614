-- The kind echo, of tests/echo.c. Its tasks are texts to be repeated.

-- What a holder gets: the first texts without an answer that no other holder has.
-- name: echo_choose
SELECT id, text
FROM echoes
WHERE answer IS NULL AND leased_until IS NULL
ORDER BY id
LIMIT :most::bigint
FOR UPDATE SKIP LOCKED;

-- name: echo_store
UPDATE echoes
SET answer = :answer
WHERE id = :task::bigint;

-- name: echo_note
INSERT INTO echo_notes (what, task)
VALUES (:what, :task::bigint);
