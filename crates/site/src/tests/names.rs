//! Tests that `[[…]]` is a link wherever a link is possible, and that it never reveals the name of a private note (A1).

use testkit::Rng;

use super::{article, everything, page, put, rendered, vault, vault_with};
use crate::{Note, Options, Vault};

/// A private note. Its words occur in no other text.
const SECRET: (&str, &str) = (
    "zqfolder/zqfile plan.md",
    "---\npublish: false\ntitle: zqtitle wholly\naliases: [zqalias]\n---\n# zqtitle wholly\n",
);
const SECRETS: [&str; 4] = ["zqfolder", "zqfile", "zqtitle", "zqalias"];

/// Returns all text that a reader can get of a vault.
fn public_text(vault: &Vault) -> String {
    let mut readable = String::new();
    for (url, bytes) in everything(vault) {
        readable.push_str(&format!("{url}\n{}\n", String::from_utf8_lossy(&bytes)));
    }
    for (note, _) in vault.notes().filter(|(_, published)| *published) {
        readable.push_str(&format!("{:?} {:?}\n", vault.card(note.path()), vault.text(note.path())));
        // The search index has these words before the vault is known.
        readable.push_str(&format!("{:?}\n", note.public_words()));
    }
    readable.to_lowercase()
}

#[track_caller]
fn assert_hidden(text: &str) {
    for raw_html in [false, true] {
        let options = Options { raw_html, ..super::options() };
        let vault = vault_with(options, &[("open.md", text), ("q.md", "q"), ("a.png", ""), SECRET]);
        let readable = public_text(&vault);
        for secret in SECRETS {
            assert!(!readable.contains(secret), "{secret} in what came of {text:?}:\n{readable}");
        }
    }
}

/// Positions in which Markdown would see no link, because a bracket is open or the position is not text.
const PLACES: [&str; 36] = [
    "The interval [0, 1) is used in {}.",
    "See [draft of {}].",
    "[x {}]",
    "array[0 … {}",
    "# head [ {}\n\n## more [ {}\n\n## c\n\n## d",
    "[the {} note](q.md)",
    "[the {} note](https://example.org)",
    "![alt {}](a.png)",
    "![alt {}](https://example.org/a.png)",
    "[![alt {}](a.png)](q.md)",
    "^[foot {}]",
    "x[^1]\n\n[^1]: [foot {}",
    "[[x\\]] and {}",
    "[t](q.md \"about {}\")",
    "[t](https://example.org \"about {}\")",
    "[t](<https://example.org/{}>)",
    "[t]({})",
    "[]({})",
    "![]({})",
    "[r]\n\n[r]: https://example.org \"about {}\"",
    "[see {}]: text",
    "https://example.org/{} <https://example.org/{}>",
    "| a [ | b {} |\n|---|---|\n| [ {} | {} |",
    "a $5 {} 5$ and $$ [ {} $$",
    "<b title=\"{}\">{}</b>",
    "<div>\n{}\n</div>",
    "<details><summary>{}</summary>\n[ {}\n\n</details>",
    "> [!note] [ {}\n> [ {}",
    "> [!{}]\n> a",
    "- [ ] [ {}\n- [x {}",
    "**[a {}** ==b {}== ~~c [ {}~~ _d {}_",
    "[[q|about {}]] and {}",
    "[[q|about [1] {}]]",
    "---\ntitle: 'On {}'\ndescription: 'What {} says'\n---\ntext",
    "---\nsummary: '[x {}'\n---\ntext ⁅0⁆ &#x2045;0&#x2046; {}",
    "`[[` and [ {} and `]]` [ {}",
];

const LINKS: [&str; 14] = [
    "[[zqfile plan]]",
    "[[zqfolder/zqfile plan]]",
    "[[zqfolder/zqfile plan\\|x]]",
    "[[zqfile plan#Part|x]]",
    "[[ZQTITLE wholly]]",
    "[[zqalias]]",
    "[[zqalias|zqaliases]]",
    "[[zqfile plan|the zqfile-plans]]",
    "[[zqfile plan|in zqfolder/]]",
    "[[zqfile plan|see [1]]]",
    "[[zqfile&#32;plan]]",
    "![[zqfile plan]]",
    "\\[[zqfile plan]]",
    "[[zqfile plan\\]]",
];

#[test]
fn a_link_to_a_private_note_names_it_nowhere() {
    for place in PLACES {
        for link in LINKS {
            assert_hidden(&place.replace("{}", link));
        }
    }
    for wrapped in [
        "See [ [[zqfile\nplan]].",
        "# [[zqtitle wholly]]\n\n[[zqtitle wholly]]",
        "> See [[zqfile\n> plan]] [[zqfile\n> plan|x\n> y]].",
        "- See [[zqfile\n  plan]].\n\n    And [ [[zqfile\n    plan]].",
    ] {
        assert_hidden(wrapped);
    }
}

