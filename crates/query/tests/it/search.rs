//! Keyword search beside SQL: the threads on which searches run.

use std::time::{Duration, Instant};

use index::text::{self, TextMaterializer};
use query::search::{Request, Search};
use types::Principal;

use crate::database::open;

/// Heavy searches held the threads of all others as long as they took.
#[test]
fn a_search_that_turns_out_to_be_much_work_goes_on_among_the_statements_and_answers_the_same() {
    let _limit = testkit::limit(120);
    let database = open();
    let index = TextMaterializer::new();
    database.engine.register(index.clone()).unwrap();
    let search = Search::new(database.engine.clone(), index, database.sql.clone()).unwrap();
    let words: Vec<String> = (0..64).map(|n| format!("w{n}")).collect();
    database.execute("CREATE TABLE docs (body text)");
    database.execute("CREATE INDEX ON docs USING text (body)");
    for _ in 0..3 {
        let insert = format!("INSERT INTO docs SELECT '{}' FROM generate_series(1, 10000)", words.join(" "));
        assert_eq!(database.execute(&insert), 10_000);
        let end = Instant::now() + Duration::from_secs(60);
        let missing = || {
            let root = database.engine.root();
            let table = root.table("main.docs").unwrap();
            database
                .engine
                .materializer_progress(table)
                .iter()
                .find(|s| s.materializer == text::NAME)
                .unwrap()
                .missing
        };
        while missing() > 0 {
            assert!(Instant::now() < end, "the index does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let ask = |text: &str| {
        let request = Request { limit: 3, ..Request::new(text) };
        database.runtime.block_on(search.run(&Principal::local(), request)).unwrap()
    };
    let light = ask("w7");
    assert_eq!((light.total, light.hits.len(), search.moved()), (30_000, 3, 0));
    let heavy = ask(&words.iter().map(|word| format!("+{word} ")).collect::<String>());
    assert_eq!((heavy.total, heavy.exact, search.moved()), (30_000, true, 1));
    assert_eq!(heavy.hits.iter().map(|hit| hit.row.0).collect::<Vec<_>>(), [1, 2, 3]);
    let phrase = ask(&format!("\"{}\"", words[..60].join(" ")));
    assert_eq!((phrase.total, search.moved()), (30_000, 2));
    search.close();
}
