//! Tests of the query language: the rows that a query finds.

use types::{Kind, RowId};

use super::support::{BODY, Machine, TITLE, batch, declared, notes};
use crate::text::{self, Mode, Query};

fn machine(bodies: &[&str]) -> Machine {
    let machine = Machine::new(1, notes());
    machine.insert_bodies(bodies);
    machine
}

fn sorted(machine: &Machine, query: &str) -> Vec<u64> {
    let mut rows = machine.rows(query);
    rows.sort_unstable();
    rows
}

#[test]
fn words_phrases_musts_exclusions_and_prefixes_find_what_they_say() {
    let machine = machine(&[
        "the river bank was steep",
        "a bank by the river",
        "banking on databases",
        "time-sharing systems",
        "sharing some time",
    ]);
    let expect = |query: &str, rows: &[u64]| assert_eq!(sorted(&machine, query), rows, "{query}");
    expect("river", &[1, 2]);
    expect("\"river bank\"", &[1]);
    expect("\"river bank", &[1]);
    expect("bank -river", &[3]);
    expect("+bank steep", &[1, 2, 3]);
    expect("+bank +steep", &[1]);
    expect("ban*", &[1, 2, 3]);
    expect("database*", &[3]);
    expect("datab*", &[3]);
    expect("time-sharing", &[4, 5]);
    expect("\"time-sharing\"", &[4]);
    expect("sharing -time-sharing", &[5]);
    expect("-bank", &[]);
    expect("the bank", &[1, 2, 3]);
    expect("the", &[1, 2]);
    expect("\"by the river\"", &[2]);
    expect("bank +the", &[1, 2]);
    expect("", &[]);
    expect("  \t ?! ", &[]);
    expect("nothing", &[]);
    expect("+nothing river", &[]);
    let all = |text| machine.search(&Query { mode: Mode::All, ..Query::new(text) }).total;
    assert_eq!((all("the river bank of"), all("river steep"), all("river nothing")), (2, 1, 0));
}

