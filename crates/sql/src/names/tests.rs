use super::*;
use crate::parse;

/// `main.Events(id, Kind, "größe")`, `main.users(id, name, Name2)`, `sensors.t(x)`; each has `At`, a struct of `Place`,
/// which is a struct of `Lat`.
struct Fixed;

impl TableCatalog for Fixed {
    fn table(
        &mut self,
        written: &ParsedTableName,
        _: Option<types::Lsn>,
    ) -> Result<(String, Vec<FieldNames>)> {
        let all = [
            ("main.Events", vec!["id", "Kind", "größe"]),
            ("main.users", vec!["id", "name", "Name2"]),
            ("sensors.t", vec!["x"]),
        ];
        let text = match &written.namespace {
            Some((namespace, _)) => format!("{namespace}.{}", written.table.0),
            None => format!("main.{}", written.table.0),
        };
        let found = name::resolve(&text, all.iter().map(|(n, _)| *n)).filter(|i| written.admits(all[*i].0));
        let (full_name, columns) = found.map(|i| &all[i]).ok_or_else(|| Error::not_found(written.text()))?;
        let leaf = |name: &str| FieldNames { name: name.into(), fields: Vec::new() };
        let place = FieldNames { name: "Place".into(), fields: vec![leaf("Lat")] };
        let at = FieldNames { name: "At".into(), fields: vec![place, leaf("place2")] };
        let columns = columns.iter().map(|name| leaf(name)).chain([at]);
        Ok(((*full_name).into(), columns.collect()))
    }
}

fn bound(text: &str) -> String {
    let mut statement = parse::statement(text, 10_000).unwrap();
    bind(&mut statement, &mut Fixed).unwrap_or_else(|e| panic!("{text}: {e}"));
    statement.to_string()
}

