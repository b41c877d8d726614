-- The audit table: which token wrote what (server/audit/audit.h).

-- name: audit_add
INSERT INTO audit (token, token_id, role, peer, action, object, detail)
SELECT token, token_id, role, peer, action, object, detail::json
FROM unnest(:token::text[], :token_id::bigint[], :role::text[], :peer::text[], :action::text[],
            :object::text[], :detail::text[])
     WITH ORDINALITY AS r(token, token_id, role, peer, action, object, detail, n)
ORDER BY n;

-- Reads one row more than a page has, to see whether there is another page.
-- name: audit_list
SELECT id, rfc3339(at) AS at, token, token_id, role, peer, action, object, detail
FROM audit
WHERE id < :before::bigint
  AND (:token::text IS NULL OR token = :token)
  AND (:action::text IS NULL OR action = :action)
  AND (:object::text IS NULL OR object = :object)
  AND at >= to_timestamp(:since_us::bigint / 1000000.0)
  AND (:last_ms::bigint = 0 OR at >= now() - :last_ms::bigint * interval '1 ms')
ORDER BY id DESC
LIMIT :limit::bigint + 1;
