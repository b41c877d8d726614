"""Records (common/record/record.h): C, JSON, SQL and /openapi.json agree about each.

build/…/tests/records prints the server's records; their columns are looked up in a migrated database, and their schemas in
the document of a running server."""

import copy
import hashlib
import json
import re
import subprocess

import harness
import pytest
from hands import SMALL, hands, kernel, register, server, submit  # noqa: F401 (fixtures)

# The types of columns that a type of field may have; None: any, as its text.
SQL_TYPES = {
    "bool": {"bool"}, "integer": {"int8", "int4", "int2"}, "id": {"int8"}, "number": {"float8", "float4"}, "text": None,
    "time": {"timestamptz"}, "enum": {"text", "or .sql_type"}, "digest": {"bytea"}, "json": {"json", "jsonb", "text"},
    "numbers": {"_float4", "_float8"}, "texts": {"_text"}, "ranges": {"int8multirange"},
}
JSON_TYPES = {"bool": "boolean", "integer": "integer", "number": "number", "text": "string", "enum": "string", "numbers": "array",
              "texts": "array", "records": "array", "map": "object", "id": "Id", "time": "Time", "digest": "Digest", "ranges": "Ranges"}


def run(*arguments):
    return subprocess.run([harness.BUILD / "tests/records", *arguments], capture_output=True, text=True, timeout=600)


def columns_of(postgres, database):
    """Table -> column -> type, and type of enum -> its labels."""
    rows = postgres.sql("select table_name, column_name, udt_name from information_schema.columns where table_schema = 'public'",
                        conninfo=database)
    labels = postgres.sql("select t.typname, string_agg(e.enumlabel, ',' order by e.enumsortorder) from pg_enum e"
                          " join pg_type t on t.oid = e.enumtypid group by 1", conninfo=database)
    tables = {}
    for table, column, kind in (row.split("|") for row in rows.splitlines()):
        tables.setdefault(table, {})[column] = kind
    return tables, dict(row.split("|") for row in labels.splitlines())


def column_faults(record, tables, enums):
    """The faults of a record's columns, as sentences."""
    places = record["table"].split()
    unknown = [place for place in places if place not in tables]
    if unknown or not places:
        return [f"{record['name']}: there is no table {table}" for table in unknown]
    faults = []
    for field in record["fields"]:
        column = field.get("column")
        kinds = {tables[place][column] for place in places if column in tables[place]}
        if column and not kinds:
            faults.append(f"{record['name']}.{field['name']}: {record['table']} has no column {column}")
        allowed = SQL_TYPES.get(field["type"])
        for kind in kinds if column and allowed else ():
            if field["type"] == "enum" and kind != field.get("sql_type", "text"):
                faults.append(f"{record['name']}.{field['name']}: {column} has the type {kind}, not the field's .sql_type")
            if field["type"] == "enum" and kind in enums:
                if set(enums[kind].split(",")) != set(field["names"]):
                    faults.append(f"{record['name']}.{field['name']}: the labels of {kind} are {enums[kind]}")
            elif field["type"] != "enum" and kind not in allowed:
                faults.append(f"{record['name']}.{field['name']}: {column} has the type {kind}, not one of {sorted(allowed)}")
    return faults


def types_of(schema):
    """The types and names of schemas that a value may have."""
    if "anyOf" in schema:
        return set().union(*map(types_of, schema["anyOf"]))
    if "$ref" in schema:
        return {schema["$ref"].rsplit("/", 1)[1]}
    kinds = schema.get("type", [])
    return {kinds} if isinstance(kinds, str) else set(kinds)


def schema_faults(record, schemas):
    """The faults of a record's schema; a record without a name has its schema where it is used."""
    if not record["name"]:
        return []
    if record["name"] not in schemas:
        return [f"/openapi.json has no schema {record['name']}"]
    schema, members = schemas[record["name"]], {f["name"]: f for f in record["fields"] if f["json"]}
    faults = [f"{record['name']}.{name} is on one side only" for name in members.keys() ^ schema["properties"].keys()]
    required = {name for name, field in members.items()
                if field["required"] or (field["answer"] and not field["omitted"])}
    if required != set(schema.get("required", [])):
        faults.append(f"{record['name']}: the schema requires {schema.get('required')}, the record {sorted(required)}")
    for name in members.keys() & schema["properties"].keys():
        field, there = members[name], types_of(schema["properties"][name])
        expected = field.get("of") if field["type"] == "record" else JSON_TYPES.get(field["type"])
        if expected and not field.get("schema") and expected not in there:
            faults.append(f"{record['name']}.{name} is {field['type']}; its schema says {sorted(there)}")
    return faults


@pytest.fixture(scope="module")
def records():
    done = run()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_column_of_a_record_is_in_its_tables_and_has_a_type_that_fits(records, postgres, database):
    tables, enums = columns_of(postgres, database)
    assert [fault for record in records for fault in column_faults(record, tables, enums)] == []


def test_every_record_is_described_in_openapi_json(records, server):
    schemas = server.get("/openapi.json")["components"]["schemas"]
    assert [fault for record in records for fault in schema_faults(record, schemas)] == []
    names = [record["name"] for record in records if record["name"]]
    assert len(names) == len(set(names))


def field_of(record, name):
    return next(field for field in record["fields"] if field["name"] == name)