#[test]
fn columns_are_searched_together_alone_and_by_weight() {
    let mut def = notes();
    def.indexes = vec![declared(&[TITLE, BODY], &[("weights", "3,1")])];
    let machine = Machine::new(1, def);
    let row = |title: &str, body: &str| (0, Some(title.to_owned()), Some(body.to_owned()));
    machine.insert(batch(&[row("stone", "heron"), row("heron", "stone"), row("heron", "heron")]));
    assert_eq!(machine.rows("heron"), [3, 2, 1]);
    assert_eq!(machine.rows("title:heron"), [2, 3]);
    assert_eq!(machine.rows("TITLE:heron -body:stone"), [3]);
    assert_eq!(machine.rows("other:heron"), [3, 2, 1], "no column, so words");
    let only = |columns: &[_]| machine.search(&Query { columns, ..Query::new("heron") }).total;
    assert_eq!((only(&[BODY]), only(&[TITLE, BODY])), (2, 3));
    let searcher = machine.text.searcher(&machine.table(), None).unwrap();
    let unknown = searcher.search(&Query { columns: &[types::ColumnId(99)], ..Query::new("x") });
    assert_eq!(unknown.unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn a_row_is_found_in_any_script() {
    let huge = "x".repeat(100_000);
    let machine = machine(&[
        "Ein Café an der Brücke",
        "cafe\u{301} de\u{301}compose\u{301}",
        "東京都に住む日本人",
        "Москва и Санкт-Петербург",
        "สวัสดีชาวโลก",
        "हिन्दी में लिखा",
        &huge,
        "İstanbul ﬁnds 𝕏 🦀 C++ and C# don’t mix",
    ]);
    let expect = |query: &str, rows: &[u64]| assert_eq!(sorted(&machine, query), rows, "{query}");
    expect("cafe", &[1, 2]);
    expect("CAFÉ", &[1, 2]);
    expect("brucke", &[1]);
    expect("decompose", &[2]);
    expect("東京", &[3]);
    expect("京東", &[]);
    expect("日本", &[3]);
    expect("москва", &[4]);
    expect("петербург", &[4]);
    expect("ชาวโลก", &[5]);
    expect("हिन्दी", &[6]);
    expect(&"X".repeat(30_000), &[7]);
    expect("istanbul", &[8]);
    expect("c++", &[8]);
    expect("c#", &[8]);
    expect("c", &[]);
    expect("don't", &[8]);
    expect("𝕏", &[8]);
    expect("🦀", &[]);
}

#[test]
fn a_language_decides_which_words_are_one() {
    for (language, query, found) in [
        ("english", "connections", 1),
        ("none", "connections", 0),
        ("german", "häusern", 1),
        ("english", "häusern", 0),
    ] {
        let mut def = notes();
        def.indexes = vec![declared(&[BODY], &[("language", language)])];
        let machine = Machine::new(1, def);
        machine.insert_bodies(&["connected Häuser"]);
        assert_eq!(machine.rows(query).len(), found, "{query} in {language}");
    }
}

#[test]
fn a_definition_is_checked_before_it_is_taken() {
    let def = notes();
    let wrong = |columns: &[_], options: &[_]| {
        text::check(&def, &declared(columns, options)).unwrap_err().to_string()
    };
    text::check(&def, &declared(&[TITLE, BODY], &[("language", "french"), ("weights", "2, 0.5")])).unwrap();
    assert!(wrong(&[], &[]).contains("at least one column"));
    assert!(wrong(&[types::ColumnId(16)], &[]).contains("`id` is not a string"));
    assert!(wrong(&[TITLE], &[("language", "klingon")]).contains("one of none, english"));
    assert!(wrong(&[TITLE], &[("weights", "1,2")]).contains("one weight for each column"));
    assert!(wrong(&[TITLE], &[("weights", "NaN")]).contains("weights are numbers"));
    assert!(wrong(&[TITLE], &[("stemming", "yes")]).contains("no option `stemming`"));
}

#[test]
fn filters_windows_and_deadlines_bound_an_answer() {
    let machine = machine(&["word"; 30]);
    let odd = |row: RowId| row.0 % 2 == 1;
    let hits = machine.search(&Query { filter: Some(&odd), limit: 4, offset: 2, ..Query::new("word") });
    assert_eq!((hits.total, hits.exact), (15, true));
    assert_eq!(hits.hits.iter().map(|hit| hit.row.0).collect::<Vec<_>>(), [5, 7, 9, 11]);
    let searcher = machine.text.searcher(&machine.table(), None).unwrap();
    let far = searcher.search(&Query { offset: 10_000, ..Query::new("word") });
    assert_eq!(far.unwrap_err().kind(), Kind::TooLarge);
    let many: String = (0..300).map(|n| format!("w{n} ")).collect();
    assert_eq!(searcher.search(&Query::new(&many)).unwrap_err().kind(), Kind::TooLarge);
    let late = || Err(types::Error::new(Kind::Timeout, "too late"));
    let late = searcher.search(&Query { check: Some(&late), ..Query::new("word") });
    assert_eq!(late.unwrap_err().kind(), Kind::Timeout);
}

#[test]
fn no_query_is_a_syntax_error_and_none_panics() {
    let _limit = testkit::limit(120);
    let machine = machine(&["some text with + and - and \"quotes\" in C++", "日本語 text*"]);
    let searcher = machine.text.searcher(&machine.table(), None).unwrap();
    const PARTS: [&str; 16] = [
        "+", "-", "\"", "*", ":", "text", "title:", "“", "c++", "日", "'", "\u{301}", " ", "É", "\\",
        "body:\"",
    ];
    testkit::for_each_seed(2_000, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let query: String = (0..rng.below(9)).map(|_| PARTS[rng.below(16) as usize]).collect();
        for mode in [Mode::Any, Mode::All] {
            let query = Query { mode, ..Query::new(&query) };
            searcher.search(&query).unwrap();
            searcher.marker(&query).unwrap().snippet(BODY, "some text with É 日本語 c++", 7).html();
        }
    });
}
