"""Writes docs/reference/schema.md for reference.py: the tables of a new database, by the files of
migrations/ that make them.

Names, types, constraints and indexes are those of the database; what a table or a column is for is
said by the comments of the files. A comment above a statement is of what it makes. In a table a
comment behind columns is of these columns, and one that has lines of its own is of the next line's.
"""

import json
import re

import harness

MIGRATIONS = harness.SOURCE / "migrations"
MADE = re.compile(r"CREATE (?:OR REPLACE )?(TABLE|VIEW|FUNCTION|TYPE) (\w+)")
COLUMN = re.compile(r'(?:^|, )(?:ADD COLUMN )?"?(\w+)"? [a-z]')
ALTERED = re.compile(r"ALTER TABLE (\w+)")

# Tables that are no partitions, with their columns, constraints and indexes; views; functions.
CATALOG = """
with owned as (
    select c.oid, c.relname as name, c.relkind, c.reloptions from pg_class c
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v')
      and not c.relispartition)
select json_build_object(
    'relations', (select json_agg(json_build_object(
        'name', o.name, 'is_view', o.relkind = 'v', 'options', o.reloptions,
        'columns', (
            select json_agg(json_build_object(
                'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
                'not_null', a.attnotnull, 'default', pg_get_expr(d.adbin, d.adrelid),
                'identity', a.attidentity <> '', 'generated', a.attgenerated <> '',
                'rules', (select coalesce(json_agg(pg_get_constraintdef(k.oid, true)
                                                   order by k.contype, k.conname), '[]')
                          from pg_constraint k where k.conrelid = o.oid
                            and k.contype in ('c', 'f', 'p', 'u') and k.conkey = array[a.attnum]))
                order by a.attnum)
            from pg_attribute a
            left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
            where a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped),
        'constraints', (select coalesce(json_agg(pg_get_constraintdef(k.oid, true)
                                                 order by k.contype desc, k.conname), '[]')
                        from pg_constraint k where k.conrelid = o.oid
                          and k.contype in ('c', 'f', 'p', 'u') and cardinality(k.conkey) > 1),
        'indexes', (select coalesce(json_agg(pg_get_indexdef(i.indexrelid, 0, true)
                                             order by i.indexrelid::regclass::text), '[]')
                    from pg_index i where i.indrelid = o.oid
                      and not exists (select from pg_constraint k
                                      where k.conindid = i.indexrelid and k.conrelid = o.oid)),
        'triggers', (select coalesce(json_agg(pg_get_triggerdef(t.oid, true)
                                              order by t.tgname), '[]')
                     from pg_trigger t where t.tgrelid = o.oid and not t.tgisinternal)))
        from owned o),
    'functions', (select json_agg(json_build_object(
        'name', p.proname, 'arguments', pg_get_function_identity_arguments(p.oid),
        'returns', pg_get_function_result(p.oid)))
        from pg_proc p where p.pronamespace = current_schema()::regnamespace),
    'types', (select json_agg(json_build_object('name', t.typname, 'labels', (
        select json_agg(e.enumlabel order by e.enumsortorder) from pg_enum e
        where e.enumtypid = t.oid)))
        from pg_type t where t.typnamespace = current_schema()::regnamespace and t.typtype = 'e'))
"""


class Subject:
    """A file of migrations/: what it is about, and what it makes, with the comments."""

    def __init__(self, path, said):
        self.title = path.stem.partition("_")[2].replace("_", " ").capitalize()
        self.file, self.made, self.about = path.name, [], ""
        above, table, body = [], None, False
        for line in path.read_text().splitlines():
            comment = re.match(r"\s*--(?: (.*))?$", line)
            if body:  # of a function: its comments are of its statements
                body = line.count("$$") % 2 == 0
            elif comment:
                above.append(comment[1] or "")
            elif not line.strip():
                self.about = self.about or (" ".join(above) if not self.made else "")
                above = []
            else:
                made, altered = MADE.match(line), ALTERED.match(line)
                if made:
                    self.made.append((made[1], made[2]))
                    said[made[2]] = said.get(made[2]) or " ".join(above)
                if made or altered:
                    table = (made or altered)[2 if made else 1]
                if line.startswith("    ") or altered:
                    self._columns(line, table, above, said)
                above = []
                body = line.count("$$") % 2 == 1

    @staticmethod
    def _columns(line, table, above, said):
        stated, _, behind = line.strip().partition(" -- ")
        flat = re.sub(r"\([^()]*(?:\([^()]*\)[^()]*)*\)|'[^']*'", "", stated)
        text = " ".join([*above, behind]).strip()
        for name in COLUMN.findall(flat):
            if text:
                said[table, name] = text


