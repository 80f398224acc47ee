-- A bucket may be shared: a row names the first client, address and endpoint, and says whether there were others.
ALTER TABLE violations ADD COLUMN other_clients BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE violations ADD COLUMN other_ips BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE violations ADD COLUMN other_endpoints BOOLEAN NOT NULL DEFAULT FALSE;
