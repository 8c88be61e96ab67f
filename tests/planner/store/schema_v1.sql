-- A database of version 1, as the first release made it. Never edited: people have such databases.

CREATE TABLE ddlplan_schema (
    version INTEGER NOT NULL
);

CREATE TABLE nodes (
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    first_seen TEXT NOT NULL,
    last_seen TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name, fingerprint)
);

CREATE TABLE studies (
    id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    generation INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    use_case TEXT NOT NULL,
    node TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    precision TEXT NOT NULL,
    software JSON NOT NULL,
    data TEXT NOT NULL,
    seed BIGINT NOT NULL,
    finished_trials INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE ("key", generation)
);

CREATE TABLE probes (
    id INTEGER NOT NULL,
    node_id INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    hardware JSON NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(node_id) REFERENCES nodes (id)
);

CREATE INDEX probes_of_node ON probes (node_id);

CREATE TABLE trials (
    id INTEGER NOT NULL,
    study_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    role TEXT NOT NULL,
    outcome TEXT NOT NULL,
    "plan" JSON NOT NULL,
    parameters JSON NOT NULL,
    measurement JSON,
    peak_memory_bytes BIGINT,
    reason TEXT,
    log_tail TEXT,
    elapsed_s FLOAT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (study_id, number),
    FOREIGN KEY(study_id) REFERENCES studies (id)
);

CREATE TABLE plans (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    study_id INTEGER,
    created_at TEXT NOT NULL,
    use_case TEXT NOT NULL,
    node TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    "plan" JSON NOT NULL,
    throughput JSON NOT NULL,
    speedup JSON,
    baseline JSON,
    peak_memory_bytes BIGINT,
    software JSON NOT NULL,
    FOREIGN KEY(study_id) REFERENCES studies (id)
);

INSERT INTO ddlplan_schema VALUES (1);