#[test]
fn whatever_surrounds_a_link_to_a_private_note_its_name_is_untold() {
    let _limit = testkit::limit(300);
    const PARTS: [&str; 44] = [
        "[",
        "]",
        "[[",
        "]]",
        "(",
        ")",
        "](q.md)",
        "](https://example.org)",
        "![",
        "!",
        "\\",
        "|",
        "\\|",
        "*",
        "**",
        "_",
        "~~a",
        "==",
        "$",
        "$$",
        "\n",
        "\n\n",
        "\n# ",
        "\n- ",
        "\n> ",
        "\n> [!note]- ",
        "\n| a | b |\n|---|---|\n| ",
        "[^1]",
        "\n\n[^1]: ",
        "<b>",
        "</b>",
        "<i title=\"",
        "\">",
        "<!-- ",
        " -->",
        "https://example.org/",
        "%%",
        "#tag",
        "[[q]]",
        "[[q|",
        "&amp;",
        "⁅1⁆",
        "]: ",
        " a ",
    ];
    testkit::for_each_seed(400, |seed| {
        let mut rng = Rng::new(seed);
        let some = |rng: &mut Rng| -> String {
            let mut text = String::new();
            for _ in 0..rng.below(14) {
                let part = if rng.one_in(4) { *rng.pick(&LINKS) } else { *rng.pick(&PARTS) };
                text.push_str(part);
            }
            text
        };
        let (title, description, text) = (some(&mut rng), some(&mut rng), some(&mut rng));
        let quoted = |text: &str| text.replace('\'', "''").replace('\n', " ");
        let front =
            format!("---\ntitle: 'T{}'\ndescription: 'D{}'\n---\n", quoted(&title), quoted(&description));
        let front = if rng.chance(0.5) { front } else { String::new() };
        assert_hidden(&format!("{front}{text}"));
    });
}

/// Code shows `[[…]]` as the author wrote it. Text outside of code must not pass for code.
#[test]
fn code_says_what_it_says_and_no_more() {
    let secret = "[[zqfile plan]]";
    for code in
        ["`{}`", "``a ` {}``", "```\n{}\n```", "> ```toml {}\n> {}\n> ```", "    {}", "[t `{}`](q.md)"]
    {
        let text = code.replace("{}", secret);
        let html = article(&vault(&[("open.md", &text), ("q.md", ""), SECRET]), "/open");
        assert!(html.contains(secret), "{text}: {html}");
    }
    assert_eq!(rendered("> ```\n> [[a\n> b]]\n> ```").matches("[[a\nb]]").count(), 1);
    assert!(rendered("| a |\n|---|\n| `[[a\\|b]]` |").contains("<code>[[a|b]]</code>"));
    assert!(rendered("`[[` opens and `]]` ends it").contains("<code>[[</code> opens and <code>]]</code>"));
    let _limit = testkit::limit(300);
    const PARTS: [&str; 12] =
        ["`", "``", "[[", "]]", "\\", "<i title=\"`\">", "[", " a ", "\n", "```", "[[q]]", "\n\n"];
    testkit::for_each_seed(300, |seed| {
        let mut rng = Rng::new(seed);
        let mut text = "a".to_owned();
        for _ in 0..rng.below(14) {
            let part = if rng.one_in(4) { secret } else { *rng.pick(&PARTS) };
            text.push_str(part);
        }
        let html = article(&vault(&[("open.md", &text), ("q.md", ""), SECRET]), "/open");
        let outside = html.split("<code").map(|part| part.rsplit("</code>").next().unwrap_or_default());
        let outside: String = outside.collect();
        assert!(!outside.contains("zqfile"), "seed {seed}: {text:?}: {html}");
    });
}

#[test]
fn a_link_behind_an_open_bracket_is_a_link() {
    for text in [
        "The interval [0, 1) is used in [[secret]] and [[Other]].",
        "[x [[Other]]]",
        "array[0 … [[Other]]",
        "# head [ [[Other]]",
        "^[foot [[Other]]]",
        "[[x\\]] and [[Other]]",
        "[see [[Other]]]: text",
        "x[^1]\n\n[^1]: foot [ [[Other]]",
        "| a [ | b |\n|---|---|\n| [ [[Other]] | c |",
        "> [!note] [ [[Other]]",
        "**[a [[Other]]**",
        "> a [ [[Other\n> and more|Other]]",
    ] {
        let vault = vault(&[("a.md", text), ("Other.md", "---\naliases: [Other and more]\n---\n")]);
        assert!(article(&vault, "/a").contains("<a href=\"/Other\">Other</a>"), "{}", article(&vault, "/a"));
        assert!(page(&vault, "/Other").contains("class=\"backlinks\""), "{text}");
    }
    let html = rendered(
        "[a] [[b](https://example.org/1), [c](https://example.org/2)] [[1, 2], [3, 4]] [[]] [d [e]]",
    );
    for kept in ["[a] [<a class", ">b</a>, <a", "] [[1, 2], [3, 4]] [[]] [d [e]]"] {
        assert!(html.contains(kept), "{kept} not in {html}");
    }
}

