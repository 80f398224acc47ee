-- SQLite has triggers per row and per kind of change; a change of many rows raises the generation many times.
CREATE TRIGGER rules_insert AFTER INSERT ON rules BEGIN
    UPDATE rules_generation SET number = number + 1;
END;
CREATE TRIGGER rules_update AFTER UPDATE ON rules BEGIN
    UPDATE rules_generation SET number = number + 1;
END;
CREATE TRIGGER rules_delete AFTER DELETE ON rules BEGIN
    UPDATE rules_generation SET number = number + 1;
END;
CREATE TRIGGER clients_insert AFTER INSERT ON clients BEGIN
    UPDATE rules_generation SET number = number + 1;
END;
CREATE TRIGGER clients_update AFTER UPDATE ON clients BEGIN
    UPDATE rules_generation SET number = number + 1;
END;
CREATE TRIGGER clients_delete AFTER DELETE ON clients BEGIN
    UPDATE rules_generation SET number = number + 1;
END;
