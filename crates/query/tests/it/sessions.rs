//! PREPARE, EXECUTE and DEALLOCATE in a session.

use query::{Answer, Limits, Session};
use types::{Kind, Principal, Result, Value};

use crate::database::{Database, open, texts};

struct Client<'a> {
    database: &'a Database,
    session: Session,
}

impl<'a> Client<'a> {
    fn new(database: &'a Database) -> Client<'a> {
        Client { database, session: Session::new(database.sql.clone(), Principal::local()) }
    }

    fn with(&mut self, text: &str, params: Vec<Value>) -> Result<Vec<Vec<String>>> {
        let runtime = &self.database.runtime;
        match runtime.block_on(self.session.run(text, params, Limits::default()))? {
            Answer::Rows(mut rows) => runtime.block_on(rows.collect()).map(|batches| texts(&batches)),
            Answer::Done(done) => Ok(vec![vec![done.kind.name().to_owned(), done.count.to_string()]]),
        }
    }

    fn run(&mut self, text: &str) -> Vec<Vec<String>> {
        self.with(text, Vec::new()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn fails(&mut self, text: &str, kind: Kind, part: &str) {
        let error = self.with(text, Vec::new()).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(part), "{text}: {error:?}");
    }
}

#[test]
fn a_session_keeps_statements_by_name() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, s text, day date, d decimal(30, 2), f float8)");
    let mut client = Client::new(&database);
    assert_eq!(client.run("PREPARE put AS insert into t values ($1, $2, $3, $4, $5)"), [["PREPARE", "0"]]);
    let put = "execute put(1 + 1, 'it''s', '2024-02-29', 12345678901234567890.25, -1.5)";
    assert_eq!(client.run(put), [["INSERT", "1"]]);
    client.run("EXECUTE Put(3, null, date '2024-03-01', null, 'NaN')");
    client.run("prepare \"Get\" as select s, day, d, f from t where id = $1");
    for _ in 0..3 {
        let found = client.run("execute \"Get\"(2);");
        assert_eq!(found, [["it's", "2024-02-29", "12345678901234567890.25", "-1.5"]]);
        assert_eq!(client.run("execute \"Get\"('3')"), [["NULL", "2024-03-01", "NULL", "NaN"]]);
    }
    assert_eq!(client.with("execute \"Get\"($1 + 1)", vec![Value::Int64(1)]).unwrap().len(), 1);
    client
        .run("/* of a type */ prepare days (date, int) as select id + $2 from t where day >= $1 order by id");
    assert_eq!(client.run("-- so\nexecute days('2024-03-01', '7')"), [["10"]]);
    client.run("prepare none as select count(*) from t");
    assert_eq!(client.run("execute none"), [["2"]]);
    assert_eq!(client.run("execute none()"), [["2"]]);

    client.fails("execute nobody(1)", Kind::NotFound, "there is no prepared statement `nobody`");
    client.fails("execute get(1)", Kind::NotFound, "`get`");
    client.fails(
        "execute \"Get\"",
        Kind::Invalid,
        "the prepared statement has 1 parameter, 0 values were given",
    );
    client.fails("execute \"Get\"(1, 2)", Kind::Invalid, "1 parameter, 2 values");
    client.fails("execute none(1)", Kind::Invalid, "0 parameters, 1 value was given");
    client.fails("execute \"Get\"('x')", Kind::Invalid, "x");
    client.fails("execute \"Get\"(1.5)", Kind::Invalid, "int64");
    client.fails("execute \"Get\"((select 1))", Kind::Invalid, "cannot be a query");
    client.fails("execute \"Get\"(id)", Kind::Invalid, "id");
    client.fails("execute days('soon', 1)", Kind::Invalid, "soon");
    client.fails("prepare none as select 1", Kind::Exists, "already");
    client.fails("prepare p as select nothing from t", Kind::Invalid, "nothing");
    client.fails("prepare p as drop table t", Kind::Invalid, "PREPARE takes");
    client.fails("prepare p as", Kind::Invalid, "syntax");
    client.fails("prepare p (money_bag) as select $1", Kind::Invalid, "money_bag");
    client.fails("deallocate p", Kind::NotFound, "`p`");

    // The statement follows changes of its tables.
    database.execute("alter table t add column more int default 5");
    assert_eq!(client.run("execute \"Get\"(2)")[0][0], "it's");
    // No other session has it.
    Client::new(&database).fails("execute none", Kind::NotFound, "none");

    assert_eq!(client.run("deallocate prepare none"), [["DEALLOCATE", "0"]]);
    client.fails("execute none", Kind::NotFound, "none");
    client.run("prepare none as select 2");
    assert_eq!(client.run("execute none"), [["2"]]);
    client.run("deallocate all");
    client.fails("execute \"Get\"(2)", Kind::NotFound, "Get");
}