def code(text):
    return f"`{text}`".replace("|", "\\|") if text else ""


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def rule_of(text, column=None):
    """A constraint or index in fewer words; `column`: in whose row it is."""
    text = " ".join(text.split()).replace(" USING btree", "")
    if column:
        text = text.replace(f"FOREIGN KEY ({column}) ", "")
        text = text.removesuffix(f" ({column})") if text.startswith(("PRIMARY", "UNIQUE")) else text
    return code(text)


def default_of(column):
    if column["identity"]:
        return "counts up"
    if column["generated"]:
        return code(f"= {column['default']}")
    return code(column["default"])


def relation_part(relation, said, table):
    name = relation["name"]
    lines = [f"### {name}\n", said.get(name) or "", ""]
    rows = []
    for column in relation["columns"]:
        rules = ["not null"] if column["not_null"] and not relation["is_view"] else []
        rules += [rule_of(rule, column["name"]) for rule in column["rules"]]
        rows.append((code(column["name"]), code(column["type"]), ", ".join(rules),
                     default_of(column), cell(said.get((name, column["name"])) or "")))
    if relation["is_view"]:
        lines.append(", ".join(f"{row[0]} {row[1]}" for row in rows) + "\n")
        return "\n".join(lines)
    lines.append(table(("column", "type", "rules", "default", "is"), rows))
    also = [rule for key in ("constraints", "indexes", "triggers") for rule in relation[key]]
    also += [f"WITH ({', '.join(relation['options'])})"] if relation["options"] else []
    lines += [*(f"- {rule_of(rule)}" for rule in also), ""] if also else []
    return "\n".join(lines)


def schema_page(postgres, database, head, table):
    catalog = json.loads(postgres.sql(CATALOG, conninfo=database))
    relations = {relation["name"]: relation for relation in catalog["relations"]}
    functions = {function["name"]: function for function in catalog["functions"]}
    types = {each["name"]: each for each in catalog["types"]}
    said = {}
    subjects = [Subject(path, said) for path in sorted(
        MIGRATIONS.glob("*.sql"), key=lambda path: (len(path.name.split("_")[0]), path.name))]
    made = {name for subject in subjects for _, name in subject.made}
    silent = sorted(name for name, relation in relations.items()
                    if name != "schema_migrations" and not said.get(name))
    if silent or not set(relations) - {"schema_migrations"} <= made:
        raise SystemExit(f"migrations/ has no comment above what makes {', '.join(silent)}")

    text = [f"{head}# The database\n\n"
            "The tables of a database as `wavetune-server migrate` makes it, by the files of"
            " `migrations/`.\nIt also has `schema_migrations`: the versions that were"
            " applied, with the SHA-256 of their text; the base is\nversion 100.\n"]
    for subject in subjects:
        parts = []
        for kind, name in subject.made:
            if name in types:
                labels = ", ".join(code(label) for label in types[name]["labels"])
                parts.append(f"Type `{name}`: {labels}\n")
            elif name in relations:
                parts.append(relation_part(relations[name], said, table))
        called = [functions[name] for kind, name in subject.made if name in functions]
        if called:
            rows = [(code(f"{each['name']}({each['arguments']})"), code(each["returns"]),
                     cell(said.get(each["name"]) or "")) for each in called]
            parts.append("### Functions\n\n" + table(("function", "returns", "is"), rows))
        if parts:
            text.append(f"## {subject.title}\n\n`{subject.file}`: {subject.about}\n")
            text += parts
    return "\n".join(text)