#[test]
fn where_no_link_can_be_a_public_note_is_named() {
    let text = "---\ntitle: On [[Other|others]]\ndescription: See [[Other]]\n---\n[the [[Other]] note](q.md) ![alt [[Other]]](a.png \"T [[Other]]\") \\[[Other]] [o [[Other]]](https://example.org/[[Other]])";
    let vault = vault(&[("a.md", text), ("Other.md", ""), ("q.md", ""), ("a.png", "")]);
    let html = page(&vault, "/a");
    for wanted in [
        "<h1>On others</h1>",
        "<meta name=\"description\" content=\"See Other\">",
        "<a href=\"/q\">the Other note</a>",
        "alt=\"alt Other\" title=\"T Other\"",
        " [[Other]] <a class",
        "href=\"https://example.org/[[Other]]\" rel=\"noopener\">o Other</a>",
    ] {
        assert!(html.contains(wanted), "{wanted} not in {html}");
    }
    assert!(vault.text("a.md").is_some_and(|text| text.contains("the Other note")));
    assert!(!page(&vault, "/Other").contains("class=\"backlinks\""));
    assert!(vault.warnings().is_empty(), "{:?}", vault.warnings());
    // A file that is only named does not become public.
    let vault = vault.apply([put("a.md", "\\[[a.png]] <b>[[none]]</b> $[[none]]$")]);
    assert!(super::is_missing(&vault, "/a.png"));
}

#[test]
fn a_link_to_a_heading_tells_no_more_than_the_heading() {
    let b = ("b.md", "# About [[zqfile plan]]\n\n# About [[q]]");
    let a = ("a.md", "[[b#About zqfile plan]] [[b#About q]] ![[b#About zqfile plan]]");
    let vault = vault(&[a, b, ("q.md", ""), SECRET]);
    let html = article(&vault, "/a");
    assert!(html.contains("<a href=\"/b#about\">b › …</a> <a href=\"/b#about-1\">b › About q</a>"), "{html}");
    assert!(SECRETS.iter().all(|secret| !public_text(&vault).contains(secret)));
    let vault = vault.apply([put(SECRET.0, "public now")]);
    assert!(article(&vault, "/a").contains(">b › About zqfile plan</a>"));
}

#[test]
fn a_note_has_a_thousand_tags_and_its_author_is_told() {
    let many: String = (0..5_000).map(|at| format!("#t{at} ")).collect();
    for text in
        [many.clone(), format!("---\ntags: '{many}'\n---\n"), format!("---\ntags: [a]\n---\n{many} #t1 #A")]
    {
        let note = Note::parse("a.md", text.as_bytes());
        assert_eq!(note.tags().len(), 1_000);
        assert_eq!(note.warnings(), ["it has more than 1000 tags; only the first 1000 count"]);
        let vault = vault(&[("a.md", &text)]);
        assert_eq!(
            vault.addresses().iter().filter(|url| url.starts_with("/tags/t")).count(),
            1_000 - usize::from(text.contains("[a]"))
        );
        assert!(!article(&vault, "/a").contains("/tags/t4999"), "no link to a page that is not there");
    }
}

#[test]
fn what_is_shown_in_place_stands_in_no_paragraph() {
    for (text, html) in [
        ("A ![[b]] c", "<p>A </p>\nE<p> c</p>\n"),
        ("![[b]]", "E"),
        ("![[b]] ![[b]]\n![[b]]", "EEE"),
        ("A ![[b]] ^id", "<p id=\"^id\">A </p>\nE"),
        ("- A ![[b]]\n- c", "<ul>\n<li>A E</li>\n<li>c</li>\n</ul>\n"),
        ("A *b ![[b]]* c", "<p>A <em>b <a href=\"/b\">b</a></em> c</p>\n"),
        (
            "# A ![[b]]",
            "<h1 id=\"a\">A <a href=\"/b\">b</a> <a class=\"anchor\" href=\"#a\" aria-hidden=\"true\" tabindex=\"-1\">#</a></h1>\n",
        ),
        ("[c ![x](b.md)](q.md)", "<p><a href=\"/q\">c x</a></p>\n"),
    ] {
        let vault = vault(&[("a.md", text), ("b.md", "B"), ("q.md", "")]);
        let embed = "<div class=\"embed\"><p class=\"from\"><a href=\"/b\">b</a></p>\n<div class=\"body\">\n<p>B</p>\n</div></div>\n";
        let found = article(&vault, "/a").replacen("<h1>a</h1>\n", "", 1).replace(embed, "E");
        assert_eq!(found, html, "{text}");
    }
}

#[test]
fn an_ending_in_upper_case_is_one_of_a_note() {
    let vault = vault(&[
        ("NOTE.MD", "upper [[b]]"),
        ("b.Md", "[[NOTE]] [t](NOTE.MD)"),
        ("c/README.MD", "c"),
        ("note.md", "lower"),
    ]);
    assert_eq!(
        article(&vault, "/b.Md").matches("href=\"/NOTE.MD\"").count(),
        2,
        "{}",
        article(&vault, "/b.Md")
    );
    assert!(
        article(&vault, "/NOTE.MD").contains("href=\"/b.Md\"") && article(&vault, "/note").contains("lower")
    );
    assert!(article(&vault, "/c/").contains('c') && vault.notes().count() == 4);
    assert!(crate::is_note("a.mD") && !crate::is_note("md") && !crate::is_note("é.m"));
}
