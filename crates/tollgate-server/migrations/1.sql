-- The tables, in words that SQLite and PostgreSQL both understand. {now_us} is each one's own way to say the time.
--
-- Times are whole microseconds since 1970 in UTC, as in the engine: exact, the same in both databases, and free of
-- time zones. For people: datetime(at_us / 1000000, 'unixepoch') or to_timestamp(at_us / 1e6).

-- One rule of the configuration file per row. A column that is NULL was not said: the reader's default holds.
CREATE TABLE rules (
    -- Instances read the rules of their scope alone, so several services can share a database.
    scope TEXT NOT NULL DEFAULT 'default' CHECK (length(scope) BETWEEN 1 AND 64),
    id TEXT NOT NULL CHECK (length(id) BETWEEN 1 AND 200),
    -- Empty: for every plan that has no rule of its own under this id.
    plan TEXT NOT NULL DEFAULT '' CHECK (length(plan) <= 200),
    position BIGINT NOT NULL DEFAULT 0,
    -- JSON: an object, and a list of names.
    "match" TEXT CHECK (length("match") <= 16384),
    per TEXT CHECK (length(per) <= 4096),
    algorithm TEXT CHECK (
        algorithm IN ('token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_log', 'sliding_counter')
    ),
    -- Buckets have a rate ("10/s") and a burst or a queue; windows have a limit (max) and a length ("1m").
    rate TEXT CHECK (length(rate) <= 64),
    burst BIGINT,
    queue BIGINT,
    max BIGINT,
    "window" TEXT CHECK (length("window") <= 64),
    mode TEXT CHECK (mode IN ('enforce', 'shadow', 'off')),
    on_store_failure TEXT CHECK (on_store_failure IN ('local', 'open', 'closed')),
    active BOOLEAN NOT NULL DEFAULT TRUE,
    description TEXT CHECK (length(description) <= 4096),
    created_us BIGINT NOT NULL DEFAULT ({now_us}),
    updated_us BIGINT NOT NULL DEFAULT ({now_us}),
    PRIMARY KEY (scope, id, plan)
);

CREATE TABLE clients (
    scope TEXT NOT NULL DEFAULT 'default' CHECK (length(scope) BETWEEN 1 AND 64),
    id TEXT NOT NULL CHECK (length(id) BETWEEN 1 AND 256),
    plan TEXT CHECK (length(plan) BETWEEN 1 AND 200),
    api_key_sha256 TEXT CHECK (length(api_key_sha256) = 64),
    active BOOLEAN NOT NULL DEFAULT TRUE,
    created_us BIGINT NOT NULL DEFAULT ({now_us}),
    updated_us BIGINT NOT NULL DEFAULT ({now_us}),
    PRIMARY KEY (scope, id)
);

CREATE UNIQUE INDEX clients_api_key ON clients (scope, api_key_sha256);

-- What was denied: one row per bucket and second.
CREATE TABLE violations (
    -- Who wrote it, and the how-manieth of its rows it is: a batch that is sent twice counts once.
    writer BIGINT NOT NULL,
    number BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    scope TEXT NOT NULL,
    rule TEXT NOT NULL,
    plan TEXT,
    bucket TEXT NOT NULL,
    client TEXT,
    ip TEXT,
    endpoint TEXT,
    remaining BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    count BIGINT NOT NULL,
    source TEXT NOT NULL,
    generation BIGINT NOT NULL,
    PRIMARY KEY (writer, number)
);

CREATE INDEX violations_by_time ON violations (at_us);
CREATE INDEX violations_by_client ON violations (client, at_us);
CREATE INDEX violations_by_ip ON violations (ip, at_us);

-- One number that every change of rules or clients raises, so that looking for changes reads one integer.
CREATE TABLE rules_generation (
    one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
    number BIGINT NOT NULL
);

INSERT INTO rules_generation (one, number) VALUES (1, 1);
