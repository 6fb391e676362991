//! Tests of lists, search results and warnings.

use super::{options, page, put, vault, vault_with};
use crate::{Change, Options, Vault};

/// The decisions were listed as 1, 10, 11, 2.
#[test]
fn numbers_in_titles_are_sorted_as_numbers() {
    let names = ["10 Ice", "2 Water", "1 Sea", "2 Water 10", "2 Water 9", "007 Bond"];
    let files: Vec<(String, String)> =
        names.iter().enumerate().map(|(at, title)| (format!("n{at}.md"), format!("# {title}\n"))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let html = page(&vault(&files), "/all-notes");
    let mut places: Vec<(usize, &str)> =
        names.iter().filter_map(|name| Some((html.find(&format!(">{name}</a>"))?, *name))).collect();
    places.sort_unstable();
    let sorted: Vec<&str> = places.into_iter().map(|(_, name)| name).collect();
    assert_eq!(sorted, ["1 Sea", "2 Water", "2 Water 9", "2 Water 10", "007 Bond", "10 Ice"]);
}

/// The page said that nothing is published.
#[test]
fn a_vault_without_tags_says_that_it_has_none() {
    let untagged = page(&vault(&[("a.md", "# A\n")]), "/tags/");
    assert!(untagged.contains("<p>No note has a tag yet.</p>"), "{untagged}");
    let tagged = page(&vault(&[("a.md", "# A\n\n#ice\n")]), "/tags/");
    assert!(!tagged.contains("No note has a tag yet."), "{tagged}");
    assert!(page(&vault(&[]), "/tags/").contains("<p>Nothing is published here yet.</p>"));
}

#[test]
fn the_search_box_keeps_the_words_and_the_number_has_a_noun() {
    let options = Options { search: Some("/".to_owned()), ..options() };
    let vault = vault_with(options, &[("a.md", "# A\n"), ("b.md", "# B\n")]);
    let hit = |path: &str| crate::Hit { path: path.to_owned(), snippet: "x".to_owned() };
    let found = vault.search_page("ice \"cold\" <b>", 2, &[hit("a.md"), hit("b.md")]);
    let html = String::from_utf8(found.plain.bytes.to_vec()).unwrap();
    assert!(html.contains("name=\"q\" value=\"ice &quot;cold&quot; &lt;b&gt;\""), "{html}");
    assert!(html.contains("<p>2 notes</p>"), "{html}");
    let one = String::from_utf8(vault.search_page("x", 1, &[hit("a.md")]).plain.bytes.to_vec()).unwrap();
    assert!(one.contains("<p>1 note</p>"));
    assert!(!page(&vault, "/a").contains(" value=\""), "other pages have none");
}

/// Warnings for authors were collected but never logged.
#[test]
fn what_an_author_should_know_is_told_once_and_when_it_changes() {
    let new_messages = |before: &Vault, after: &Vault| -> Vec<String> {
        after
            .new_warnings(before)
            .into_iter()
            .map(|warning| format!("{}: {}", warning.path, warning.message))
            .collect()
    };
    let empty = Vault::new(options()).unwrap();
    let first = empty.apply([put("a.md", "[[gone]] [[b]]"), put("b.md", "b")]);
    assert_eq!(new_messages(&empty, &first), ["a.md: `gone` is linked to and does not exist"]);
    let second = first.apply([put("c.md", "nothing")]);
    assert_eq!(new_messages(&first, &second), [""; 0]);
    // The text of `a.md` is unchanged, but its link is broken now.
    let third = second.apply([Change::Remove("b.md".to_owned())]);
    assert_eq!(new_messages(&second, &third), ["a.md: `b` is linked to and does not exist"]);
    let healed = third.apply([put("a.md", "fine"), put("d.md", "---\npublish: [\n---\nx")]);
    let said = new_messages(&third, &healed);
    assert!(said.len() == 1 && said[0].starts_with("d.md: "), "{said:?}");
}