#[test]
fn an_unquoted_name_finds_the_only_one_that_differs_by_case() {
    assert_eq!(
        bound("select ID, kind, GRÖSSE, GRÖßE from events where KIND = 'a'"),
        r#"SELECT id, Kind, GRÖSSE, größe FROM "Events" WHERE Kind = 'a'"#
    );
    assert_eq!(bound("select E.KIND from EVENTS e"), r#"SELECT e.Kind FROM "Events" e"#);
    assert_eq!(bound("select SENSORS.T.X from sensors.T"), r#"SELECT sensors.t.x FROM "sensors"."t""#);
    assert_eq!(bound("select events.id from main.events"), r#"SELECT Events.id FROM "Events""#);
}

#[test]
fn a_quoted_name_is_exact() {
    assert_eq!(bound(r#"select "ID" from "Events""#), r#"SELECT "ID" FROM "Events""#);
    let mut statement = parse::statement(r#"select 1 from "events""#, 1_000).unwrap();
    assert!(bind(&mut statement, &mut Fixed).is_err());
}

#[test]
fn aliases_and_ctes_are_names_too() {
    assert_eq!(
        bound("with A as (select id as Total from events) select total from a order by TOTAL"),
        r#"WITH A AS (SELECT id AS Total FROM "Events") SELECT Total FROM A ORDER BY Total"#
    );
    assert_eq!(
        bound("select x.N from (select name as n from users) X"),
        r#"SELECT X.n FROM (SELECT name AS n FROM "users") X"#
    );
    assert_eq!(
        bound("select * from events join users using (ID)"),
        r#"SELECT "Events"."id", "Events".* EXCLUDE ("id"), "users".* EXCLUDE ("id") FROM "Events" JOIN "users" ON "Events"."id" = "users"."id""#
    );
    assert_eq!(bound("select 1, 1, count(*)"), r#"SELECT 1 AS "1", 1 AS "1_2", count(*) AS "count(*)""#);
    // The CTE hides the table of the same name; the table is still there under its full name.
    assert_eq!(
        bound("with users as (select 1) select * from users, main.users"),
        r#"WITH users AS (SELECT 1 AS "1") SELECT * FROM users, "main"."users""#
    );
}

#[test]
fn a_query_in_with_is_not_seen_by_its_own_definition_nor_by_those_before() {
    assert_eq!(
        bound("with users as (select users.NAME from users) select USERS.name from users"),
        r#"WITH users AS (SELECT users.name FROM "main"."users") SELECT users.name FROM users"#
    );
    assert_eq!(
        bound("with a as (select id from users), users as (select id from a) select id from USERS"),
        r#"WITH a AS (SELECT id FROM "main"."users"), users AS (SELECT id FROM a) SELECT id FROM users"#
    );
    assert_eq!(
        bound(
            "with recursive users as (select 1 as n union all select n + 1 from USERS) select N from users"
        ),
        r#"WITH RECURSIVE users AS (SELECT 1 AS n UNION ALL SELECT n + 1 AS "n + 1" FROM users) SELECT n FROM users"#
    );
}

#[test]
fn a_query_in_with_is_seen_only_in_the_query_it_belongs_to() {
    assert_eq!(
        bound("select * from (with users as (select 1 as x) select X from users) s, users"),
        r#"SELECT * FROM (WITH users AS (SELECT 1 AS x) SELECT x FROM users) s, "main"."users""#
    );
    // A name that hides another is renamed.
    assert_eq!(
        bound(
            "with a as (select 1 as x) select * from (with A as (select 2 as x), b as (select 3) select a.X from a) s, a"
        ),
        r#"WITH a AS (SELECT 1 AS x) SELECT * FROM (WITH A AS (SELECT 2 AS x), b AS (SELECT 3 AS "3") SELECT A.x FROM A) s, a"#
    );
    assert_eq!(
        bound(
            "with a as (select 1 as x) select * from (with a as (select x + 1 as x from a) select a.x from a) s, a"
        ),
        r#"WITH a AS (SELECT 1 AS x) SELECT * FROM (WITH "polynya 1 a" AS (SELECT x + 1 AS x FROM a) SELECT a.x FROM "polynya 1 a" AS "a") s, a"#
    );
}

#[test]
fn fields_of_structs_are_found_like_columns() {
    assert_eq!(
        bound("select at.PLACE.lat, u.AT.place, PLACE2.x, main.users.at.place2 from users u"),
        r#"SELECT At.Place.Lat, u.At.Place, PLACE2.x, main.users.At.place2 FROM "users" u"#
    );
    assert_eq!(bound(r#"select at."PLACE" from users"#), r#"SELECT At."PLACE" FROM "users""#);
    assert_eq!(
        bound("select (at).PLACE.id, s.p.LAT from (select at.place as p, at from users) s"),
        r#"SELECT (At).'Place'.'id' AS "(at).PLACE.id", s.p.Lat FROM (SELECT At.Place AS p, At FROM "users") s"#
    );
}

#[test]
fn a_star_leaves_the_system_columns_out() {
    assert_eq!(bound("select * from users"), r#"SELECT * FROM "users""#);
    assert_eq!(
        bound("select *, _row_id from users"),
        r#"SELECT * EXCLUDE (_row_id, _time), _row_id FROM "users""#
    );
    assert_eq!(
        bound("select * from users u join events on u.id = events.id order by u._row_id"),
        r#"SELECT u.* EXCLUDE (_row_id, _time), "Events".* EXCLUDE (_row_id, _time) FROM "users" u JOIN "Events" ON u.id = Events.id ORDER BY u._row_id"#
    );
    assert_eq!(
        bound("select * from (select _row_id from users) x"),
        r#"SELECT * FROM (SELECT _row_id FROM "users") x"#
    );
    assert_eq!(
        bound("select U.* from users u order by _TIME"),
        r#"SELECT u.* EXCLUDE (_row_id, _time) FROM "users" u ORDER BY _time"#
    );
}

#[test]
fn near_names_are_offered() {
    assert_eq!(similar_names("evnts", ["events", "users", "even"]), ["events"]);
    assert_eq!(similar_names("temperature", ["temp", "time"]), ["temp"]);
    assert!(similar_names("x", ["events"]).is_empty());
}

#[test]
fn parameters_are_counted_by_the_highest() {
    let count = |text: &str| parameters(&parse::statement(text, 1_000).unwrap());
    assert_eq!(count("select $1, $3 from users where id = $2").unwrap(), 3);
    assert_eq!(count("select 1").unwrap(), 0);
    assert!(count("select $0").is_err());
    assert!(count("select $x").is_err());
}