def test_a_record_that_differs_from_its_table_or_its_schema_is_found(records, postgres, database, server):
    """The comparisons above can fail: a record of the list is changed in each way that they look for."""
    tables, enums = columns_of(postgres, database)
    schemas = server.get("/openapi.json")["components"]["schemas"]
    good = next(record for record in records if record["name"] == "AuditEntry")

    def faults(change):
        record = copy.deepcopy(good)
        change(record)
        return " ".join(column_faults(record, tables, enums) + schema_faults(record, schemas))

    assert faults(lambda record: None) == ""
    assert "no column rank" in faults(lambda record: field_of(record, "role").update(column="rank"))
    assert "has the type text" in faults(lambda record: field_of(record, "role").update(type="integer"))
    assert "no table nowhere" in faults(lambda record: record.update(table="nowhere"))
    assert "one side" in faults(lambda record: record["fields"].append(dict(field_of(record, "role"), name="more", column=None)))
    assert "requires" in faults(lambda record: field_of(record, "peer").update(answer=False))
    assert "its schema says" in faults(lambda record: field_of(record, "object").update(type="id"))
    assert "no schema Audits" in faults(lambda record: record.update(name="Audits"))
    state = {"name": "state", "type": "enum", "column": "state", "names": ["queued"]}
    enum = {"name": None, "table": "jobs", "fields": [state]}
    labels = " ".join(column_faults(enum, tables, enums))
    assert "not the field's .sql_type" in labels and re.search("labels of job_state are .*running", labels)


def test_every_type_of_field_is_stored_in_postgresql_and_read_again(database):
    done = run("round", database)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    for each in out["given"]:  # have no column
        each["part"] = each["parts"] = None
    assert out["given"][0]["texts"] == ["", "NULL", 'a,"b\\'] and out["given"][1]["color"] is None
    assert out["single"] == out["given"]
    assert out["unnested"] == out["given"]
    assert out["expanded"] == out["given"], "with columns that the record wrote into the statement"


def test_statements_keep_their_quotes_and_take_a_parameter_twice(database):
    done = run("quoted", database)
    assert (done.returncode, done.stdout) == (0, "a;b :no 'c' \\d|7|éé|1\n"), done.stderr


@pytest.mark.parametrize("mistake, sentence", [("unbound", "is not bound"), ("twice", "is bound twice"),
                                               ("unknown", "that the statement does not have")])
def test_a_mistake_in_binding_aborts(database, mistake, sentence):
    done = run(mistake, database)
    assert done.returncode < 0 and sentence in done.stderr


@pytest.fixture(scope="module")
def pipeline(postgres):
    """Transactions whose statements are sent together: what tests/records.c observes of them."""
    done = run("pipeline", postgres.database())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_more_statements_than_are_sent_at_once_and_a_script_are_one_transaction(pipeline):
    assert pipeline["n"] == 20 + 2 + 1 + 1
    assert pipeline["sum"] == sum(range(1, 22)) + 100 + 101 + 300, "nothing of the transactions that failed"


def test_a_transaction_is_repeated_after_a_conflict_and_not_after_a_refusal(pipeline):
    assert pipeline["calls"] == [-3, -1, 3]


def test_what_a_transaction_counts_is_counted_when_it_commits(pipeline):
    assert (pipeline["before"], pipeline["after"]) == (0, 21)


def test_a_sent_statement_that_fails_fails_the_next_run_or_the_commit_and_counts_nothing(pipeline):
    assert (pipeline["of_run"], pipeline["of_commit"]) == ("unique", "unique")
    assert pipeline["at_end"] == pipeline["after"] + 1


def test_begin_now_has_begun_when_it_returns_and_begin_has_not(pipeline):
    assert pipeline["begin_now"] is True and pipeline["begin"] is False


def test_a_statement_that_is_prepared_again_is_one_run_that_did_not_fail(pipeline):
    assert pipeline["stale"] == [2, 0]


def value_of(name, schema):
    """Something that a schema allows, which no other member has."""
    if "anyOf" in schema:
        schema = schema["anyOf"][0]
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    lower = int(schema.get("minimum", 0))
    return {"integer": lower + len(name), "number": lower + len(name) + 0.5, "string": f"its {name}", "array": [len(name) + 0.25],
            "object": {name: [1, None]}}[kind]


def test_every_member_of_a_measurement_is_stored_and_read_again(server, submit, hands):  # noqa: F811
    """The members are the contract's own: one that is added needs no line here."""
    members = server.get("/openapi.json")["components"]["schemas"]["MeasurementRequest"]["properties"]
    submit(SMALL)
    lease = hands("a").pull().json
    code = b"the code that was timed"
    measurement = {name: value_of(name, schema) for name, schema in members.items()
                   if name not in ("baseline_failed", "object", "outcome", "regime")}
    measurement |= {"config": lease["configs"][0][0], "outcome": "correct", "object": "sha256:" + hashlib.sha256(code).hexdigest(),
                    **{name: lease[name] for name in ("process", "round", "regime")}}
    assert server.request("PUT", f"/v1/blobs/{measurement['object']}", code).status == 201
    answer = server.request("POST", f"/v1/leases/{lease['lease']}/results", {"epoch": lease["epoch"], "measurements": [measurement]})
    assert answer.status == 200, answer
    stored, = server.get(f"/v1/jobs/{lease['job']}/measurements")["items"]
    assert {name: stored[name] for name in measurement} == measurement

    # Members that it leaves out are null, or those of the lease.
    least = {"seq": 99, "config": lease["configs"][0][0] + 1, "outcome": "compile"}
    answer = server.request("POST", f"/v1/leases/{lease['lease']}/results", {"epoch": lease["epoch"], "measurements": [least]})
    assert answer.status == 200, answer
    stored = server.get(f"/v1/jobs/{lease['job']}/measurements")["items"][1]
    expected = dict.fromkeys(measurement) | least | {"process": lease["process"], "round": lease["round"], "regime": lease["regime"],
                                                     "samples_us": [], "baseline_us": []}
    assert {name: stored[name] for name in expected} == expected
