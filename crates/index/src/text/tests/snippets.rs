//! Tests of snippets: they are safe in a page, and they show the words of the query.

use super::support::{BODY, Machine, notes};
use crate::text::{Marker, Query};

fn marker(query: &str) -> Marker {
    let machine = Machine::new(1, notes());
    machine.text.searcher(&machine.table(), None).unwrap().marker(&Query::new(query)).unwrap()
}

#[test]
fn a_snippet_is_escaped_and_marks_the_querys_words_in_all_their_forms() {
    let html = marker("rivers -bank \"a stone\" brid*")
        .snippet(BODY, "A <i>river</i> & the 'bank': \"stones\", bridges", 200)
        .html();
    assert_eq!(
        html,
        "<mark>A</mark> &lt;i&gt;<mark>river</mark>&lt;/i&gt; &amp; the &#39;bank&#39;: &quot;<mark>stones</mark>&quot;, <mark>bridges</mark>"
    );
    let attack = "<script>heron</script>".repeat(50);
    let html = marker("heron script").snippet(BODY, &attack, 60).html();
    assert!(!html.replace("<mark>", "").replace("</mark>", "").contains('<'), "{html}");
}

#[test]
fn a_snippet_shows_the_part_with_most_of_the_words() {
    let filler = "lorem ipsum dolor sit amet ".repeat(40);
    let text = format!("heron {filler} the grey heron stood by the river {filler} river");
    let snippet = marker("grey heron river").snippet(BODY, &text, 80);
    assert!(snippet.text.contains("grey heron stood by the river"), "{snippet:?}");
    assert!(snippet.text.chars().count() <= 80 && snippet.before && snippet.behind);
    assert!(
        snippet.text.starts_with(char::is_alphabetic) && snippet.text.ends_with(char::is_alphabetic),
        "{snippet:?}"
    );
    assert_eq!(
        snippet.marks.iter().map(|m| &snippet.text[m.clone()]).collect::<Vec<_>>(),
        ["grey", "heron", "river"]
    );
    let none = marker("absent").snippet(BODY, &text, 40);
    assert!(none.text.starts_with("heron lorem") && none.marks.is_empty() && !none.before && none.behind);
}

#[test]
fn any_text_and_any_length_give_valid_pieces_of_it() {
    let _limit = testkit::limit(120);
    const PARTS: [&str; 10] = ["heron", " ", "é", "日本", "🦀", "\n", "<", "e\u{301}", "xxxxxxxxxxxx", ", "];
    let marker = marker("heron 日本 xxx* é");
    testkit::for_each_seed(3_000, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let text: String = (0..rng.below(60)).map(|_| PARTS[rng.below(10) as usize]).collect();
        let most = 1 + rng.below(40) as usize;
        let snippet = marker.snippet(BODY, &text, most);
        assert!(text.contains(snippet.text) && snippet.text.chars().count() <= most, "{text:?}: {snippet:?}");
        assert!(snippet.marks.is_sorted_by(|a, b| a.end <= b.start));
        snippet.html();
    });
    let huge = "x".repeat(3 << 20);
    assert_eq!(marker.snippet(BODY, &huge, 30).text.len(), 30);
}