#[test]
fn a_prepared_statement_runs_in_the_open_transaction() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, n int)");
    database.execute("insert into t values (1, 10)");
    let mut client = Client::new(&database);
    client.run("prepare put as insert into t values ($1, $2)");
    client.run("prepare sums as select sum(n), count(*) from t where id >= $1");
    client.run("begin");
    client.run("execute put(2, '20')");
    assert_eq!(client.run("execute sums(0)"), [["30", "2"]]);
    assert_eq!(database.query("select count(*) from t"), [["1"]]);
    // A statement prepared in a transaction outlives it, and an error ends the transaction.
    client.run("prepare late as select 7");
    client.fails("execute nobody", Kind::NotFound, "nobody");
    client.fails("execute sums(0)", Kind::Invalid, "has failed");
    client.fails("prepare more as select 1", Kind::Invalid, "has failed");
    client.run("rollback");
    assert_eq!(client.run("execute sums(0)"), [["10", "1"]]);
    assert_eq!(client.run("execute late"), [["7"]]);
    client.run("begin read only");
    assert_eq!(client.run("execute sums(1)"), [["10", "1"]]);
    client.fails("execute put(3, 3)", Kind::Forbidden, "");
    client.run("rollback");
    client.run("begin");
    client.run("execute put(3, 3)");
    client.run("commit");
    assert_eq!(database.query("select id from t order by id"), [["1"], ["3"]]);
}

/// The statement was planned over the newest tables, and failed because of columns that others had renamed since.
#[test]
fn a_prepared_statement_in_a_transaction_knows_the_tables_of_its_beginning() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, n int)");
    database.execute("insert into t values (1, 10)");
    let mut client = Client::new(&database);
    client.run("prepare all_of_it as select n from t");
    client.run("prepare one as select n from t where n = $1");
    client.run("begin");
    assert_eq!(client.run("execute all_of_it"), [["10"]]);
    database.execute("alter table t rename n to m");
    assert_eq!(client.run("execute all_of_it"), [["10"]]);
    assert_eq!(client.run("execute one('10')"), [["10"]]);
    client.run("commit");
    client.fails("execute all_of_it", Kind::Invalid, "n");
}

#[test]
fn without_a_session_nothing_is_kept_by_name() {
    let _limit = testkit::limit(120);
    let database = open();
    for text in ["prepare p as select 1", "execute p(1)", "deallocate p"] {
        let error = database.run(text, Vec::new(), Limits::default()).unwrap_err();
        assert!(error.to_string().contains("need a session"), "{error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("`params`")), "{error:?}");
    }
    let mut client = Client::new(&database);
    for at in 0..256 {
        client.run(&format!("prepare p{at} as select {at}"));
    }
    client.fails("prepare q as select 1", Kind::TooLarge, "at most 256");
    assert_eq!(client.run("execute p255"), [["255"]]);
}

#[test]
fn quotes_in_texts_stay_what_they_are() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table secret (x text)");
    database.execute("insert into secret values ('hidden')");
    let mut client = Client::new(&database);
    client.run("prepare p as select 'a''''b', $1, '\\''' -- as it's written\n");
    // Texts as a program sends what a user typed: each quote doubled.
    for typed in
        ["x''y", "'", "''", "\\'", "\\'', (select x from secret)) --", "\\' || (select x from secret) || '"]
    {
        let found = client.run(&format!("execute p('{}')", typed.replace('\'', "''")));
        assert_eq!(found, [["a''b", typed, "\\'"]], "{typed}");
    }
    client.run("prepare \"ö as\" (int, numeric(3, 1)) AS\n\tselect 'ä' as x, $1, $2;");
    assert_eq!(client.run("execute \"ö as\"(1, 2.5)"), [["ä", "1", "2.5"]]);
    database.execute("create view v as select 'a''''b' as x, '\\''' as y");
    assert_eq!(database.query("select *, '\\''' from v"), [["a''b", "\\'", "\\'"]]);
}

#[test]
fn a_prepared_statement_reads_the_past() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, a text)");
    database.execute("insert into t values (1, 'one')");
    let lsn = database.engine.root().lsn();
    database.execute("alter table t rename column a to b");
    database.execute("alter table t rename to other");
    let mut client = Client::new(&database);
    client.run(&format!("prepare one as select o.a from t as of lsn {lsn} as o where o.id = $1"));
    client.run(&format!("prepare all as select a from t as of lsn {lsn}"));
    client.run("prepare any as select a from t as of lsn $1 where id = $2");
    for _ in 0..3 {
        assert_eq!(client.run("execute one(1)"), [["one"]]);
        assert_eq!(client.run("execute one('1')"), [["one"]]);
        assert_eq!(client.run("execute all"), [["one"]]);
        assert_eq!(client.run(&format!("execute any({lsn}, 1)")), [["one"]]);
    }
}
