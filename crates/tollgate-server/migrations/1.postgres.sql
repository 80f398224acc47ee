-- A change raises the generation in its own transaction; who listens hears of it when that is done.
CREATE FUNCTION tollgate_rules_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    raised BIGINT;
BEGIN
    UPDATE rules_generation SET number = number + 1 RETURNING number INTO raised;
    PERFORM pg_notify('tollgate_rules', raised::text);
    RETURN NULL;
END
$$;

CREATE TRIGGER rules_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON rules
    FOR EACH STATEMENT EXECUTE FUNCTION tollgate_rules_changed();
CREATE TRIGGER clients_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON clients
    FOR EACH STATEMENT EXECUTE FUNCTION tollgate_rules_changed();
