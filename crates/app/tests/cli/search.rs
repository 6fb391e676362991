//! Tests of `polynya search`, with and without a server.

use crate::polynya::{Workdir, text};

fn workdir() -> Workdir {
    let workdir = Workdir::new();
    workdir.write(
        "docs.csv",
        "path,title,body\nice.md,Ice,Water that is cold\nsea.md,Water,Where rivers <end>\nstone.md,Stones,A river rolls them\n",
    );
    workdir.ok(&["ingest", "docs.csv"]);
    workdir
}

fn hits(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rows_are_found_without_an_index_and_with_one() {
    let _limit = testkit::limit(120);
    let workdir = workdir();
    let said = workdir.fails(&["search", "river"]);
    assert!(said.contains("no table has a text index") && said.contains("CREATE INDEX"), "{said}");

    // A mistyped table name was searched for as a word, and no hint named the table.
    let said = workdir.fails(&["search", "dosc", "river"]);
    assert!(said.contains("did you mean the table `docs`?"), "{said}");

    // The first word is a table's name.
    let found = hits(&workdir.ok(&["search", "docs", "river"]));
    assert_eq!(found.len(), 2, "{found:?}");

    workdir.ok(&["sql", "CREATE INDEX ON docs USING text (title, body) WITH (weights = '2,1')"]);
    let slip = workdir.run(&["search", "dosc", "zebra"]);
    assert!(slip.status.success() && slip.stdout.is_empty());
    assert_eq!(text(&slip.stderr), "polynya: did you mean the table `docs`?\n");
    let found = hits(&workdir.ok(&["search", "--limit", "1", "water"]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["row"]["path"], "sea.md");
    assert_eq!(found[0]["snippets"]["title"], "<mark>Water</mark>");
    let found =
        hits(&workdir.ok(&["search", "--table", "docs", "--filter", "path LIKE 's%'", "river", "-stones"]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["snippets"]["body"], "Where <mark>rivers</mark> &lt;end&gt;");

    let described = workdir.ok(&["tables", "docs"]);
    assert!(described.contains("index docs_title_body_idx: text (title, body), weights 2,1"), "{described}");
    assert!(described.contains("\ntext: ") && described.contains("\nlake: "), "{described}");
    assert!(workdir.ok(&["tables"]).contains("text"));
    workdir.ok(&["sql", "DROP INDEX docs_title_body_idx"]);
    assert!(!workdir.ok(&["tables", "docs"]).contains("index docs_title_body_idx"));
}

#[test]
fn a_running_server_is_asked_and_answers_the_same() {
    let _limit = testkit::limit(120);
    let workdir = workdir();
    workdir.ok(&["sql", "CREATE INDEX ON docs USING text (title, body)"]);
    let alone = workdir.ok(&["search", "river"]);
    let server = workdir.serve(&["serve"]);
    assert_eq!(workdir.ok(&["search", "river"]), alone);
    assert!(workdir.fails(&["search", "--table", "dox", "river"]).contains("docs"));
    assert_eq!(hits(&workdir.ok(&["search", "river", "--limit", "1"])).len(), 1, "an option after the words");
    let refused = workdir.run(&["search", "--tabel", "docs", "river"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    server.stop();
}
