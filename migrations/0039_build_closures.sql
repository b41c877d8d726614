-- The function that a build was packed from: an override of a kernel also concerns what containers
-- agree on for its functions (server/choice/function_overrides.h). A trigger sets it, because
-- servers of an older version store builds while this one is rolled out.
ALTER TABLE builds ADD COLUMN closure text;

CREATE FUNCTION builds_set_closure() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.closure := NEW.build #>> '{record,function,closure}';
    RETURN NEW;
END $$;
CREATE TRIGGER builds_closure BEFORE INSERT OR UPDATE OF build ON builds
    FOR EACH ROW EXECUTE FUNCTION builds_set_closure();

UPDATE builds
SET closure = build #>> '{record,function,closure}'
WHERE build #>> '{record,function,closure}' IS NOT NULL;

CREATE INDEX builds_closure ON builds (kernel, closure, id) WHERE closure IS NOT NULL;
